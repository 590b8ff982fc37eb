"""A figure as the page shows it: heading, one-sentence reading, a drawing for wide and one for narrow screens, a table.

Both drawings are the same function called with another width: shrinking one drawing to a phone would shrink its text
below reading size. It must not know what any figure is about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchlab.report.html import Child, Html, el

WIDE, NARROW = 760.0, 350.0
_UNIT = re.compile(r"(\d) (%|ms|s|/s|users?)(?=\W|$)")
MARGIN_LEFT, MARGIN_TOP = 62.0, 24.0


@dataclass(frozen=True, slots=True)
class Figure:
    """`draw(width)` gives the SVG; `columns` and `rows` are the data behind it; `note` says what was left out."""

    key: str
    title: str
    reading: str
    draw: Callable[[float], Html]
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    caption: str = ""
    legend: Sequence[Html] = ()


def key_item(class_: str, label: str, *, shape: str = "line") -> Html:
    """One legend entry: a sample of the mark and its name."""
    sample = {
        "line": el("path", d="M1 7H25", class_=f"ln {class_}"),
        "dot": el("circle", cx="13", cy="7", r="4", class_=f"dot {class_}"),
        "cross": el("path", d="M9 3l8 8m0 -8l-8 8", class_=f"cross {class_}"),
        "box": el("rect", x="2", y="1", width="22", height="12", fill=f"url(#{class_})", class_="bar"),
    }[shape]
    return el(
        "span", el("svg", sample, viewBox="0 0 26 14", width="26", height="14", aria_hidden="true"), label, class_="key"
    )


def data_table(
    columns: Sequence[str], rows: Sequence[Sequence[Child]], caption: str, *, text: Sequence[int] = (0,)
) -> Html:
    """A table with scoped headers; all columns but those in `text` are aligned as numbers."""
    head = [el("th", name, scope="col", class_=None if i in text else "num") for i, name in enumerate(columns)]
    body = [
        el(
            "tr",
            [
                el("th", cell, scope="row") if i == 0 else el("td", cell, class_=None if i in text else "num")
                for i, cell in enumerate(row)
            ],
        )
        for row in rows
    ]
    table = el("table", el("caption", caption), el("thead", el("tr", head)), el("tbody", body))
    return el("div", table, class_="scroll", tabindex="0", role="region", aria_label=caption)


def unbroken(text: str) -> str:
    """The sentence with its numbers tied to their units, so that no line ends between them."""
    return _UNIT.sub("\\1\u00a0\\2", text)


def render(figure: Figure) -> Html:
    """The figure with everything around it."""
    parts: list[Child] = [el("h3", figure.title), el("p", unbroken(figure.reading), class_="reading")]
    if figure.legend:
        parts.append(el("p", figure.legend, class_="legend"))
    parts += [el("div", figure.draw(WIDE), class_="wide"), el("div", figure.draw(NARROW), class_="narrow")]
    if figure.caption:
        parts.append(el("figcaption", figure.caption))
    if figure.rows:
        table = data_table(figure.columns, figure.rows, figure.title)
        parts.append(el("details", el("summary", "Data behind this figure"), table))
    return el("figure", parts, id=figure.key)
