"""Tiny video models for understanding, and the registry of all tiny video models."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.tiny import TinyModel
from tests.tiny.training import train
from tests.tiny.video_files import BLUE, RED, solid_frame
from tests.tiny.video_generation import build_image_to_video, build_text_to_video, build_wan
from tests.tiny.vision_language import build_smolvlm

LABELS = ("red", "blue", "turning blue", "turning red")
CAPTION = "a red wall"

_FRAMES = 4


def make_clips() -> list[list[Any]]:
    """Returns one clip for each label, in order."""
    red, blue = solid_frame(RED, 32, 32), solid_frame(BLUE, 32, 32)
    return [[red] * 4, [blue] * 4, [red, red, blue, blue], [blue, blue, red, red]]


def build_videomae(folder: Path) -> None:
    """Builds a VideoMAE that classifies colours and their changes."""
    import torch
    from transformers import VideoMAEConfig, VideoMAEForVideoClassification, VideoMAEImageProcessorPil

    processor: Any = VideoMAEImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    processor.save_pretrained(folder)
    torch.manual_seed(0)
    config = VideoMAEConfig(
        image_size=16,
        patch_size=8,
        num_frames=_FRAMES,
        tubelet_size=2,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        id2label=dict(enumerate(LABELS)),
        label2id={name: index for index, name in enumerate(LABELS)},
    )
    pixels = processor(make_clips(), return_tensors="pt")["pixel_values"]
    _train_classes(VideoMAEForVideoClassification(config), pixel_values=pixels).save_pretrained(folder)


def build_vjepa2(folder: Path) -> None:
    """Builds a V-JEPA 2 that classifies colours and their changes."""
    import torch
    from transformers import VideoMAEImageProcessorPil, VJEPA2Config, VJEPA2ForVideoClassification

    sizes: Any = {"size": {"shortest_edge": 18}, "crop_size": {"height": 16, "width": 16}}
    (folder / "video_preprocessor_config.json").write_text(
        json.dumps({"video_processor_type": "VJEPA2VideoProcessor", **sizes})
    )
    torch.manual_seed(0)
    config = VJEPA2Config(
        crop_size=16,
        patch_size=8,
        frames_per_clip=_FRAMES,
        tubelet_size=2,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_pooler_layers=1,
        mlp_ratio=1,
        pred_hidden_size=16,
        pred_num_attention_heads=2,
        pred_num_hidden_layers=1,
        id2label=dict(enumerate(LABELS)),
        label2id={name: index for index, name in enumerate(LABELS)},
    )
    processor: Any = VideoMAEImageProcessorPil(**sizes)
    pixels = processor(make_clips(), return_tensors="pt")["pixel_values"]
    _train_classes(VJEPA2ForVideoClassification(config), pixel_values_videos=pixels).save_pretrained(folder)


def _train_classes(model: Any, **pixels: Any) -> Any:
    """Trains a classifier with one clip for each label."""
    import torch

    labels = torch.arange(len(LABELS))

    def loss(model: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(**pixels).logits, labels)

    return train(model, loss, learning_rate=2e-3, target_loss=0.1)


def build_git(folder: Path) -> None:
    """Builds a GIT that describes red and blue videos."""
    import torch
    from transformers import (
        BertTokenizer,
        GitConfig,
        GitForCausalLM,
        GitProcessor,
        VideoMAEImageProcessorPil,
    )

    words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "red", "blue", "wall", "sky")
    tokenizer = BertTokenizer(vocab={word: index for index, word in enumerate(words)}, model_max_length=24)
    image_processor: Any = VideoMAEImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    GitProcessor(image_processor, tokenizer).save_pretrained(folder)
    torch.manual_seed(0)
    sizes: Any = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = GitConfig(
        vision_config={**sizes, "image_size": 16, "patch_size": 8},
        **sizes,
        vocab_size=len(words),
        max_position_embeddings=24,
        num_image_with_embedding=_FRAMES,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
    )
    frames = [[solid_frame(RED, 32, 32)] * _FRAMES, [solid_frame(BLUE, 32, 32)] * _FRAMES]
    pixels = image_processor(frames, return_tensors="pt")["pixel_values"]
    ids = tokenizer([CAPTION, "a blue sky"], return_tensors="pt")["input_ids"]
    model = GitForCausalLM(config)

    def loss(model: Any) -> Any:
        logits = model(input_ids=ids, pixel_values=pixels).logits[:, -ids.shape[1] : -1]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    train(model, loss).save_pretrained(folder)


MODELS: Mapping[str, TinyModel] = {
    "tiny/videomae": TinyModel(("video-classification",), build_videomae),
    "tiny/vjepa2": TinyModel(("video-classification",), build_vjepa2),
    "tiny/git-video": TinyModel(("video-to-text",), build_git),
    "tiny/frames": TinyModel(("video-to-text",), build_smolvlm),
    "tiny/director": TinyModel(("text-to-video",), build_text_to_video),
    "tiny/animator": TinyModel(("image-to-video",), build_image_to_video),
    "tiny/wan": TinyModel(("text-to-video", "image-to-video"), build_wan),
}
