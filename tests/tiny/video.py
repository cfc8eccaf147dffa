"""Tiny models that watch videos and make them; the registry of all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.tiny import Model
from tests.tiny.directors import animator, director
from tests.tiny.films import BLUE, RED, plain
from tests.tiny.training import taught

LABELS = ("red", "blue", "turning blue", "turning red")
CAPTION = "a red wall"

_FRAMES = 4


def lessons() -> list[list[Any]]:
    """One clip for each label, in order."""
    red, blue = plain(RED, 32, 32), plain(BLUE, 32, 32)
    return [[red] * 4, [blue] * 4, [red, red, blue, blue], [blue, blue, red, red]]


def watcher(folder: Path) -> None:
    """VideoMAE, which has learnt to tell what becomes of a colour."""
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
        label2id={name: at for at, name in enumerate(LABELS)},
    )
    pixels = processor(lessons(), return_tensors="pt")["pixel_values"]
    labels = torch.arange(len(LABELS))
    model = VideoMAEForVideoClassification(config)

    def loss(model: Any) -> Any:
        return model(pixel_values=pixels, labels=labels).loss

    taught(model, loss, rate=2e-3, enough=0.1).save_pretrained(folder)


def describer(folder: Path) -> None:
    """GIT, which has learnt to say one thing of red and another of blue."""
    import torch
    from transformers import (
        BertTokenizer,
        CLIPImageProcessorPil,
        GitConfig,
        GitForCausalLM,
        GitProcessor,
    )

    words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "red", "blue", "wall", "sky")
    tokenizer = BertTokenizer(vocab={word: at for at, word in enumerate(words)}, model_max_length=24)
    images = CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    GitProcessor(images, tokenizer).save_pretrained(folder)
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
    frames = [[plain(RED, 32, 32)] * _FRAMES, [plain(BLUE, 32, 32)] * _FRAMES]
    pixels = torch.stack([images(clip, return_tensors="pt")["pixel_values"] for clip in frames])
    ids = tokenizer([CAPTION, "a blue sky"], return_tensors="pt")["input_ids"]
    model = GitForCausalLM(config)

    def loss(model: Any) -> Any:
        logits = model(input_ids=ids, pixel_values=pixels).logits[:, -ids.shape[1] : -1]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    taught(model, loss).save_pretrained(folder)


MODELS: Mapping[str, Model] = {
    "tiny/videomae": Model(("video-classification",), watcher),
    "tiny/git-of-films": Model(("video-to-text",), describer),
    "tiny/director": Model(("text-to-video",), director),
    "tiny/animator": Model(("image-to-video",), animator),
}
