"""Tiny diffusion models of the real classes: a small Stable Diffusion 1.5, and networks that draw control maps."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.tiny import TinyModel
from tests.tiny.image_detection import build_person_detector
from tests.tiny.training import train

SIDE = 32
_BASE = "stable-diffusion-v1-5/stable-diffusion-v1-5"
_XL_BASE = "stabilityai/stable-diffusion-xl-base-1.0"
_DETECTOR = "PekingU/rtdetr_r18vd_coco_o365"
_TEXT, _BASE_TEXT = 16, 768
"""Text embedding widths; the base model has the real width, which identifies the family of a ControlNet."""
_MAPS = ("canny", "depth", "hed", "mlsd", "normal", "openpose", "scribble", "seg")

_ENCODER: Mapping[str, Any] = {
    "block_out_channels": (8, 16),
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "attention_head_dim": 4,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
}


def _make_unet(channels: int = 4, text: int = _TEXT, **options: Any) -> Any:
    import torch
    from diffusers import UNet2DConditionModel

    torch.manual_seed(0)
    decoder: Mapping[str, Any] = {"out_channels": 4, "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D")}
    sizes: Mapping[str, Any] = {**_ENCODER, **decoder, "cross_attention_dim": text}
    return UNet2DConditionModel(sample_size=SIDE // 8, in_channels=channels, **sizes, **options)


def _make_vae(blocks: int = 4) -> Any:
    import torch
    from diffusers import AutoencoderKL

    torch.manual_seed(0)
    return AutoencoderKL(
        block_out_channels=(4,) * blocks,
        down_block_types=("DownEncoderBlock2D",) * blocks,
        up_block_types=("UpDecoderBlock2D",) * blocks,
        latent_channels=4,
        norm_num_groups=2,
        sample_size=SIDE,
        scaling_factor=0.18215 if blocks == 4 else 0.08333,
    )


def _make_text_encoder(text: int) -> tuple[Any, Any]:
    """Returns a tokenizer with one token per letter, and a text encoder."""
    import torch
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    tokenizer = CLIPTokenizer(
        vocab={token: index for index, token in enumerate(tokens)}, merges=[], model_max_length=77
    )
    torch.manual_seed(0)
    config = CLIPTextConfig(
        vocab_size=len(tokens),
        hidden_size=text,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=4,
        bos_token_id=0,
        eos_token_id=1,
    )
    return tokenizer, CLIPTextModel(config)


def _pipeline_parts(
    channels: int = 4, vae_blocks: int = 4, text: int = _TEXT, unet_text: int = 0, **unet: Any
) -> dict[str, Any]:
    from diffusers import DDIMScheduler

    tokenizer, text_encoder = _make_text_encoder(text)
    return {
        "unet": _make_unet(channels, unet_text or text, **unet),
        "vae": _make_vae(vae_blocks),
        "tokenizer": tokenizer,
        "text_encoder": text_encoder,
        "scheduler": DDIMScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1, clip_sample=False
        ),
    }


def _save_pipeline(pipeline_class: str, folder: Path, **options: Any) -> None:
    import diffusers

    has_safety_checker = pipeline_class != "StableDiffusionUpscalePipeline"
    extra = {"safety_checker": None, "feature_extractor": None} | (
        {"requires_safety_checker": False} if has_safety_checker else {}
    )
    parts = _pipeline_parts(**options.pop("parts", {})) | options.pop("overrides", {})
    getattr(diffusers, pipeline_class)(**parts, **extra, **options).save_pretrained(folder)


def build_stable_diffusion(folder: Path) -> None:
    _save_pipeline("StableDiffusionPipeline", folder)


def build_latent_consistency_model(folder: Path) -> None:
    """Builds a pipeline whose scheduler draws noise at each step."""
    from diffusers import LCMScheduler

    scheduler = LCMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
    _save_pipeline(
        "LatentConsistencyModelPipeline", folder, parts={"time_cond_proj_dim": 8}, overrides={"scheduler": scheduler}
    )


def build_stable_diffusion_xl(folder: Path, text: int = _TEXT) -> None:
    """Builds a pipeline with two text encoders, each with embeddings of the given width."""
    import torch
    from diffusers import StableDiffusionXLPipeline
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    parts = _pipeline_parts(text=text, unet_text=2 * text, **_size_conditions(text))
    torch.manual_seed(0)
    config = CLIPTextConfig(**{**parts["text_encoder"].config.to_dict(), "projection_dim": text})
    pipeline: Any = StableDiffusionXLPipeline(
        **parts, tokenizer_2=parts["tokenizer"], text_encoder_2=CLIPTextModelWithProjection(config)
    )
    pipeline.save_pretrained(folder)


def _size_conditions(text: int) -> dict[str, Any]:
    """Returns the options of models that are conditioned on six sizes and a pooled text embedding."""
    return {
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 8,
        "projection_class_embeddings_input_dim": 6 * 8 + text,
    }


def build_flux(folder: Path) -> None:
    """Builds a FLUX.2 klein, whose text encoder has the 27 layers that the pipeline reads."""
    import torch
    from diffusers import (
        AutoencoderKLFlux2,
        FlowMatchEulerDiscreteScheduler,
        Flux2KleinPipeline,
        Flux2Transformer2DModel,
    )

    tokenizer, text_encoder = _make_qwen(layers=27)
    torch.manual_seed(0)
    transformer = Flux2Transformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=3 * _TEXT,
        timestep_guidance_channels=16,
        axes_dims_rope=(4, 4, 4, 4),
    )
    vae = AutoencoderKLFlux2(
        sample_size=SIDE,
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(4,) * 4,
        layers_per_block=1,
        latent_channels=1,
        norm_num_groups=1,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )
    pipeline: Any = Flux2KleinPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        transformer=transformer,
        is_distilled=True,
    )
    pipeline.save_pretrained(folder)


def build_z_image(folder: Path) -> None:
    import torch
    from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, ZImagePipeline, ZImageTransformer2DModel

    tokenizer, text_encoder = _make_qwen(layers=2)
    torch.manual_seed(0)
    transformer = ZImageTransformer2DModel(
        all_patch_size=(2,),
        all_f_patch_size=(1,),
        in_channels=4,
        dim=32,
        n_layers=1,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=_TEXT,
        axes_dims=[8, 4, 4],
        axes_lens=[1024, 64, 64],
    )
    vae = AutoencoderKL(
        block_out_channels=(4,) * 4,
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        latent_channels=4,
        norm_num_groups=2,
        sample_size=SIDE,
        shift_factor=0.0,
    )
    pipeline: Any = ZImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        transformer=transformer,
    )
    pipeline.save_pretrained(folder)


def _make_qwen(layers: int) -> tuple[Any, Any]:
    """Returns a tokenizer with a chat template and one token per letter, and a Qwen3 as a text encoder."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    tokens = ["<pad>", "<unk>", "<end>", *"abcdefghijklmnopqrstuvwxyz "]
    backend = Tokenizer(models.WordLevel({token: index for index, token in enumerate(tokens)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="<end>",
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}<end>{% endfor %}"
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=_TEXT,
        intermediate_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=512,
    )
    return tokenizer, Qwen3ForCausalLM(config)


def build_inpainter(folder: Path) -> None:
    _save_pipeline("StableDiffusionInpaintPipeline", folder, parts={"channels": 9})


def build_editor(folder: Path) -> None:
    _save_pipeline("StableDiffusionInstructPix2PixPipeline", folder, parts={"channels": 8})


def build_upscaler(folder: Path) -> None:
    from diffusers import DDPMScheduler

    parts = {"channels": 7, "vae_blocks": 3, "num_class_embeds": 1000}
    _save_pipeline("StableDiffusionUpscalePipeline", folder, parts=parts, low_res_scheduler=DDPMScheduler())


def build_controlnet(folder: Path) -> None:
    """Builds a ControlNet with a visible effect, and the base model that it requires."""
    import torch
    from diffusers import ControlNetModel

    base = folder.parents[1] / _BASE
    if not base.exists():
        base.mkdir(parents=True)
        _save_pipeline("StableDiffusionPipeline", base, parts={"text": _BASE_TEXT})
    model = ControlNetModel.from_unet(_make_unet(text=_BASE_TEXT), conditioning_embedding_out_channels=(4, 4, 4, 8))
    for name, weight in model.named_parameters():
        if "controlnet" in name:  # these weights are zero before training
            torch.nn.init.normal_(weight, std=0.5)
    model.save_pretrained(folder)


def build_union_controlnet(folder: Path) -> None:
    """Builds a union of ControlNets with visible effects, and the base model that it requires."""
    import torch
    from diffusers import ControlNetUnionModel

    text, base = 2048 // 2, folder.parents[1] / _XL_BASE  # the real width, which identifies the family
    if not base.exists():
        base.mkdir(parents=True)
        build_stable_diffusion_xl(base, text)
    torch.manual_seed(0)
    model: Any = ControlNetUnionModel(
        **_ENCODER,
        **_size_conditions(text),
        cross_attention_dim=2 * text,
        conditioning_embedding_out_channels=(4, 4, 4, 8),
        num_trans_channel=8,
        num_trans_head=2,
        num_proj_channel=8,
    )
    for name, weight in model.named_parameters():
        if "controlnet" in name or "spatial_ch_projs" in name:  # most of these weights are zero before training
            torch.nn.init.normal_(weight, std=0.5)
    model.save_pretrained(folder)


def build_swin2sr(folder: Path) -> None:
    import torch
    from transformers import Swin2SRConfig, Swin2SRForImageSuperResolution

    torch.manual_seed(0)
    config = Swin2SRConfig(
        image_size=16, embed_dim=8, depths=(1,), num_heads=(2,), window_size=4, upscale=2, num_channels=3
    )
    Swin2SRForImageSuperResolution(config).save_pretrained(folder)


def build_dpt(folder: Path) -> None:
    import torch
    from transformers import DPTConfig, DPTForDepthEstimation, DPTImageProcessor

    torch.manual_seed(0)
    config = DPTConfig(
        hidden_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=SIDE,
        patch_size=8,
        backbone_out_indices=(0, 1, 2, 3),
        neck_hidden_sizes=(8, 8, 8, 8),
        fusion_hidden_size=8,
        reassemble_factors=(4, 2, 1, 0.5),
        is_hybrid=False,
    )
    DPTForDepthEstimation(config).save_pretrained(folder)
    DPTImageProcessor(size={"height": SIDE, "width": SIDE}, ensure_multiple_of=8).save_pretrained(folder)


def build_segformer(folder: Path) -> None:
    """Builds a SegFormer that separates wall (dark) from building (bright), the first two classes of ADE20K."""
    import torch
    from transformers import SegformerConfig, SegformerForSemanticSegmentation, SegformerImageProcessor

    torch.manual_seed(0)
    config = SegformerConfig(
        num_encoder_blocks=2,
        depths=(1, 1),
        hidden_sizes=(8, 8),
        num_attention_heads=(1, 1),
        sr_ratios=(1, 1),
        patch_sizes=(3, 3),
        strides=(2, 2),
        mlp_ratios=(2, 2),
        decoder_hidden_size=8,
        id2label={number: str(number) for number in range(150)},
        drop_path_rate=0.0,
        classifier_dropout_prob=0.0,
    )
    pixels, labels = torch.full((1, 3, SIDE, SIDE), -1.0), torch.zeros(1, SIDE, SIDE, dtype=torch.long)
    pixels[..., SIDE // 2 :], labels[..., SIDE // 2 :] = 1.0, 1
    processor = SegformerImageProcessor(
        size={"height": SIDE, "width": SIDE}, image_mean=[0.5] * 3, image_std=[0.5] * 3, do_reduce_labels=False
    )
    processor.save_pretrained(folder)
    model = SegformerForSemanticSegmentation(config)
    train(model, lambda model: model(pixels, labels=labels).loss, learning_rate=2e-2).save_pretrained(folder)


def build_vit_pose(folder: Path) -> None:
    """Builds a ViTPose that finds every joint, and the detector of people, which is that of the vision expert."""
    import torch
    from transformers import VitPoseBackboneConfig, VitPoseConfig, VitPoseForPoseEstimation, VitPoseImageProcessor

    detector = folder.parents[1] / _DETECTOR
    if not detector.exists():
        detector.mkdir(parents=True)
        build_person_detector(detector)
    torch.manual_seed(0)
    backbone = VitPoseBackboneConfig(
        image_size=[SIDE, SIDE], patch_size=[8, 8], hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    model = VitPoseForPoseEstimation(
        VitPoseConfig(backbone_config=backbone, id2label={number: str(number) for number in range(17)})
    )
    torch.nn.init.normal_(model.head.conv.weight, std=1.0)
    model.save_pretrained(folder)
    VitPoseImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(folder)


def build_hed(folder: Path) -> None:
    """Builds a small HED network with the weight names of ControlNet's."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    weights = {"norm": torch.zeros(1, 3, 1, 1)}
    for block, (before, after) in enumerate(((3, 4), (4, 4)), 1):
        for conv, channels in enumerate((before, after)):
            weights[f"block{block}.convs.{conv}.weight"] = torch.randn(after, channels, 3, 3) / 50
            weights[f"block{block}.convs.{conv}.bias"] = torch.zeros(after)
        weights[f"block{block}.projection.weight"] = torch.randn(1, after, 1, 1)
        weights[f"block{block}.projection.bias"] = torch.zeros(1)
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({}), encoding="utf-8")


def build_nothing(_folder: Path) -> None:
    """Builds nothing: the model has no weights."""


MODELS: Mapping[str, TinyModel] = {
    "tiny/sd": TinyModel(("text-to-image", "image-to-image", "inpainting"), build_stable_diffusion),
    "tiny/lcm": TinyModel(("text-to-image",), build_latent_consistency_model),
    "tiny/sdxl": TinyModel(("text-to-image",), build_stable_diffusion_xl),
    "tiny/flux": TinyModel(("text-to-image", "image-to-image"), build_flux),
    "tiny/z-image": TinyModel(("text-to-image",), build_z_image),
    "tiny/inpainter": TinyModel(("inpainting",), build_inpainter),
    "tiny/editor": TinyModel(("image-to-image",), build_editor),
    "tiny/upscaler": TinyModel(("image-super-resolution",), build_upscaler),
    "tiny/swin2sr": TinyModel(("image-super-resolution",), build_swin2sr),
    "tiny/controlnet": TinyModel(tuple(f"{name}-text-to-image" for name in _MAPS), build_controlnet),
    "tiny/union": TinyModel((), build_union_controlnet),
    "tiny/depth-map": TinyModel(("depth-control", "normal-control"), build_dpt),
    "tiny/segmenter": TinyModel(("seg-control",), build_segformer),
    "tiny/pose-map": TinyModel(("openpose-control",), build_vit_pose),
    "tiny/hed": TinyModel(("hed-control",), build_hed),
    "opencv/soft-edges": TinyModel(("hed-control",), build_nothing),
    "opencv/canny": TinyModel(("canny-control",), build_nothing),
    "opencv/line-segments": TinyModel(("mlsd-control",), build_nothing),
    "opencv/scribble": TinyModel(("scribble-control",), build_nothing),
}
