"""Draws spans as a waterfall chart in SVG."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, ROW, TOP, NAMES, BARS, END = 960, 22, 64, 16, 330, 780
"""Pixels: width, height of a row, top of the rows, left of the names, left and right of the bars."""

INDENT, HIGH = 14, 12
"""Pixels: indentation per level, and height of a bar."""

SCHEMES: Mapping[str, Mapping[str, str]] = {
    "light": {"ground": "#ffffff", "ink": "#1c2b26", "soft": "#5b6b84", "line": "#e3e8ee"},
    "dark": {"ground": "#0d1117", "ink": "#e6edf3", "soft": "#8b949e", "line": "#21262d"},
}
COLOURS = ("#2f81f7", "#db6d28", "#2da44e", "#a371f7", "#d6409f", "#9a8700")
"""Colours of services in order of appearance."""

FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


@dataclass(frozen=True)
class Bar:
    """One span in the chart."""

    key: bytes
    name: str
    service: str
    depth: int
    start: float
    """Milliseconds since the start of the first span."""
    end: float
    links: tuple[bytes, ...] = ()


def draw_waterfall(title: str, bars: Sequence[Bar], scheme: str) -> str:
    """Returns the chart as SVG; deterministic."""
    colours = SCHEMES[scheme]
    height = TOP + ROW * len(bars) + 12
    summary = f"{len(bars)} spans of {len(_services(bars))} processes, {_seconds(_end_of_last(bars))}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="{FONT}" font-size="12" '
        f'fill="{colours["ink"]}" role="img" aria-label="{escape(f"The trace of a run: {title}; {summary}")}">'
    )
    ground = f'<rect width="{WIDTH}" height="{height}" rx="8" fill="{colours["ground"]}"/>'
    rows = [part for row, bar in enumerate(bars) for part in _row(bar, row, bars, colours)]
    above = (_text(NAMES, 24, title, weight=600), _text(WIDTH - NAMES, 47, summary, fill=colours["soft"], anchor="end"))
    return "\n".join([head, ground, *above, *_legend(bars), *_links(bars, colours), *rows, "</svg>"]) + "\n"


def _legend(bars: Sequence[Bar]) -> Iterator[str]:
    x = NAMES
    for service in _services(bars):
        yield f'<rect x="{x}" y="38" width="10" height="10" rx="2" fill="{_colour(service, bars)}"/>'
        yield _text(x + 15, 47, service)
        x += 30 + 7 * len(service)


def _row(bar: Bar, row: int, bars: Sequence[Bar], colours: Mapping[str, str]) -> Iterator[str]:
    top = TOP + ROW * row
    yield f'<path d="M{NAMES} {top}H{WIDTH - NAMES}" stroke="{colours["line"]}"/>'
    yield _text(NAMES + INDENT * bar.depth, top + 15, bar.name)
    left, right = _x(bar.start, bars), _x(bar.end, bars)
    width = max(right - left, 2)
    duration = _seconds(bar.end - bar.start) + (f", linked to {_calls(len(bar.links))}" if bar.links else "")
    yield (
        f'<rect x="{left:.1f}" y="{top + (ROW - HIGH) / 2:g}" width="{width:.1f}" height="{HIGH}" rx="2" '
        f'fill="{_colour(bar.service, bars)}"/>'
    )
    yield _text(left + width + 6, top + 15, duration, fill=colours["soft"])


def _links(bars: Sequence[Bar], colours: Mapping[str, str]) -> Iterator[str]:
    rows = {bar.key: row for row, bar in enumerate(bars)}
    for row, bar in enumerate(bars):
        for key in bar.links:
            if key in rows:
                x, above, below = _x(bar.start, bars), *(TOP + ROW * at + ROW / 2 for at in (rows[key], row))
                yield f'<path d="M{x:.1f} {below:g}V{above:g}" stroke="{colours["ink"]}" stroke-dasharray="2 2"/>'


def _x(moment: float, bars: Sequence[Bar]) -> float:
    return BARS + (END - BARS) * moment / _end_of_last(bars)


def _end_of_last(bars: Sequence[Bar]) -> float:
    return max(bar.end for bar in bars)


def _services(bars: Sequence[Bar]) -> list[str]:
    return list(dict.fromkeys(bar.service for bar in bars))


def _colour(service: str, bars: Sequence[Bar]) -> str:
    return COLOURS[_services(bars).index(service) % len(COLOURS)]


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds:.1f} ms" if milliseconds < 100 else f"{milliseconds:.0f} ms"


def _calls(count: int) -> str:
    return "its call" if count == 1 else f"its {count} calls"


def _text(x: float, y: float, text: str, **styles: str | int) -> str:
    svg_names = {"weight": "font-weight", "anchor": "text-anchor"}
    attributes = "".join(f' {svg_names.get(name, name)}="{value}"' for name, value in styles.items())
    return f'<text x="{x:g}" y="{y:g}"{attributes}>{escape(text)}</text>'
