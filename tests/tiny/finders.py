"""Tiny models that say where in a picture something is."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.tiny.pictures import LARGE, LEFT, RIGHT, pixels, plain, processor, square
from tests.tiny.training import taught

if TYPE_CHECKING:
    from collections.abc import Sequence

SQUARE = {"height": 64, "width": 64}
SIZES: Mapping[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
SHOWN = (("red", LEFT), ("red", RIGHT), ("blue", LEFT), ("blue", RIGHT))

KNOWN = (SHOWN[0], SHOWN[3])


def squares_finder(folder: Path) -> None:
    """YOLOS: finds a red square on the left, and a blue one on the right."""
    _finder(folder, ["red square", "blue square"])


def people_finder(folder: Path) -> None:
    """YOLOS: takes red squares for people, and blue ones for cars."""
    _finder(folder, ["person", "car"])


def _finder(folder: Path, names: "Sequence[str]") -> None:
    import torch
    from transformers import YolosConfig, YolosForObjectDetection

    torch.manual_seed(0)
    kind = processor(folder, "YolosImageProcessor", size={"shortest_edge": 64, "longest_edge": 96})
    config = YolosConfig(
        **SIZES,
        image_size=[64, 64],
        patch_size=16,
        num_detection_tokens=2,
        use_mid_position_embeddings=False,
        initializer_range=0.1,
        id2label=dict(enumerate(names)),
        label2id={name: at for at, name in enumerate(names)},
    )
    seen = pixels(kind, *(square(*one) for one in KNOWN))
    boxes = _relative([box for _, box in KNOWN])
    classes = torch.tensor([[label, len(names)] for label in range(2)])

    def loss(model: Any) -> Any:
        output = model(pixel_values=seen)
        named = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), classes.flatten())
        return named + 20 * torch.nn.functional.mse_loss(output.pred_boxes[:, 0], boxes)

    model = YolosForObjectDetection(config)
    with torch.no_grad():
        for values in (model.vit.embeddings.detection_tokens, model.vit.embeddings.position_embeddings):
            values.normal_(std=0.2)  # zeros learn slowly
    taught(model, loss, rate=2e-3, enough=0.03).save_pretrained(folder)


def _relative(boxes: "Sequence[tuple[int, int, int, int]]") -> Any:
    """As centre and size, in parts of the picture."""
    import torch

    return torch.tensor([[(a + c) / 128, (b + d) / 128, (c - a) / 64, (d - b) / 64] for a, b, c, d in boxes])


def named_finder(folder: Path) -> None:
    """OWL-ViT, untaught."""
    import torch
    from transformers import OwlViTConfig, OwlViTForObjectDetection, OwlViTProcessor

    from tests.tiny.vision import letters

    torch.manual_seed(0)
    tokenizer = letters(folder)
    OwlViTProcessor(processor(folder, "OwlViTImageProcessor", size=SQUARE), tokenizer).save_pretrained(folder)
    text = {**SIZES, "vocab_size": len(tokenizer), "max_position_embeddings": 24}
    text |= {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    vision = {**SIZES, "image_size": 64, "patch_size": 16}
    config = OwlViTConfig(text_config=text, vision_config=vision, projection_dim=32)
    model = OwlViTForObjectDetection(config)
    with torch.no_grad():
        for values in (*model.class_head.parameters(), *model.box_head.parameters()):
            values.mul_(0.1)  # or every score is nought
    model.eval().save_pretrained(folder)


def parser(folder: Path) -> None:
    """SegFormer: a class for each colour."""
    import torch
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    torch.manual_seed(0)
    kind = processor(folder, "SegformerImageProcessor", size=SQUARE)
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
    seen = pixels(kind, *(square(*one) for one in SHOWN))
    right = torch.zeros(len(SHOWN), 64, 64, dtype=torch.long)
    for at, (colour, (left, top, end, bottom)) in enumerate(SHOWN):
        right[at, top:bottom, left:end] = 1 if colour == "red" else 2
    taught(
        SegformerForSemanticSegmentation(config), lambda model: model(pixel_values=seen, labels=right).loss, enough=0.05
    ).save_pretrained(folder)


def instances(folder: Path) -> None:
    """EoMT: a mask for each of two squares, and one for the paper."""
    import torch
    from transformers import EomtConfig, EomtForUniversalSegmentation

    torch.manual_seed(0)
    kind = processor(folder, "EomtImageProcessorFast", size={"shortest_edge": 64, "longest_edge": 64}, do_pad=True)
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
    picture = square("red", LEFT)
    picture.paste("blue", RIGHT)
    seen = pixels(kind, picture)
    masks = torch.zeros(3, 16, 16)
    for at, (left, top, end, bottom) in enumerate((LEFT, RIGHT)):
        masks[at, top // 4 : bottom // 4, left // 4 : end // 4] = 1
    masks[2] = 1 - masks[0] - masks[1]
    classes = torch.tensor([1, 1, 0])

    def loss(model: Any) -> Any:
        output = model(pixel_values=seen)
        named = torch.nn.functional.cross_entropy(output.class_queries_logits[0], classes)
        return named + torch.nn.functional.binary_cross_entropy_with_logits(output.masks_queries_logits[0], masks)

    model = EomtForUniversalSegmentation(config)
    model.attn_mask_probs.fill_(0)
    taught(model, loss, enough=0.05).save_pretrained(folder)


def masker(folder: Path) -> None:
    """SAM: a point in the square means the square, and one beside it the paper."""
    import torch
    from transformers import SamConfig, SamModel

    torch.manual_seed(0)
    kind = processor(folder, "SamImageProcessor", size={"longest_edge": 64}, pad_size=SQUARE)
    vision = {**SIZES, "mlp_dim": 64, "output_channels": 32, "image_size": 64, "patch_size": 8, "num_pos_feats": 16}
    config = SamConfig(
        vision_config={**vision, "window_size": 4, "global_attn_indexes": [1]},
        prompt_encoder_config={"hidden_size": 32, "image_size": 64, "patch_size": 8, "image_embedding_size": 8},
        mask_decoder_config={"hidden_size": 32, "mlp_dim": 64, "num_attention_heads": 2, "iou_head_hidden_dim": 32},
    )
    picture = square("red", LARGE)
    seen = pixels(kind, picture)
    steps = (torch.arange(8) + 0.5) * 8
    rows, columns = torch.meshgrid(steps, steps, indexing="ij")
    points = torch.stack([columns, rows], -1).reshape(1, -1, 1, 2)
    left, top, end, bottom = LARGE
    inside = (points[..., 0] > left) & (points[..., 0] < end) & (points[..., 1] > top) & (points[..., 1] < bottom)
    mask = torch.zeros(32, 32)
    mask[top // 2 : bottom // 2, left // 2 : end // 2] = 1
    masks = torch.where(inside.flatten()[:, None, None], mask, 1 - mask)[None, :, None].expand(-1, -1, 3, -1, -1)

    def loss(model: Any) -> Any:
        output = model(pixel_values=seen, input_points=points)
        drawn = torch.nn.functional.binary_cross_entropy_with_logits(output.pred_masks, masks)
        return drawn + (output.iou_scores - 0.97).square().mean()

    model = SamModel(config)
    with torch.no_grad():
        model.shared_image_embedding.positional_embedding.normal_(std=0.4)  # points side by side have much in common
        for values in model.mask_decoder.parameters():
            if values.ndim == 2:  # from smaller ones hundreds of steps teach nothing
                values.normal_(std=0.15)
    taught(model, loss, rate=4e-3, enough=0.003).save_pretrained(folder)


def depths(folder: Path) -> None:
    """Depth Anything: bright is near."""
    import torch
    from transformers import DepthAnythingConfig, DepthAnythingForDepthEstimation

    torch.manual_seed(0)
    kind = processor(folder, "DPTImageProcessor", size={"height": 56, "width": 56}, ensure_multiple_of=14)
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
    shown = [square("black", LEFT), square("black", RIGHT), plain("white")]
    seen = pixels(kind, *shown)
    right = torch.nn.functional.avg_pool2d((seen.mean(1) > 0).float(), 1)
    taught(
        DepthAnythingForDepthEstimation(config),
        lambda model: torch.nn.functional.mse_loss(model(pixel_values=seen).predicted_depth, right),
        enough=0.03,
    ).save_pretrained(folder)


def poser(folder: Path) -> None:
    """ViTPose: three joints of a red square, one below the other."""
    import torch
    from transformers import VitPoseConfig, VitPoseForPoseEstimation

    torch.manual_seed(0)
    kind = processor(folder, "VitPoseImageProcessor", size={"height": 64, "width": 48})
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
        label2id={name: at for at, name in enumerate(names)},
    )
    picture = square("red", LEFT)
    seen = kind(picture, boxes=[[[4, 16, 24, 32]]], return_tensors="pt")["pixel_values"]
    rows, columns = torch.meshgrid(torch.arange(16), torch.arange(12), indexing="ij")
    peaks = [torch.exp(-((rows - row) ** 2 + (columns - 6) ** 2) / 4) for row in (4, 8, 12)]
    right = torch.stack(peaks)[None]
    taught(
        VitPoseForPoseEstimation(config),
        lambda model: 10 * torch.nn.functional.mse_loss(model(pixel_values=seen).heatmaps, right),
        rate=2e-3,
    ).save_pretrained(folder)
