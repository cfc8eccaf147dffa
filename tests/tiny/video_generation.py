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
