"""The work of each workload without a framework: a function of the contents of files, which returns their results.

Torch runs on one thread: the programs start a process for each core.
"""

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageOps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COLOURS, THUMBNAILS, DOCUMENTS, RECORDINGS = "colours", "thumbnails", "documents", "recordings"

EMBEDDER, TRANSCRIBER = "sentence-transformers/all-MiniLM-L6-v2", "openai/whisper-base"
"""Ids under which the tiny models are stored, in EXPERT_MODELS_URL."""

THUMBNAIL, QUALITY, RATE = (256, 256), 85, 16_000

Result = Mapping[str, str | None]
"""Text or, if a file is broken, an error."""
Work = Callable[[Sequence[bytes]], list[Result]]


def load_work(name: str) -> Work:
    """Loads the models of a workload."""
    return _LOADERS[name]()


def model_folder(model_id: str) -> Path:
    return Path(os.environ["EXPERT_MODELS_URL"]) / model_id


# ---------------------------------------------------------------- pictures


def open_picture(content: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(content))
    ImageOps.exif_transpose(image, in_place=True)  # otherwise it copies every picture
    return image if image.mode == "RGB" else image.convert("RGB")


def describe_colours(picture: Image.Image) -> str:
    return picture.resize((8, 8)).tobytes().hex()


def save_thumbnail(picture: Image.Image) -> bytes:
    picture.thumbnail(THUMBNAIL)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def _on_pictures(function: Callable[[bytes], str]) -> Work:
    """Returns the work that applies a function to each file."""

    def run(content: bytes) -> Result:
        try:
            return {"text": function(content), "error": None}
        except (OSError, ValueError) as error:
            return {"text": None, "error": str(error)}

    return lambda contents: [run(content) for content in contents]


def _colours() -> Work:
    return _on_pictures(lambda content: describe_colours(open_picture(content)))


def _thumbnails() -> Work:
    return _on_pictures(lambda content: describe_colours(open_picture(save_thumbnail(open_picture(content)))))


# ---------------------------------------------------------------- documents and recordings


def read_text(content: bytes) -> str:
    """Returns the text of all pages of a PDF."""
    import pypdfium2

    document = pypdfium2.PdfDocument(content)
    try:
        return "\n".join(page.get_textpage().get_text_range() for page in document)
    finally:
        document.close()


def read_samples(content: bytes) -> "NDArray[np.float32]":
    import soundfile

    samples: NDArray[np.float32] = soundfile.read(io.BytesIO(content), dtype="float32")[0]
    return samples


def _documents() -> Work:
    import torch
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(1)
    folder = model_folder(EMBEDDER)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()

    def embed(contents: Sequence[bytes]) -> list[Result]:
        texts = [read_text(content) for content in contents]
        batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            vectors = torch.nn.functional.normalize(model(**batch).last_hidden_state[:, 0])
        return [{"text": json.dumps(vector), "error": None} for vector in vectors.tolist()]

    return embed


def load_transcriber() -> Any:
    """Returns the pipeline of transformers for speech recognition."""
    from transformers import pipeline

    folder = str(model_folder(TRANSCRIBER))
    run: Any = pipeline("automatic-speech-recognition", model=folder, return_timestamps=True, device="cpu")
    run.tokenizer.pad_token_id = run.model.config.eos_token_id  # batches need one
    return run


def _recordings() -> Work:
    import torch

    torch.set_num_threads(1)
    transcribe = load_transcriber()

    def run(contents: Sequence[bytes]) -> list[Result]:
        samples = [{"raw": read_samples(content), "sampling_rate": RATE} for content in contents]
        return [{"text": found["text"], "error": None} for found in transcribe(samples, batch_size=len(samples))]

    return run


_LOADERS: Mapping[str, Callable[[], Work]] = {
    COLOURS: _colours,
    THUMBNAILS: _thumbnails,
    DOCUMENTS: _documents,
    RECORDINGS: _recordings,
}
