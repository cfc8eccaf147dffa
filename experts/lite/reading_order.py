"""Reading order of the lines of a page: columns, rows, paragraphs."""

import itertools
from collections.abc import Iterator, Sequence
from statistics import median

from experts.host.media import Line

_COLUMN_GAP = 1.5
_COLUMN_LINES = 4
_COLUMN_WIDTH = 20
_SAME_ROW = 0.5
_PARAGRAPH_GAP = 0.9

Row = list[Line]


def join_in_reading_order(lines: Sequence[Line]) -> str:
    """Returns the page's text: one line per row, tabs between cells, blank lines between paragraphs."""
    return "\n\n".join(_join_paragraphs(column) for column in split_columns(lines))


def split_columns(lines: Sequence[Line]) -> list[list[Line]]:
    """Splits columns of prose; tables are not split, because they are read by row."""
    for left, right in _find_splits(lines):
        if all(_is_prose(part) for part in (left, right)):
            return [*split_columns(left), *split_columns(right)]
    return [list(lines)] if lines else []


def group_rows(lines: Sequence[Line]) -> list[Row]:
    """Groups lines into rows, top to bottom and left to right, corrected for the page's skew."""
    grouped: list[Row] = []
    slope = _measure_slope(lines)
    for line in sorted(lines, key=lambda line: sum(_vertical_span(line, slope))):
        if grouped and _overlaps_vertically(_vertical_span(grouped[-1][-1], slope), _vertical_span(line, slope)):
            grouped[-1].append(line)
        else:
            grouped.append([line])
    return [sorted(row, key=lambda line: line.box[0]) for row in grouped]


def line_height(line: Line) -> float:
    return line.box[3] - line.box[1]


def _measure_slope(lines: Sequence[Line]) -> float:
    return median([line.slope for line in lines if line.slope] or [0.0])


def _vertical_span(line: Line, slope: float) -> tuple[float, float]:
    """Returns the upper and lower edge of a line, corrected for the page's skew."""
    left, top, right, bottom = line.box
    offset, rise = slope * (left + right) / 2, abs(slope) * (right - left) / 2
    return top + rise - offset, bottom - rise - offset


def _overlaps_vertically(first: tuple[float, float], second: tuple[float, float]) -> bool:
    shared = min(first[1], second[1]) - max(first[0], second[0])
    return shared > _SAME_ROW * min(first[1] - first[0], second[1] - second[0])


def _find_splits(lines: Sequence[Line]) -> Iterator[tuple[list[Line], list[Line]]]:
    """Yields splits of the lines at vertical white gaps."""
    if len(lines) < 2 * _COLUMN_LINES:
        return
    min_gap = _COLUMN_GAP * median(map(line_height, lines))
    ordered = sorted(lines, key=lambda line: line.box[0])
    edge = ordered[0].box[2]
    for index, line in enumerate(ordered):
        if line.box[0] - edge > min_gap:
            yield ordered[:index], ordered[index:]
        edge = max(edge, line.box[2])


def _is_prose(lines: Sequence[Line]) -> bool:
    return len(lines) >= _COLUMN_LINES and median(len(line.text) for line in lines) >= _COLUMN_WIDTH


def _join_paragraphs(lines: Sequence[Line]) -> str:
    text, previous_row = "", None
    for row in group_rows(lines):
        if previous_row:
            gap = min(line.box[1] for line in row) - max(line.box[3] for line in previous_row)
            text += "\n\n" if gap > _PARAGRAPH_GAP * median(map(line_height, (*previous_row, *row))) else "\n"
        text += _join_row(row)
        previous_row = row
    return text


def _join_row(row: Row) -> str:
    """Joins words by spaces and cells by tabs."""
    text = row[0].text
    for line, next_line in itertools.pairwise(row):
        is_new_cell = next_line.box[0] - line.box[2] > _COLUMN_GAP * max(line_height(line), line_height(next_line))
        text += ("\t" if is_new_cell else " ") + next_line.text
    return text
