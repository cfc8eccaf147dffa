"""Reference frames of the tiny video pipelines, called directly."""

import io
from pathlib import Path
from typing import Any


def generate_from_text(folder: Path, text: str) -> Any:
    """Returns three frames, generated in two steps with seed 5, as floats."""
    import torch
    from diffusers import TextToVideoSDPipeline

    pipeline = TextToVideoSDPipeline.from_pretrained(folder)
    generator = torch.Generator().manual_seed(5)
    output = pipeline(text, num_frames=3, num_inference_steps=2, generator=generator, output_type="np")
    return output.frames[0]


def generate_from_image(folder: Path, picture: bytes) -> Any:
    """Like generate_from_text, from a picture of 64 x 64 pixels."""
    import torch
    from diffusers import StableVideoDiffusionPipeline
    from PIL import Image

    pipeline = StableVideoDiffusionPipeline.from_pretrained(folder)
    generator = torch.Generator().manual_seed(5)
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    sizes = {"num_frames": 3, "num_inference_steps": 2, "height": 64, "width": 64}
    return pipeline(image, generator=generator, output_type="np", **sizes).frames[0]
