"""Tiny video pipelines, whose output is deterministic noise."""

from pathlib import Path
from typing import Any


def build_text_to_video(folder: Path) -> None:
    """Builds a text-to-video pipeline with a 3D UNet."""
    import torch
    from diffusers import AutoencoderKL, DDIMScheduler, TextToVideoSDPipeline, UNet3DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    torch.manual_seed(0)
    unet = UNet3DConditionModel(
        sample_size=8,
        cross_attention_dim=16,
        attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
        up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
    )
    vae = AutoencoderKL(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=4,
    )
    words = ("<|startoftext|>", "<|endoftext|>", "a</w>", "panda</w>", "surfing</w>")
    tokenizer = CLIPTokenizer(vocab={word: index for index, word in enumerate(words)}, merges=[], model_max_length=16)
    config = CLIPTextConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=16,
        projection_dim=16,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    scheduler = DDIMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False)
    pipeline: Any = TextToVideoSDPipeline(
        vae=vae, text_encoder=CLIPTextModel(config), tokenizer=tokenizer, unet=unet, scheduler=scheduler
    )
    pipeline.save_pretrained(folder)


def build_wan(folder: Path) -> None:
    """Builds a Wan 2.2 for texts and pictures."""
    import torch
    from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanPipeline, WanTransformer3DModel
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, UMT5Config, UMT5EncoderModel

    tokens = ["<pad>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz "]
    backend = Tokenizer(models.WordLevel({token: index for index, token in enumerate(tokens)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
    )
    torch.manual_seed(0)
    text = UMT5Config(vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    transformer = WanTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=48,
        out_channels=48,
        text_dim=16,
        freq_dim=16,
        ffn_dim=32,
        num_layers=1,
        rope_max_seq_len=32,
    )
    vae = AutoencoderKLWan(
        base_dim=4,
        decoder_base_dim=4,
        z_dim=48,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
        latents_mean=[0.0] * 48,
        latents_std=[1.0] * 48,
        is_residual=True,
        in_channels=12,
        out_channels=12,
        patch_size=2,
        scale_factor_spatial=16,
        scale_factor_temporal=4,
    )
    pipeline: Any = WanPipeline(
        tokenizer=tokenizer,
        text_encoder=UMT5EncoderModel(text),
        vae=vae,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=7.0),
        transformer=transformer,
        expand_timesteps=True,
    )
    pipeline.save_pretrained(folder)


def build_image_to_video(folder: Path) -> None:
    """Builds a Stable Video Diffusion pipeline, whose image encoder has an input of 224 pixels."""
    import torch
    from diffusers import (
        AutoencoderKLTemporalDecoder,
        EulerDiscreteScheduler,
        StableVideoDiffusionPipeline,
        UNetSpatioTemporalConditionModel,
    )
    from transformers import CLIPImageProcessorPil, CLIPVisionConfig, CLIPVisionModelWithProjection

    torch.manual_seed(0)
    unet = UNetSpatioTemporalConditionModel(
        sample_size=32,
        block_out_channels=(32, 64),
        layers_per_block=1,
        num_attention_heads=4,
        down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
        up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
        cross_attention_dim=16,
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=24,
        num_frames=4,
    )
    vae = AutoencoderKLTemporalDecoder(block_out_channels=(32, 32), down_block_types=("DownEncoderBlock2D",) * 2)
    config = CLIPVisionConfig(
        hidden_size=16,
        projection_dim=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=224,
        patch_size=32,
    )
    pipeline: Any = StableVideoDiffusionPipeline(
        vae=vae,
        image_encoder=CLIPVisionModelWithProjection(config),
        unet=unet,
        scheduler=EulerDiscreteScheduler(prediction_type="v_prediction", use_karras_sigmas=True, sigma_max=700.0),
        feature_extractor=CLIPImageProcessorPil(),
    )
    pipeline.save_pretrained(folder)
