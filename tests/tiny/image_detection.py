"""Tiny models for detection, segmentation, masks, depth and poses."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.tiny.image_files import LARGE, LEFT, RIGHT, preprocess, save_processor, solid_image, square_image
from tests.tiny.training import train

if TYPE_CHECKING:
    from collections.abc import Sequence

SQUARE = {"height": 64, "width": 64}
SIZES: Mapping[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
SQUARES = (("red", LEFT), ("red", RIGHT), ("blue", LEFT), ("blue", RIGHT))

DETECTED = (SQUARES[0], SQUARES[3])


def build_square_detector(folder: Path) -> None:
    """Builds a YOLOS that detects a red square on the left, and a blue one on the right."""
    _build_yolos(folder, ["red square", "blue square"])


def build_person_detector(folder: Path) -> None:
    """Builds a YOLOS that detects red squares as people, and blue ones as cars."""
    _build_yolos(folder, ["person", "car"])


def _build_yolos(folder: Path, names: "Sequence[str]") -> None:
    import torch
    from transformers import YolosConfig, YolosForObjectDetection

    torch.manual_seed(0)
    image_processor = save_processor(folder, "YolosImageProcessor", size={"shortest_edge": 64, "longest_edge": 96})
    config = YolosConfig(
        **SIZES,
        image_size=[64, 64],
        patch_size=16,
        num_detection_tokens=2,
        use_mid_position_embeddings=False,
        initializer_range=0.1,
        id2label=dict(enumerate(names)),
        label2id={name: index for index, name in enumerate(names)},
    )
    pixels = preprocess(image_processor, *(square_image(*square) for square in DETECTED))
    boxes = _to_relative_boxes([box for _, box in DETECTED])
    classes = torch.tensor([[label, len(names)] for label in range(2)])

    def loss(model: Any) -> Any:
        output = model(pixel_values=pixels)
        class_loss = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), classes.flatten())
        return class_loss + 20 * torch.nn.functional.mse_loss(output.pred_boxes[:, 0], boxes)

    model = YolosForObjectDetection(config)
    with torch.no_grad():
        for values in (model.vit.embeddings.detection_tokens, model.vit.embeddings.position_embeddings):
            values.normal_(std=0.2)  # zeros train slowly
    train(model, loss, learning_rate=2e-3, target_loss=0.03).save_pretrained(folder)


def _to_relative_boxes(boxes: "Sequence[tuple[int, int, int, int]]") -> Any:
    """Returns boxes as centre and size, relative to the picture."""
    import torch

    return torch.tensor([[(a + c) / 128, (b + d) / 128, (c - a) / 64, (d - b) / 64] for a, b, c, d in boxes])


def build_owl_vit(folder: Path) -> None:
    """Builds an untrained OWL-ViT."""
    import torch
    from transformers import OwlViTConfig, OwlViTForObjectDetection, OwlViTProcessor

    from tests.tiny.vision import save_clip_tokenizer

    torch.manual_seed(0)
    tokenizer = save_clip_tokenizer(folder)
    OwlViTProcessor(save_processor(folder, "OwlViTImageProcessor", size=SQUARE), tokenizer).save_pretrained(folder)
    text = {**SIZES, "vocab_size": len(tokenizer), "max_position_embeddings": 24}
    text |= {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    vision = {**SIZES, "image_size": 64, "patch_size": 16}
    config = OwlViTConfig(text_config=text, vision_config=vision, projection_dim=32)
    model = OwlViTForObjectDetection(config)
    with torch.no_grad():
        for values in (*model.class_head.parameters(), *model.box_head.parameters()):
            values.mul_(0.1)  # otherwise every score is 0
    model.eval().save_pretrained(folder)


def build_segformer(folder: Path) -> None:
    """Builds a SegFormer with a class for each colour."""
    import torch
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    torch.manual_seed(0)
    image_processor = save_processor(folder, "SegformerImageProcessor", size=SQUARE)
    config = SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[16, 32],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=32,
        classifier_dropout_prob=0.0,
        drop_path_rate=0.0,
        id2label={0: "paper", 1: "red square", 2: "blue square"},
        label2id={"paper": 0, "red square": 1, "blue square": 2},
    )
    pixels = preprocess(image_processor, *(square_image(*square) for square in SQUARES))
    labels = torch.zeros(len(SQUARES), 64, 64, dtype=torch.long)
    for index, (colour, (left, top, end, bottom)) in enumerate(SQUARES):
        labels[index, top:bottom, left:end] = 1 if colour == "red" else 2
    train(
        SegformerForSemanticSegmentation(config),
        lambda model: model(pixel_values=pixels, labels=labels).loss,
        target_loss=0.05,
    ).save_pretrained(folder)


def build_eomt(folder: Path) -> None:
    """Builds an EoMT with a mask for each of two squares and one for the background."""
    import torch
    from transformers import EomtConfig, EomtForUniversalSegmentation

    torch.manual_seed(0)
    image_processor = save_processor(
        folder, "EomtImageProcessorFast", size={"shortest_edge": 64, "longest_edge": 64}, do_pad=True
    )
    config = EomtConfig(
        **SIZES,
        image_size=64,
        patch_size=16,
        num_queries=3,
        num_blocks=1,
        num_register_tokens=1,
        num_upscale_blocks=2,
        id2label={0: "paper", 1: "square"},
        label2id={"paper": 0, "square": 1},
    )
    picture = square_image("red", LEFT)
    picture.paste("blue", RIGHT)
    pixels = preprocess(image_processor, picture)
    masks = torch.zeros(3, 16, 16)
    for index, (left, top, end, bottom) in enumerate((LEFT, RIGHT)):
        masks[index, top // 4 : bottom // 4, left // 4 : end // 4] = 1
    masks[2] = 1 - masks[0] - masks[1]
    classes = torch.tensor([1, 1, 0])

    def loss(model: Any) -> Any:
        output = model(pixel_values=pixels)
        class_loss = torch.nn.functional.cross_entropy(output.class_queries_logits[0], classes)
        return class_loss + torch.nn.functional.binary_cross_entropy_with_logits(output.masks_queries_logits[0], masks)

    model = EomtForUniversalSegmentation(config)
    model.attn_mask_probs.fill_(0)
    train(model, loss, target_loss=0.05).save_pretrained(folder)


def build_sam(folder: Path) -> None:
    """Builds a SAM: a point in the square selects the square, any other point the background."""
    import torch
    from transformers import SamConfig, SamModel

    torch.manual_seed(0)
    image_processor = save_processor(folder, "SamImageProcessor", size={"longest_edge": 64}, pad_size=SQUARE)
    vision = {**SIZES, "mlp_dim": 64, "output_channels": 32, "image_size": 64, "patch_size": 8, "num_pos_feats": 16}
    config = SamConfig(
        vision_config={**vision, "window_size": 4, "global_attn_indexes": [1]},
        prompt_encoder_config={"hidden_size": 32, "image_size": 64, "patch_size": 8, "image_embedding_size": 8},
        mask_decoder_config={"hidden_size": 32, "mlp_dim": 64, "num_attention_heads": 2, "iou_head_hidden_dim": 32},
    )
    pixels = preprocess(image_processor, square_image("red", LARGE))
    _train_masks(SamModel(config), pixels, side=32).save_pretrained(folder)


def build_sam2(folder: Path) -> None:
    """Builds a SAM 2 that selects masks as that of build_sam, in a repository that is also for videos."""
    import torch
    from transformers import Sam2Config, Sam2Model, ViTImageProcessorPil

    torch.manual_seed(0)
    image_processor: Any = ViTImageProcessorPil(size=SQUARE)
    backbone = {
        "model_type": "sam2_hiera_det_model",
        "hidden_size": 16,
        "image_size": [64, 64],
        "blocks_per_stage": [1, 1, 2, 1],
        "embed_dim_per_stage": [16, 32, 48, 64],
        "num_attention_heads_per_stage": [1, 2, 2, 2],
        "window_size_per_stage": [4, 2, 4, 2],
        "window_positional_embedding_background_size": [4, 4],
        "global_attention_blocks": [3],
        "mlp_ratio": 2.0,
    }
    vision = {
        "model_type": "sam2_vision_model",
        "backbone_config": backbone,
        "backbone_channel_list": [64, 48, 32, 16],
        "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
        "fpn_hidden_size": 32,
    }
    config = Sam2Config(
        vision_config=vision,
        prompt_encoder_config={"hidden_size": 32, "image_size": 64, "patch_size": 16},
        mask_decoder_config={"hidden_size": 32, "mlp_dim": 64, "num_attention_heads": 2, "iou_head_hidden_dim": 32},
    )
    pixels = preprocess(image_processor, square_image("red", LARGE))
    _train_masks(Sam2Model(config), pixels, side=16).save_pretrained(folder)
    processor = {**image_processor.to_dict(), "image_processor_type": "Sam2ImageProcessorFast"}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    stored = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**stored, "model_type": "sam2_video"}))


def _train_masks(model: Any, pixels: Any, *, side: int) -> Any:
    """Trains a SAM: a point in the square selects the square, any other point the background.

    Args:
        model: of either version, for pictures of 64 x 64 pixels.
        pixels: of the picture with the square.
        side: of the predicted masks.
    """
    import torch

    steps = (torch.arange(8) + 0.5) * 8
    rows, columns = torch.meshgrid(steps, steps, indexing="ij")
    points = torch.stack([columns, rows], -1).reshape(1, -1, 1, 2)
    left, top, end, bottom = LARGE
    inside = (points[..., 0] > left) & (points[..., 0] < end) & (points[..., 1] > top) & (points[..., 1] < bottom)
    mask, scale = torch.zeros(side, side), 64 // side
    mask[top // scale : bottom // scale, left // scale : end // scale] = 1
    masks = torch.where(inside.flatten()[:, None, None], mask, 1 - mask)[None, :, None].expand(-1, -1, 3, -1, -1)

    def loss(model: Any) -> Any:
        output = model(pixel_values=pixels, input_points=points)
        mask_loss = torch.nn.functional.binary_cross_entropy_with_logits(output.pred_masks, masks)
        return mask_loss + (output.iou_scores - 0.97).square().mean()

    with torch.no_grad():
        model.shared_image_embedding.positional_embedding.normal_(std=0.4)  # adjacent points are similar
        for values in model.mask_decoder.parameters():
            if values.ndim == 2:  # from smaller weights, hundreds of steps have no effect
                values.normal_(std=0.15)
    return train(model, loss, learning_rate=4e-3, target_loss=0.003)


def build_depth_anything(folder: Path) -> None:
    """Builds a Depth Anything that estimates bright pixels as near."""
    import torch
    from transformers import DepthAnythingConfig, DepthAnythingForDepthEstimation

    torch.manual_seed(0)
    image_processor = save_processor(
        folder, "DPTImageProcessor", size={"height": 56, "width": 56}, ensure_multiple_of=14
    )
    backbone = {
        "model_type": "dinov2",
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 56,
        "patch_size": 14,
        "out_indices": [1, 2],
        "apply_layernorm": True,
        "reshape_hidden_states": False,
    }
    config = DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=32,
        reassemble_factors=[2, 1],
        neck_hidden_sizes=[16, 32],
        fusion_hidden_size=16,
        head_hidden_size=8,
    )
    images = [square_image("black", LEFT), square_image("black", RIGHT), solid_image("white")]
    pixels = preprocess(image_processor, *images)
    labels = torch.nn.functional.avg_pool2d((pixels.mean(1) > 0).float(), 1)
    train(
        DepthAnythingForDepthEstimation(config),
        lambda model: torch.nn.functional.mse_loss(model(pixel_values=pixels).predicted_depth, labels),
        target_loss=0.03,
    ).save_pretrained(folder)


def build_vit_pose(folder: Path) -> None:
    """Builds a ViTPose that finds three joints of a red square, one below the other."""
    import torch
    from transformers import VitPoseConfig, VitPoseForPoseEstimation

    torch.manual_seed(0)
    image_processor = save_processor(folder, "VitPoseImageProcessor", size={"height": 64, "width": 48})
    bones: Mapping[str, Any] = {"edges": [[0, 1], [1, 2]]}
    backbone = {
        "model_type": "vitpose_backbone",
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": [64, 48],
        "patch_size": [16, 16],
        "mlp_ratio": 2,
        "out_indices": [2],
    }
    names = ["nose", "neck", "hip"]
    config = VitPoseConfig(
        **bones,
        backbone_config=backbone,
        id2label=dict(enumerate(names)),
        label2id={name: index for index, name in enumerate(names)},
    )
    picture = square_image("red", LEFT)
    pixels = image_processor(picture, boxes=[[[4, 16, 24, 32]]], return_tensors="pt")["pixel_values"]
    rows, columns = torch.meshgrid(torch.arange(16), torch.arange(12), indexing="ij")
    peaks = [torch.exp(-((rows - row) ** 2 + (columns - 6) ** 2) / 4) for row in (4, 8, 12)]
    labels = torch.stack(peaks)[None]
    train(
        VitPoseForPoseEstimation(config),
        lambda model: 10 * torch.nn.functional.mse_loss(model(pixel_values=pixels).heatmaps, labels),
        learning_rate=2e-3,
    ).save_pretrained(folder)
