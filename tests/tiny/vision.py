"""Tiny models of pictures: those that name; the registry of all."""

import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.tiny import Model
from tests.tiny.finders import depths, instances, masker, named_finder, parser, people_finder, poser, squares_finder
from tests.tiny.pictures import COLOURS, pixels, plain, processor
from tests.tiny.tellers import captioner, chooser, document_reader, git, reader, teller
from tests.tiny.training import taught

SMALL: Mapping[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
SQUARE = {"height": 32, "width": 32}


def labels(names: Sequence[str]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: at for at, name in enumerate(names)}}


def classifier(folder: Path) -> None:
    """Tells red from green from blue."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    seen = pixels(processor(folder, "ViTImageProcessor", size=SQUARE), *map(plain, COLOURS))
    model = ViTForImageClassification(ViTConfig(**SMALL, **labels(COLOURS)))
    right = torch.arange(len(COLOURS))
    taught(model, lambda model: model(pixel_values=seen, labels=right).loss).save_pretrained(folder)


def clip(folder: Path) -> None:
    """Knows which colour a phrase names."""
    import torch
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(0)
    tokenizer = letters(folder)
    sizes = {**SMALL, "projection_dim": 16}
    text = {**sizes, "vocab_size": len(tokenizer), "max_position_embeddings": 77, "image_size": None}
    tokens = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.bos_token_id, "pad_token_id": 1}
    config = CLIPConfig(text_config=text | tokens, vision_config=sizes, projection_dim=16)
    crop = {"size": {"shortest_edge": 32}, "crop_size": SQUARE}
    seen = pixels(processor(folder, "CLIPImageProcessor", **crop), *map(plain, COLOURS))
    said = tokenizer([f"This is a photo of {colour}." for colour in COLOURS], padding=True, return_tensors="pt")
    right = torch.arange(len(COLOURS))
    taught(
        CLIPModel(config),
        lambda model: torch.nn.functional.cross_entropy(model(pixel_values=seen, **said).logits_per_image, right),
    ).save_pretrained(folder)


def letters(folder: Path) -> Any:
    """CLIP's tokenizer with nothing merged: a token for each letter."""
    from transformers import CLIPTokenizer

    known = string.ascii_lowercase + string.digits + string.punctuation
    vocabulary = [*known, *(f"{letter}</w>" for letter in known), "<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer(vocab={word: at for at, word in enumerate(vocabulary)}, merges=[], model_max_length=77)
    tokenizer.save_pretrained(folder)
    return tokenizer


def beholder(folder: Path) -> None:
    """Untaught: equal pictures have equal vectors."""
    import torch
    from transformers import Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    processor(folder, "BitImageProcessor", size={"shortest_edge": 32}, crop_size=SQUARE)
    sizes = {name: value for name, value in SMALL.items() if name != "intermediate_size"}
    Dinov2Model(Dinov2Config(**sizes)).eval().save_pretrained(folder)


MODELS: Mapping[str, Model] = {
    "tiny/vit": Model(("image-classification",), classifier),
    "tiny/clip": Model(("zero-shot-image-classification", "image-feature-extraction"), clip),
    "tiny/yolos": Model(("object-detection",), squares_finder),
    "PekingU/rtdetr_r18vd_coco_o365": Model(("object-detection",), people_finder),
    "tiny/owl": Model(("zero-shot-object-detection",), named_finder),
    "tiny/segformer": Model(("image-segmentation",), parser),
    "tiny/eomt": Model(("image-segmentation",), instances),
    "tiny/sam": Model(("mask-generation",), masker),
    "tiny/depth": Model(("depth-estimation",), depths),
    "tiny/blip": Model(("image-to-text",), captioner),
    "tiny/git": Model(("image-to-text",), git),
    "tiny/trocr": Model(("image-to-text",), reader),
    "tiny/vilt": Model(("visual-question-answering",), chooser),
    "tiny/blip-vqa": Model(("visual-question-answering",), teller),
    "tiny/donut": Model(("document-question-answering",), document_reader),
    "tiny/dinov2": Model(("image-feature-extraction",), beholder),
    "tiny/vitpose": Model(("keypoint-detection",), poser),
}
