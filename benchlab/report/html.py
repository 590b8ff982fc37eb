"""The one place where text becomes markup: everything that is not `Html` already is escaped.

Model output, prompts, headers, file names and error messages are hostile. A page is put together from `el` calls, so
there is no string template in which somebody could forget an escape. It must not know what a run is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from benchlab.records.manifest import finite

_CONTROLS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\ud800-\udfff\ufffe\uffff]"
)
_VOID = frozenset({"br", "hr", "meta", "link", "input", "col"})
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "`": "&#96;"})


class Html(str):
    """Markup that is safe to put into a page as it stands. Only this module and constants make one."""

    __slots__ = ()


Child = str | Iterable["Child"] | None


def visible(text: object, limit: int = 100_000) -> str:
    """Text whose control and direction-changing characters show as <U+XXXX> instead of acting."""
    whole = str(text)
    cut = whole if len(whole) <= limit else f"{whole[:limit]} … ({len(whole) - limit} more characters)"
    return _CONTROLS.sub(lambda found: f"<U+{ord(found.group()):04X}>", cut)


def esc(text: object) -> Html:
    """Text as markup that shows exactly this text, in an element or in a quoted attribute."""
    return text if isinstance(text, Html) else Html(visible(text).translate(_ESCAPES))


def join(children: Iterable[Child]) -> Html:
    """Children one after another, each escaped unless it is Html."""
    return Html("".join(_render(child) for child in children))


def _render(child: Child) -> str:
    if child is None:
        return ""
    return esc(child) if isinstance(child, str) else join(child)


def el(tag: str, *children: Child, **attributes: object) -> Html:
    """One element. Names come from our code only: `class_` is class, `data_x` data-x; None and False are left out."""
    parts = [f"<{tag}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        name = key.rstrip("_").replace("_", "-")
        parts.append(f" {name}" if value is True else f' {name}="{visible(value, 10**9).translate(_ESCAPES)}"')
    body = join(children)
    return Html("".join(parts) + (">" if tag in _VOID else f">{body}</{tag}>"))


def json_block(value: Any) -> Html:
    """A value as JSON that may stand inside a script element: pure ASCII, no <, > or &, no NaN and no Infinity."""
    text = json.dumps(finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
