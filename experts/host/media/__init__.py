"""Decodes images, document pages and audio in worker processes, within limits, and encodes images and audio."""

from experts.host.media.audio import read_audio, wav
from experts.host.media.images import Page, box_to_json, derive_name, open_image, pages, png
from experts.host.media.pdf import Line

__all__ = ["Line", "Page", "box_to_json", "derive_name", "open_image", "pages", "png", "read_audio", "wav"]
