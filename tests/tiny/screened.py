"""What tiny pipelines show when they are asked directly, without an expert."""

import io
from pathlib import Path
from typing import Any


def directed(folder: Path, text: str) -> Any:
    """Three frames in two steps of seed 5, as floats."""
    import torch
    from diffusers import TextToVideoSDPipeline

    pipeline = TextToVideoSDPipeline.from_pretrained(folder)
    generator = torch.Generator().manual_seed(5)
    made = pipeline(text, num_frames=3, num_inference_steps=2, generator=generator, output_type="np")
    return made.frames[0]


def animated(folder: Path, picture: bytes) -> Any:
    """The same of a picture of 64 x 64 dots."""
    import torch
    from diffusers import StableVideoDiffusionPipeline
    from PIL import Image

    pipeline = StableVideoDiffusionPipeline.from_pretrained(folder)
    generator = torch.Generator().manual_seed(5)
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    sizes = {"num_frames": 3, "num_inference_steps": 2, "height": 64, "width": 64}
    return pipeline(image, generator=generator, output_type="np", **sizes).frames[0]
