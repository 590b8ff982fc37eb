"""Fill patterns of the outcome bars: an outcome is told by its pattern as well as by its colour.

Defined once a page and referred to as `url(#p-<outcome>)`. It must not know how many of each there are.
"""

from __future__ import annotations

from benchlab.report.html import Html, el

_SHAPES = {
    "plain": "",
    "diagonal": "M-2 2l4 -4M0 8l8 -8M6 10l4 -4",
    "back": "M-2 6l4 4M0 0l8 8M6 -2l4 4",
    "cross": "M0 8l8 -8M0 0l8 8",
    "vertical": "M2 0v8M6 0v8",
    "horizontal": "M0 2h8M0 6h8",
    "grid": "M0 4h8M4 0v8",
    "dots": "M2 2h.01M6 6h.01",
}
_PATTERNS = {
    "good": ("green", "plain"),
    "ok": ("green-soft", "dots"),
    "cancelled": ("grey-soft", "plain"),
    "unfinished": ("grey-soft", "diagonal"),
    "incomplete": ("purple", "diagonal"),
    "error_stream": ("vermillion", "back"),
    "timeout": ("blue", "vertical"),
    "limited": ("yellow", "dots"),
    "shed": ("orange", "diagonal"),
    "error_http": ("vermillion", "plain"),
    "error_connect": ("grey", "horizontal"),
    "error_protocol": ("purple", "cross"),
    "not_sent": ("paper", "grid"),
}


def pattern_defs() -> Html:
    """An SVG of no size that holds every pattern."""
    patterns = [
        el(
            "pattern",
            el("rect", width="8", height="8", class_=f"f-{colour}"),
            el("path", d=_SHAPES[shape], class_="hatch") if _SHAPES[shape] else None,
            id=f"p-{name}",
            width="8",
            height="8",
            patternUnits="userSpaceOnUse",
        )
        for name, (colour, shape) in _PATTERNS.items()
    ]
    return el("svg", el("defs", patterns), width="0", height="0", aria_hidden="true", class_="defs")
