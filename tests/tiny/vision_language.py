"""Tiny models for prompts about images: architectures of Qwen3-VL, SmolVLM, Granite-Docling, LLaVA and Florence-2."""

import json
import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.tiny.image_files import solid_image
from tests.tiny.training import train

_SIZES: Mapping[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
_VISION: Mapping[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
_TEMPLATE = (
    "{% for message in messages %}<bos>{% for part in message.content %}"
    "{% if part.type == 'image' %}IMAGE{% else %}{{ part.text }}{% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)

PAGE = "<doctag><text><loc_1>a b</text><otsl><ched>c<ched>d<nl><fcel>1<fcel>2<nl></otsl></doctag>"


def build_llava(folder: Path) -> None:
    """Builds an untrained LLaVA."""
    import torch
    from transformers import (
        CLIPImageProcessorPil,
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )

    tokenizer = make_tokenizer("<image>", "<image>")
    square = {"height": 32, "width": 32}
    processor: Any = LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=square),
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tokenizer.chat_template,
    )
    processor.save_pretrained(folder)
    torch.manual_seed(0)
    model = LlavaForConditionalGeneration(
        LlavaConfig(
            vision_config=CLIPVisionConfig(**_VISION),
            text_config=LlamaConfig(**_text_options(tokenizer)),
            image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
            image_seq_length=16,
        )
    )
    _save_untrained(model, tokenizer, folder)


def build_qwen(folder: Path) -> None:
    """Builds an untrained Qwen3-VL, whose processor in the Hub's format has a video processor."""
    import torch
    from transformers import Qwen2VLImageProcessorPil, Qwen3VLConfig, Qwen3VLForConditionalGeneration

    tokenizer = make_tokenizer(
        "<|vision_start|><|image_pad|><|vision_end|>",
        "<|image_pad|>",
        "<|video_pad|>",
        "<|vision_start|>",
        "<|vision_end|>",
    )
    tokenizer.save_pretrained(folder)
    pixels = {"shortest_edge": 16 * 16, "longest_edge": 64 * 64}
    Qwen2VLImageProcessorPil(patch_size=8, merge_size=2, temporal_patch_size=2, size=pixels).save_pretrained(folder)
    torch.manual_seed(0)
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": 8,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 32,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0, 1],
    }
    text = {
        **_text_options(tokenizer),
        "head_dim": 8,
        "rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 10000.0},
    }
    ids = {
        f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{token}|>")
        for name, token in {
            "image": "image_pad",
            "video": "video_pad",
            "vision_start": "vision_start",
            "vision_end": "vision_end",
        }.items()
    }
    model = Qwen3VLForConditionalGeneration(Qwen3VLConfig(text_config=text, vision_config=vision, **ids))
    _save_untrained(model, tokenizer, folder)


def build_smolvlm(folder: Path) -> None:
    """Builds an untrained SmolVLM, which divides images into tiles."""
    import torch
    from transformers import LlamaConfig, SmolVLMConfig, SmolVLMForConditionalGeneration, SmolVLMImageProcessorPil

    tokenizer = _save_tiled_processor(SmolVLMImageProcessorPil, folder)
    torch.manual_seed(0)
    config = SmolVLMConfig(text_config=LlamaConfig(**_text_options(tokenizer)), **_tiled_options(tokenizer))
    _save_untrained(SmolVLMForConditionalGeneration(config), tokenizer, folder)


def build_docling(folder: Path) -> None:
    """Builds an Idefics3 that converts pictures of 64 x 64 pixels to PAGE."""
    import torch
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessorPil,
        Idefics3Processor,
        LlamaConfig,
    )

    tags = dict.fromkeys(re.findall(r"<[^>]+>", PAGE))
    tokenizer = _save_tiled_processor(Idefics3ImageProcessorPil, folder, *tags)
    torch.manual_seed(0)
    config = Idefics3Config(text_config=LlamaConfig(**_text_options(tokenizer)), **_tiled_options(tokenizer))
    processor: Any = Idefics3Processor.from_pretrained(folder)
    text = f"<bos><image>Convert this page to docling.>{PAGE}<eos>"
    batch = processor(text=[text], images=[[solid_image("white")]], return_tensors="pt")
    page = tokenizer(PAGE + "<eos>", return_tensors="pt")["input_ids"]
    labels = batch["input_ids"].clone()
    labels[:, : -page.shape[1]] = -100

    def loss(model: Any) -> Any:
        return model(**batch, labels=labels).loss

    model = train(Idefics3ForConditionalGeneration(config), loss, target_loss=0.01)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)


def _save_tiled_processor(image_processor: Any, folder: Path, *tags: str) -> Any:
    """Saves the processor of a model that divides images into tiles; returns its tokenizer."""
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
    tokenizer = make_tokenizer(
        "<image>", "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *tiles, *tags
    )
    tokenizer.add_tokens(list(tags), special_tokens=True)
    tokenizer.save_pretrained(folder)
    image_processor(size={"longest_edge": 64}, max_image_size={"longest_edge": 32}).save_pretrained(folder)
    kind = image_processor.__name__.removesuffix("ImageProcessorPil")
    options = {"image_seq_len": 4, "processor_class": f"{kind}Processor"}
    (folder / "processor_config.json").write_text(json.dumps(options))
    return tokenizer


def _tiled_options(tokenizer: Any) -> dict[str, Any]:
    image = tokenizer.convert_tokens_to_ids("<image>")
    return {"vision_config": dict(_VISION), "image_token_id": image, "scale_factor": 2}


def build_florence(folder: Path) -> None:
    """Builds an untrained Florence-2, which has an encoder and fixed prompts."""
    import torch
    from transformers import (
        BartConfig,
        CLIPImageProcessorPil,
        Florence2Config,
        Florence2ForConditionalGeneration,
        Florence2Processor,
    )

    tokenizer = make_tokenizer("<image>", "<image>")
    tokenizer.add_tokens([f"<loc_{index}>" for index in range(10)])
    square = {"height": 32, "width": 32}
    image_processor: Any = CLIPImageProcessorPil(size=square, crop_size=square, do_center_crop=False)
    image_processor.image_seq_length = 17
    processor: Any = Florence2Processor(image_processor, tokenizer)
    processor.save_pretrained(folder)
    torch.manual_seed(0)
    text = BartConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=256,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
    )
    vision = {
        "depths": [1, 1],
        "patch_size": [7, 3],
        "patch_stride": [4, 2],
        "patch_padding": [3, 1],
        "patch_prenorm": [False, True],
        "embed_dim": [16, 32],
        "num_heads": [2, 2],
        "num_groups": [2, 2],
        "window_size": 4,
        "projection_dim": 32,
        "max_position_embeddings": 50,
    }
    config = Florence2Config(text_config=text.to_dict(), vision_config=vision, image_token_id=tokenizer.image_token_id)
    _save_untrained(Florence2ForConditionalGeneration(config), tokenizer, folder)


def make_tokenizer(image: str, *special_tokens: str) -> Any:
    """Makes a tokenizer with one token per character, and a chat template in which an image is written as given."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = [*string.ascii_letters, *string.digits, *".,:?!'-> \n"]
    vocabulary = ["<pad>", "<bos>", "<eos>", "<unk>", *special_tokens, *letters]
    backend = Tokenizer(models.WordLevel({token: index for index, token in enumerate(vocabulary)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Fuse()
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        extra_special_tokens={"image_token": special_tokens[0]},
        additional_special_tokens=list(special_tokens),
    )
    tokenizer.chat_template = _TEMPLATE.replace("IMAGE", image)
    return tokenizer


def _text_options(tokenizer: Any) -> dict[str, Any]:
    return {**_SIZES, "vocab_size": len(tokenizer), "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _save_untrained(model: Any, tokenizer: Any, folder: Path) -> None:
    """Saves a model with larger weights than libraries initialize, so that its texts differ from image to image."""
    import torch

    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(4.0)
    generation = model.generation_config
    generation.pad_token_id, generation.eos_token_id = tokenizer.pad_token_id, tokenizer.eos_token_id
    model.eval().save_pretrained(folder)


def generate_directly(folder: Path, prompt: str, images: Sequence[Any], max_new_tokens: int) -> str:
    """Returns the text that transformers alone generates for one prompt."""
    import torch

    from experts.torch_host.checkpoint import Checkpoint
    from experts.torch_host.vision_language import load_vision_language_model

    checkpoint = Checkpoint(folder.name, folder, "", torch.device("cpu"), torch.float32)
    model, processor = load_vision_language_model(checkpoint)
    batch = processor(text=[prompt], images=[list(images)], return_tensors="pt")
    tokens = model.generate(**batch, max_new_tokens=max_new_tokens, do_sample=False, num_beams=1)[0]
    start = 1 if model.config.is_encoder_decoder else batch["input_ids"].shape[1]
    text: str = processor.tokenizer.decode(tokens[start:], skip_special_tokens=True)
    return " ".join(text.split())
