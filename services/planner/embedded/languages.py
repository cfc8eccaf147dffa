"""Names of languages and their BCP 47 tags."""

import json
import re
from importlib.resources import files

TAGS: dict[str, str] = json.loads((files("services.planner.embedded") / "languages.json").read_text(encoding="utf-8"))
"""By lower-case English name."""

PATTERN = f"(?:{'|'.join(sorted(TAGS, key=len, reverse=True))})"
"""Any of the names, the longest first."""

NAME = re.compile(rf"(?<![\w-]){PATTERN}(?![\w-])")


def tags(masked: str) -> list[str]:
    """The languages named in lower-case words, in their order."""
    return [TAGS[found.group()] for found in NAME.finditer(masked)]
