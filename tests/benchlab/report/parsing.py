"""Reads a page back as a browser's parser would see it, so that tests judge elements and not strings."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "br", "hr", "input", "link", "col"}


@dataclass
class Page(HTMLParser):
    """Every element with its attributes in order, and the text of scripts, styles and everything else."""

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    raw: dict[str, list[str]] = field(default_factory=lambda: {"script": [], "style": []})
    open: list[str] = field(default_factory=list)
    unbalanced: list[str] = field(default_factory=list)

    def __post_init__(self):
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data):
        (self.raw[self.open[-1]] if self.open and self.open[-1] in self.raw else self.text).append(data)

    def shape(self):
        """Tags and attribute names, in order: what must not change whatever the strings hold."""
        return [(tag, tuple(attrs)) for tag, attrs in self.elements]

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


def parse(html: str) -> Page:
    page = Page()
    page.feed(html)
    page.close()
    return page
