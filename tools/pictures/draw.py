"""The style that all pictures of the documentation have: shapes, colours, letters."""

from __future__ import annotations

COLOURS = ["#4269d0", "#e8853b", "#3ca951", "#c4464f", "#8e6bbf", "#8a7142"]
INK, PALE, SHADE = "#24292f", "#d0d7de", "#f6f8fa"
WIDTH, LEFT = 900, 24
LETTERS = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


def text(
    x: float, y: float, words: str, size: int = 13, anchor: str = "start", weight: str = "normal", fill: str = INK
) -> str:
    style = f'font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{fill}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{words}</text>'


def box(
    x: float, y: float, width: float, height: float, frame: str = PALE, line: float = 1.2, fill: str = "#ffffff"
) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{fill}" '
        f'stroke="{frame}" stroke-width="{line}"/>'
    )


def square(x: float, y: float, side: float, colour: str, state: str) -> str:
    """A row: held, due later, or served already."""
    return bar(x, y, side, side, colour, state)


def bar(x: float, y: float, width: float, height: float, colour: str, state: str = "held") -> str:
    fill, stroke = {"held": (colour, colour), "later": ("#ffffff", colour), "served": (PALE, PALE)}[state]
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2" '
        f'fill="{fill}" stroke="{stroke}" stroke-width="1.2" opacity="1"/>'
    )


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    style = f'stroke="{INK}" stroke-width="1.6" fill="none" marker-end="url(#tip)"'
    return f'<path d="M{x1:g} {y1:g} L{x2:g} {y2:g}" {style}/>'


def bracket(x1: float, x2: float, y: float, down: int) -> str:
    return f'<path d="M{x1:g} {y:g} v{down} H{x2:g} v{-down}" stroke="{INK}" stroke-width="1.2" fill="none"/>'


def picture(title: str, height: int, parts: list[str]) -> str:
    """The file: its title is what a reader hears who does not see it."""
    body = "\n".join(parts)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" \
height="{height}" font-family="{LETTERS}" role="img">
<title>{title}</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">\
<path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker></defs>
<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>
{body}
</svg>
"""
