"""Reading order of the lines of a page: columns, rows, paragraphs."""

import itertools
from collections.abc import Iterator, Sequence
from statistics import median

from experts.host.pdf import Line

_COLUMN_GAP = 1.5
_COLUMN_LINES = 4
_COLUMN_WIDTH = 20
_SAME_ROW = 0.5
_PARAGRAPH_GAP = 0.9

Row = list[Line]


def reading_order(lines: Sequence[Line]) -> str:
    """Returns the page's text: one line per row, tabs between cells, blank lines between paragraphs."""
    return "\n\n".join(_paragraphs(column) for column in columns(lines))


def columns(lines: Sequence[Line]) -> list[list[Line]]:
    """Splits columns of prose; tables are not split, because they are read by row."""
    for left, right in _cuts(lines):
        if all(_is_prose(part) for part in (left, right)):
            return [*columns(left), *columns(right)]
    return [list(lines)] if lines else []


def rows(lines: Sequence[Line]) -> list[Row]:
    """Groups lines into rows, top to bottom and left to right, corrected for the page's skew."""
    found: list[Row] = []
    slope = _slope(lines)
    for line in sorted(lines, key=lambda line: sum(_span(line, slope))):
        if found and _beside(_span(found[-1][-1], slope), _span(line, slope)):
            found[-1].append(line)
        else:
            found.append([line])
    return [sorted(row, key=lambda line: line.box[0]) for row in found]


def height(line: Line) -> float:
    return line.box[3] - line.box[1]


def _slope(lines: Sequence[Line]) -> float:
    return median([line.slope for line in lines if line.slope] or [0.0])


def _span(line: Line, slope: float) -> tuple[float, float]:
    """Returns its upper and lower edge, corrected for the page's skew."""
    left, top, right, bottom = line.box
    sunk, inclined = slope * (left + right) / 2, abs(slope) * (right - left) / 2
    return top + inclined - sunk, bottom - inclined - sunk


def _beside(one: tuple[float, float], other: tuple[float, float]) -> bool:
    shared = min(one[1], other[1]) - max(one[0], other[0])
    return shared > _SAME_ROW * min(one[1] - one[0], other[1] - other[0])


def _cuts(lines: Sequence[Line]) -> Iterator[tuple[list[Line], list[Line]]]:
    """Yields splits of the lines at vertical white gaps."""
    if len(lines) < 2 * _COLUMN_LINES:
        return
    least = _COLUMN_GAP * median(map(height, lines))
    ordered = sorted(lines, key=lambda line: line.box[0])
    edge = ordered[0].box[2]
    for place, line in enumerate(ordered):
        if line.box[0] - edge > least:
            yield ordered[:place], ordered[place:]
        edge = max(edge, line.box[2])


def _is_prose(lines: Sequence[Line]) -> bool:
    return len(lines) >= _COLUMN_LINES and median(len(line.text) for line in lines) >= _COLUMN_WIDTH


def _paragraphs(lines: Sequence[Line]) -> str:
    text, before = "", None
    for row in rows(lines):
        if before:
            gap = min(line.box[1] for line in row) - max(line.box[3] for line in before)
            text += "\n\n" if gap > _PARAGRAPH_GAP * median(map(height, (*before, *row))) else "\n"
        text += _told(row)
        before = row
    return text


def _told(row: Row) -> str:
    """Joins words by spaces and cells by tabs."""
    text = row[0].text
    for one, other in itertools.pairwise(row):
        wide = other.box[0] - one.box[2] > _COLUMN_GAP * max(height(one), height(other))
        text += ("\t" if wide else " ") + other.text
    return text
