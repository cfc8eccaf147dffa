"""Media types, and the modalities of ports that accept files of them."""

_BY_TYPE: dict[str, tuple[str, ...]] = {
    "application/pdf": ("IMAGE",),
    "application/ogg": ("AUDIO", "VIDEO"),
    "application/json": ("JSON", "TABLE", "TEXT"),
    "application/xml": ("TEXT",),
    "text/csv": ("TABLE", "TEXT"),
    "text/tab-separated-values": ("TABLE", "TEXT"),
    "application/vnd.ms-excel": ("TABLE",),
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ("TABLE",),
    "application/vnd.oasis.opendocument.spreadsheet": ("TABLE",),
}
_BY_FAMILY: dict[str, tuple[str, ...]] = {
    "image": ("IMAGE",),
    "audio": ("AUDIO",),
    "video": ("VIDEO",),
    "text": ("TEXT",),
}


def modality_names(media_type: str) -> tuple[str, ...]:
    """Modalities of a file, the most natural first; empty for an unknown type.

    Args:
        media_type: a MIME type, with or without parameters.

    Returns:
        Names of the protos' enum Modality without their prefix, such as IMAGE. A PDF is accepted wherever an image is.
    """
    media_type = media_type.partition(";")[0].strip().lower()
    return _BY_TYPE.get(media_type) or _BY_FAMILY.get(media_type.partition("/")[0], ())
