"""Prometheus' text format, read from a server that may send anything: small, right, bounded.

It understands the classic format and OpenMetrics (escapes, exemplars, timestamps, quoted UTF-8 names). A line that
is broken is left out and counted; a page with no usable line at all is a ScrapeError. It knows no metric by name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchlab.errors import TargetError

MAX_BYTES = 16 * 2**20
MAX_SERIES = 100_000
MAX_PROBLEMS = 20

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(
    r'[ \t]*(?:([a-zA-Z_][a-zA-Z0-9_.]*)|"((?:[^"\\]|\\.)*)")[ \t]*(?:=[ \t]*"((?:[^"\\]|\\.)*)")?[ \t]*([,}])'
)
_END = re.compile(r"[ \t]*\}")
_VALUE = re.compile(
    r"[+-]?(?:nan|inf(?:inity)?|(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:e[+-]?\d{1,9})?)", re.IGNORECASE
)
_ESCAPE = re.compile(r"\\(.)")


class ScrapeError(TargetError):
    """A metrics page could not be had or is none (exit 3 where it was asked for by name; else a note)."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line: the name, its labels sorted by name, the value (NaN and Inf as they are), the page's own stamp (s)."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    timestamp_s: float | None = None

    def label(self, name: str) -> str | None:
        """A label's value, None when it has no such label."""
        return next((value for key, value in self.labels if key == name), None)


@dataclass(slots=True)
class Exposition:
    """A page: its series in order, the TYPE of each family, what was wrong (at most 20 lines are named)."""

    series: list[Series] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    broken_lines: int = 0

    def named(self, name: str) -> list[Series]:
        """All series of one name."""
        return [series for series in self.series if series.name == name]


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: {"n": "\n"}.get(found.group(1), found.group(1)), text)


class _BrokenLineError(Exception):
    pass


def _parse_line(line: str, openmetrics: bool) -> Series:
    labels: dict[str, str] = {}
    found = _NAME.match(line)
    name, at = (found.group(), found.end()) if found else ("", 0)
    while at < len(line) and line[at] in " \t":
        at += 1
    if at < len(line) and line[at] == "{":
        name, at = _parse_labels(line, at + 1, name, labels)
    if not name:
        raise _BrokenLineError("no metric name")
    words = line[at:].split(" # ", 1)[0].split()  # what follows " # " is an exemplar
    if not 1 <= len(words) <= 2:
        raise _BrokenLineError("expected a value and at most a timestamp")
    numbers = []
    for word in words:
        if not _VALUE.fullmatch(word):
            raise _BrokenLineError(f"'{word[:40]}' is no number")
        numbers.append(float(word))
    stamp = None if len(numbers) == 1 else numbers[1] if openmetrics else numbers[1] / 1000
    return Series(name, tuple(sorted(labels.items())), numbers[0], stamp)


def _parse_labels(line: str, at: int, name: str, labels: dict[str, str]) -> tuple[str, int]:
    """Fill `labels` from after the brace on; the metric's name (which may stand inside, quoted) and the end."""
    while True:
        end = _END.match(line, at)
        if end:
            return name, end.end()
        found = _LABEL.match(line, at)
        if found is None:
            raise _BrokenLineError("broken labels")
        bare, quoted, value, close = found.groups()
        key = bare if bare is not None else _unescape(quoted)
        if value is None:
            if quoted is None or name:
                raise _BrokenLineError(f"label '{key[:40]}' has no value")
            name = key
        elif key in labels:
            raise _BrokenLineError(f"label '{key[:40]}' stands twice")
        else:
            labels[key] = _unescape(value)
        at = found.end()
        if close == "}":
            return name, at


def parse_exposition(page: str | bytes, *, where: str = "", max_bytes: int = MAX_BYTES) -> Exposition:
    """A metrics page. where: its address, for messages. Raises ScrapeError and nothing else.

    Too large a page is refused; more than 100,000 series are cut off with a problem; a page without a single
    readable series but with other text (HTML, JSON) is refused; an empty page is an empty exposition.
    """
    if len(page) > max_bytes:
        raise ScrapeError(f"the metrics page is larger than {max_bytes // 2**20} MiB", where=where)
    text = page.decode("utf-8", errors="replace") if isinstance(page, bytes) else page
    openmetrics = text.rstrip().endswith("# EOF")
    result = Exposition()
    for number, raw in enumerate(text.split("\n"), 1):  # not splitlines: a label may hold other line separators
        line = raw.rstrip("\r").strip(" \t")
        if not line:
            continue
        if line.startswith("#"):
            words = line.split(None, 3)
            if len(words) == 4 and words[1] == "TYPE":
                result.types[words[2]] = words[3].strip()
            continue
        if len(result.series) >= MAX_SERIES:
            result.problems.append(f"line {number}: more than {MAX_SERIES:,} series, the rest is left out")
            break
        try:
            result.series.append(_parse_line(line, openmetrics))
        except _BrokenLineError as error:
            result.broken_lines += 1
            if len(result.problems) < MAX_PROBLEMS:
                result.problems.append(f"line {number}: {error}")
    if result.broken_lines and not result.series:
        raise ScrapeError(
            f"is no Prometheus metrics page ({result.problems[0]}: {text.strip()[:60]!r})",
            where=where,
            hint="give the address of /metrics, or --scrape off",
        )
    return result


IDENTITY_LABELS = ("instance", "job", "pod", "endpoint", "service", "container", "namespace", "exported_instance")
"""Labels that say who scraped whom, not what was measured."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Series equal but for who they say they come from: very likely one server, counted `times` times."""

    name: str
    labels: tuple[tuple[str, str], ...]
    differ_in: tuple[str, ...]
    times: int

    def __str__(self) -> str:
        where = f" (they differ in {', '.join(self.differ_in)} only)" if self.differ_in else " (they differ in nothing)"
        return f"{self.name} is there {self.times} times{where}: one server may be counted {self.times} times"


def find_duplicates(series: Iterable[Series], identity: tuple[str, ...] = IDENTITY_LABELS) -> list[Duplicate]:
    """Series of one name that differ only in identity labels, or not at all."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Series]] = {}
    for each in series:
        rest = tuple(pair for pair in each.labels if pair[0] not in identity)
        groups.setdefault((each.name, rest), []).append(each)
    found = []
    for (name, rest), members in groups.items():
        if len(members) > 1:
            values = Counter((key, value) for member in members for key, value in member.labels if key in identity)
            differ = sorted({key for (key, _), times in values.items() if times < len(members)})
            found.append(Duplicate(name, rest, tuple(differ), len(members)))
    return found
