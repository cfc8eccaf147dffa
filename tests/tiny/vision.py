"""Tiny vision models for classification and features, and the registry of all tiny vision models."""

import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.tiny import TinyModel
from tests.tiny.image_detection import (
    build_depth_anything,
    build_eomt,
    build_owl_vit,
    build_person_detector,
    build_sam,
    build_sam2,
    build_segformer,
    build_square_detector,
    build_vit_pose,
)
from tests.tiny.image_files import COLOURS, preprocess, save_processor, solid_image
from tests.tiny.image_text import build_blip_captioning, build_blip_vqa, build_donut, build_git, build_trocr, build_vilt
from tests.tiny.training import train
from tests.tiny.vision_language import build_docling, build_florence, build_llava, build_qwen, build_smolvlm

SMALL: Mapping[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
SQUARE = {"height": 32, "width": 32}


def label_config(names: Sequence[str]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}


def build_vit(folder: Path) -> None:
    """Builds a ViT that classifies red, green and blue."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    pixels = preprocess(save_processor(folder, "ViTImageProcessor", size=SQUARE), *map(solid_image, COLOURS))
    model = ViTForImageClassification(ViTConfig(**SMALL, **label_config(COLOURS)))
    targets = torch.arange(len(COLOURS))
    train(model, lambda model: model(pixel_values=pixels, labels=targets).loss).save_pretrained(folder)


def build_clip(folder: Path) -> None:
    """Builds a CLIP that matches pictures with colour names."""
    import torch
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(0)
    tokenizer = save_clip_tokenizer(folder)
    sizes = {**SMALL, "projection_dim": 16}
    text = {**sizes, "vocab_size": len(tokenizer), "max_position_embeddings": 77, "image_size": None}
    tokens = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.bos_token_id, "pad_token_id": 1}
    config = CLIPConfig(text_config=text | tokens, vision_config=sizes, projection_dim=16)
    crop = {"size": {"shortest_edge": 32}, "crop_size": SQUARE}
    pixels = preprocess(save_processor(folder, "CLIPImageProcessor", **crop), *map(solid_image, COLOURS))
    text_tokens = tokenizer([f"This is a photo of {colour}." for colour in COLOURS], padding=True, return_tensors="pt")
    targets = torch.arange(len(COLOURS))
    train(
        CLIPModel(config),
        lambda model: torch.nn.functional.cross_entropy(
            model(pixel_values=pixels, **text_tokens).logits_per_image, targets
        ),
    ).save_pretrained(folder)


def save_clip_tokenizer(folder: Path) -> Any:
    """Saves CLIP's tokenizer with one token per letter, and returns it."""
    from transformers import CLIPTokenizer

    characters = string.ascii_lowercase + string.digits + string.punctuation
    vocabulary = [*characters, *(f"{letter}</w>" for letter in characters), "<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer(
        vocab={word: index for index, word in enumerate(vocabulary)}, merges=[], model_max_length=77
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def build_siglip(folder: Path) -> None:
    """Builds a SigLIP that matches pictures with colour names, with a tokenizer of sentencepiece."""
    import torch
    from transformers import SiglipConfig, SiglipModel

    torch.manual_seed(0)
    tokenizer = _save_siglip_tokenizer(folder)
    text = {
        **SMALL,
        "vocab_size": tokenizer.vocab_size,
        "max_position_embeddings": 64,
        "projection_size": 32,
        "bos_token_id": None,
        "eos_token_id": 2,
    }
    config = SiglipConfig(text_config=text, vision_config=dict(SMALL))
    pixels = preprocess(save_processor(folder, "SiglipImageProcessor", size=SQUARE), *map(solid_image, COLOURS))
    phrases = [f"This is a photo of {colour}." for colour in COLOURS]
    text_tokens = tokenizer(phrases, padding="max_length", max_length=64, return_tensors="pt")
    targets = torch.eye(len(COLOURS))
    train(
        SiglipModel(config),
        lambda model: torch.nn.functional.binary_cross_entropy_with_logits(
            model(pixel_values=pixels, **text_tokens).logits_per_image, targets
        ),
    ).save_pretrained(folder)


def _save_siglip_tokenizer(folder: Path) -> Any:
    import io

    import sentencepiece
    from transformers import SiglipTokenizer

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([f"this is a photo of {colour} {string.ascii_lowercase}" for colour in COLOURS] * 9),
        model_writer=model,
        vocab_size=40,
        pad_id=1,
        eos_id=2,
        unk_id=0,
        bos_id=-1,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (folder / "spiece.model").write_bytes(model.getvalue())
    tokenizer: Any = SiglipTokenizer(str(folder / "spiece.model"), model_max_length=64)
    tokenizer.save_pretrained(folder)
    return tokenizer


def build_dinov2(folder: Path) -> None:
    """Builds an untrained DINOv2: equal pictures have equal vectors."""
    import torch
    from transformers import Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    save_processor(folder, "BitImageProcessor", size={"shortest_edge": 32}, crop_size=SQUARE)
    sizes = {name: value for name, value in SMALL.items() if name != "intermediate_size"}
    Dinov2Model(Dinov2Config(**sizes)).eval().save_pretrained(folder)


_PROMPTED = ("image-to-text", "visual-question-answering", "document-question-answering")
"""Tasks of models that follow prompts; Florence-2 refuses questions."""

MODELS: Mapping[str, TinyModel] = {
    "tiny/vit": TinyModel(("image-classification",), build_vit),
    "tiny/clip": TinyModel(("zero-shot-image-classification", "image-feature-extraction"), build_clip),
    "tiny/siglip": TinyModel(("zero-shot-image-classification",), build_siglip),
    "tiny/yolos": TinyModel(("object-detection",), build_square_detector),
    "PekingU/rtdetr_r18vd_coco_o365": TinyModel(("object-detection",), build_person_detector),
    "tiny/owl": TinyModel(("zero-shot-object-detection",), build_owl_vit),
    "tiny/segformer": TinyModel(("image-segmentation",), build_segformer),
    "tiny/eomt": TinyModel(("image-segmentation",), build_eomt),
    "tiny/sam": TinyModel(("mask-generation",), build_sam),
    "tiny/sam2": TinyModel(("mask-generation",), build_sam2),
    "tiny/depth": TinyModel(("depth-estimation",), build_depth_anything),
    "tiny/blip": TinyModel(("image-to-text",), build_blip_captioning),
    "tiny/git": TinyModel(("image-to-text",), build_git),
    "tiny/trocr": TinyModel(("image-to-text",), build_trocr),
    "tiny/vilt": TinyModel(("visual-question-answering",), build_vilt),
    "tiny/blip-vqa": TinyModel(("visual-question-answering",), build_blip_vqa),
    "tiny/donut": TinyModel(("document-question-answering",), build_donut),
    "tiny/llava": TinyModel(_PROMPTED, build_llava),
    "tiny/qwen-vl": TinyModel(_PROMPTED, build_qwen),
    "tiny/smolvlm": TinyModel(_PROMPTED, build_smolvlm),
    "tiny/docling": TinyModel(("image-to-text",), build_docling),
    "tiny/florence": TinyModel(_PROMPTED, build_florence),
    "tiny/dinov2": TinyModel(("image-feature-extraction",), build_dinov2),
    "tiny/vitpose": TinyModel(("keypoint-detection",), build_vit_pose),
}
