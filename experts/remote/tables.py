"""Reads tables into the format of huggingface_hub's client."""

import csv
import io
import json
from typing import Any

from experts.host.handler import Media
from services.common.errors import InvalidRequest


def read_columns(media: Media) -> dict[str, list[str]]:
    """Returns the cells by column, from CSV or a JSON list of records.

    Raises:
        InvalidRequest: it is neither, or has no rows.
    """
    try:
        text = media.content.decode("utf-8-sig")
        rows = json.loads(text) if media.media_type == "application/json" else list(csv.DictReader(io.StringIO(text)))
        return _group_by_column(rows)
    except (ValueError, TypeError, AttributeError, LookupError, csv.Error) as error:
        raise InvalidRequest(
            f"cannot read {media.name}: it is not a table",
            port="table",
            remedy="send CSV with a header and rows, in UTF-8, or a JSON list of records",
        ) from error


def _group_by_column(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    names = [str(name) for name in rows[0]]
    return {name: ["" if row.get(name) is None else str(row[name]) for row in rows] for name in names}
