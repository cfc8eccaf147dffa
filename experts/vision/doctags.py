"""DocTags, the markup in which models such as Granite-Docling write the contents of a page, as text."""

import re
from typing import Any

_START = "<doctag>"
_POSITION = re.compile(r"<loc_\d+>|<_[^<>\s]*_>|<\|[^<>|]*\|>")
"""Coordinates, names of programming languages, and tokens of the chat."""
_CELL = re.compile(r"<[eflux]cel>|<[cr]hed>")
"""Starts of table cells: of a value, an empty one, one that continues another, or a header."""
_END_OF_ROW = "<nl>"
_TAG = re.compile(r"</?[a-z][a-z0-9_]*>")
"""Any other tag starts or ends an element."""


def writes_doctags(processor: Any) -> bool:
    """Whether a model with this processor converts pages to DocTags."""
    return _START in processor.tokenizer.get_vocab()


def read_doctags(markup: str) -> str:
    """Returns the text of a page in its order: an element or a table row per line, and cells separated by tabs."""
    content = _CELL.sub("\t", _POSITION.sub("", markup)).replace(_END_OF_ROW, "\n")
    lines = (line.removeprefix("\t").rstrip(" ") for line in _TAG.sub("\n", content).splitlines())
    return "\n".join(line for line in lines if line.strip())
