"""The page of the load generator's figures: tables between two markers, made from the document of a run.

The one idea: nothing on the page is typed by hand; what is missing reads "not measured". It must not measure.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.cases import BY_NAME, CASES, PEERS, Case
from tests.benchmarks.peers.targets import Row, all_of, get, middle, of, percent, shape_error

START, END = "<!-- loadgen: start -->", "<!-- loadgen: end -->"
_NAMES = {"vllm": "vllm bench", "floor": "hand-made floor", "benchlab-2": "benchlab, two workers on two cores",
          "benchlab-precise": "benchlab, `--pacing precise`"}  # fmt: skip
_NOT = "not measured"


def line(row: Row) -> str:
    """One row as it is printed while running."""
    words = [f"{row['case']:<15} {row['tool']:<16} exit {row['exit']} {row['seconds']:5.1f} s"]
    for key, form in (
        ("events_s", "{:,.0f} ev/s"), ("cpu_per_1k", "{:.4f} s/1k"), ("cpu_share", "cpu {:.0%}"),
        ("server_share", "server {:.0%}"), ("others_cores", "others {:.2f}"), ("peak_mb", "{:.0f} MB"),
    ):  # fmt: skip
        if row.get(key) is not None:
            words.append(form.format(row[key]))
    for key, value in (row.get("arrivals") or {}).items():
        words.append(f"{key} {value:.3g}")
    first, gap = get(row, "stamps", "first", "p99"), get(row, "stamps", "gap", "p99")
    if gap is not None:
        words.append(f"stamps p99 {first or float('nan'):.3f} {gap:.3f} ms")
    if "unreadable" in (row.get("reported") or {}):
        words.append(row["reported"]["unreadable"][:80])
    return "  ".join(words)


def number(value: float | None, form: str = "{:,.3g}") -> str:
    return "–" if value is None else form.format(value)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = "|---|" + "---:|" * (len(head) - 1)
    return [f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows), ""]


Column = tuple[str, Callable[[Row], float | None], str]


def _at(*path: str) -> Callable[[Row], float | None]:
    return lambda row: get(row, *path)


def _error(key: str, true: str, stat: str) -> Callable[[Row], float | None]:
    def of_row(row: Row) -> float | None:
        said, is_ = get(row, "reported", key, stat), get(row, "true", true, stat)
        return None if said is None or is_ is None else said - is_

    return of_row


_COST: tuple[Column, ...] = (
    ("events/s", _at("events_s"), "{:,.0f}"),
    ("CPU s per 1,000 events", _at("cpu_per_1k"), "{:.4f}"),
    ("client, cores", _at("cpu_share"), "{:.2f}"),
    ("server, cores", _at("server_share"), "{:.2f}"),
    ("others, cores", _at("others_cores"), "{:.2f}"),
    ("peak MB under load", _at("load_mb"), "{:,.0f}"),
    ("of the whole run", _at("peak_mb"), "{:,.0f}"),
)
_STAMPS: tuple[Column, ...] = (
    ("first chunk: stamp off by p50 ms", _at("stamps", "first", "p50"), "{:.3f}"),
    ("p99", _at("stamps", "first", "p99"), "{:.3f}"),
    ("gap off by p99 ms", _at("stamps", "gap", "p99"), "{:.3f}"),
    ("TTFT reported − true p99 ms", _error("ttft", "ttft", "p99"), "{:+.1f}"),
    ("gap reported − true p99 ms", _error("gap", "gap", "p99"), "{:+.1f}"),
)
_OPEN: tuple[Column, ...] = (
    ("requests", _at("arrivals", "n"), "{:,.0f}"),
    ("rate reached /s", _at("arrivals", "rate"), "{:.1f}"),
    ("CV of gaps", _at("arrivals", "gap_cv"), "{:.3f}"),
)
_GRID: tuple[Column, ...] = (("p99 off the grid, ms", _at("arrivals", "off_grid_p99_ms"), "{:,.2f}"),)
_LAW: tuple[Column, ...] = (
    ("KS distance", _at("arrivals", "ks"), "{:.3f}"),
    ("its 5% limit", _at("arrivals", "ks_limit"), "{:.3f}"),
)
_TAIL: tuple[Column, ...] = (
    ("client, cores", _at("cpu_share"), "{:.2f}"),
    ("TTFT reported − true p50 ms", _error("ttft", "ttft", "p50"), "{:+.2f}"),
    ("p99", _error("ttft", "ttft", "p99"), "{:+.1f}"),
)


def columns(case: Case) -> tuple[Column, ...]:
    if case.kind != "closed" and not case.wave:
        return (*_OPEN, *(_GRID if case.kind == "constant" else _LAW), *_TAIL)
    return (*_COST, *_STAMPS) if case.name.startswith("paced-") else _COST


def case_table(rows: Sequence[Row], case: Case) -> list[str]:
    shown = columns(case)
    title = f"### {case.what[0].upper()}{case.what[1:]}"
    if not any(row["case"] == case.name for row in rows):
        return [title, "", _NOT, ""]
    body: list[list[str]] = []
    for tool in case.tools:
        mine = of(rows, case.name, tool)
        if not mine:
            body.append([_NAMES.get(tool, tool), *([_NOT] + ["–"] * len(shown))])
            continue
        cells = [number(middle(get_value(row) for row in mine), form) for _, get_value, form in shown]
        body.append([_NAMES.get(tool, tool), str(len(mine)), *cells])
    return [title, "", *table(["client", "runs", *(name for name, _, _ in shown)], body)]


def shape_table(rows: Sequence[Row]) -> list[str]:
    """TTFT, TPOT and end to end beside the truth, for every client and shape: the medians."""
    body: list[list[str]] = []
    for case in CASES:
        if not case.single:
            continue
        for tool in case.tools:
            for row in of(rows, case.name, tool):
                cells = []
                for key, true in (("ttft", "ttft"), ("mean_gap", "per_token"), ("e2e", "e2e")):
                    said, is_ = get(row, "reported", key, "p50"), get(row, "true", true, "p50")
                    cells.append(f"{number(said, '{:.2f}')} ({number(is_, '{:.2f}')})")
                off = percent(shape_error(rows, case.name, tool))
                body.append([case.what, _NAMES.get(tool, tool), *cells, number(off, "{:.1f}%")])
    head = ("shape", "client", "TTFT ms (true)", "TPOT ms (true)", "end to end ms (true)", "largest error")
    return table(head, body) if body else [_NOT, ""]


def target_table(rows: Sequence[Row], exactness: dict[str, Any] | None) -> list[str]:
    body: list[list[str]] = []
    for target in all_of(rows):
        limit = f"{'≥' if target.at_least else '≤'} {target.limit:,g} {target.unit}".strip()
        value = _NOT if target.value is None else f"{target.value:,.4g} {target.unit}".strip()
        words = {None: _NOT, True: "holds"}.get(target.holds) or f"missed, {_off(target.value, target.limit)}"
        words += f" ({target.note})" if target.note else ""
        body.append([target.what, value, limit, words])
    if exactness is None:
        body.append(["stamps against the server's log, 10% to 120% of the ceiling", _NOT, "bounds below", _NOT])
    else:
        broken = re.findall(r"^BROKEN (.*)$", exactness["printed"], re.MULTILINE)
        words = "holds" if exactness["exit"] == 0 else "missed: " + ("; ".join(broken) or "it did not run")
        body.append(
            ["stamps against the server's log, 10% to 120% of the ceiling", "table below", "bounds below", words]
        )
    return table(("target", "measured", "asked", ""), body)


def _off(value: float | None, limit: float) -> str:
    return f"by {abs((value or 0) - limit) / abs(limit):.0%}"


def render(document: dict[str, Any]) -> str:
    """All between the markers."""
    rows, host, exactness = document["rows"], document["host"], document.get("exactness")
    days = sorted({row["at"][:10] for row in rows})
    loads = [row["load"] for row in rows]
    others = statistics.median([row["others_cores"] for row in rows if "others_cores" in row] or [0])
    out = [
        f"Measured {' and '.join(days)}: {host['cpu']}, {host['cores']} shared cores, Linux {host['kernel']}, Python "
        f"{host['python']}; server on the first core, client on the last. Load average "
        f"{min(loads, default=0):.1f} to {max(loads, default=0):.1f}; in the windows looked at, others used "
        f"{others:.2f} cores (median).",
        "",
        "Peers: " + ", ".join(wheel for peer in PEERS for wheel in host["wheels"][peer] if "==" in wheel) + ".",
        "",
        "## Targets",
        "",
        *target_table(rows, exactness),
        "## Cases",
        "",
    ]
    for case in CASES:
        if not case.single:
            out += case_table(rows, case)
    out += ["### Shapes of streams, one at a time: medians reported and true", "", *shape_table(rows)]
    out += ["### Stamps against the log of the doctor's server", ""]
    out += ["```", exactness["printed"].strip(), "```", ""] if exactness else [_NOT, ""]
    out += ["## Commands", "", *_commands(rows)]
    return "\n".join(out)


def _commands(rows: Sequence[Row]) -> list[str]:
    """One case's commands, paths shortened; the other cases differ in the load alone."""
    out: list[str] = []
    for tool in BY_NAME["paced-256"].tools:
        for row in of(rows, "paced-256", tool)[:1]:
            words = re.sub(r"http://127\.0\.0\.1:\d+", "URL", row["command"])
            words = re.sub(r"(?<![\w.])/(?!v1/)[^ =,']*/(?=[^/ ]+)", "", words)  # folders, not the API's path
            out.append(f"* {_NAMES.get(tool, tool)}: `{words}`")
    return [*out, ""]


def write(page: Path, document: dict[str, Any]) -> None:
    """Put the tables between the page's markers. Raises ValueError where it has none."""
    text = page.read_text()
    if START not in text or END not in text:
        raise ValueError(f"{page}: no {START} and {END}")
    before, after = text.split(START)[0], text.split(END)[1]
    page.write_text(f"{before}{START}\n\n{render(document)}\n{END}{after}")
