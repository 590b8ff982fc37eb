"""The console result at fixed widths, compared with stored text.

UPDATE_GOLDEN=1 rewrites it; UPDATE_GOLDEN=summaries the summaries too."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from benchlab.report.text import as_text, markdown, print_result
from tests.benchlab.report.sample import SWEEP, made_records, made_selection, made_summary, sweep_summary

GOLDEN = Path(__file__).parent / "golden"


def _check(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"differs from {path.name}; UPDATE_GOLDEN=1 rewrites it"


def _stored(name: str, make):
    """A made-up summary kept as a file, so that a new release of numpy's generators changes no golden text."""
    path = GOLDEN / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN") == "summaries":
        path.write_text(json.dumps(make(), indent=1) + "\n", encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def _made(plan, **more):
    return made_summary(*made_records(plan, **more))


def _sweep():
    return _stored("sweep", lambda: sweep_summary()[2])


def _single(fail=False):
    return _stored(f"single-{'failed' if fail else 'ok'}", lambda: _made([("open", 4.0)], fail=fail))


def _mixed():
    return _stored("mixed", lambda: _made([("closed", 2.0), ("open", 2.0), ("closed", 4.0)]))


CASES = {
    "sweep-80": lambda: as_text(_sweep(), width=80, run_path=Path("runs/a"), report_path=Path("runs/a/report.html")),
    "sweep-120": lambda: as_text(_sweep(), width=120),
    "single-80": lambda: as_text(_single(), width=80),
    "nothing-succeeded-80": lambda: as_text(_single(fail=True), width=80),
    "mixed-100": lambda: as_text(_mixed(), width=100),
    "detail-100": lambda: as_text(_sweep(), width=100, detail=True),
    "sweep-markdown": lambda: markdown(_sweep()),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name):
    _check(f"{name}.txt", CASES[name]())


@pytest.mark.parametrize("make", [_sweep, _single, _mixed, lambda: _single(fail=True)])
def test_fits_eighty_columns_with_the_verdict_first(make):
    text = as_text(make(), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[0].startswith("▲ VALID WITH WARNINGS")


def test_open_and_closed_loop_never_share_a_table():
    lines = as_text(_mixed(), width=100).splitlines()
    split = next(i for i, line in enumerate(lines) if line.startswith("closed loop"))
    assert not any("users" in line for line in lines[:split] if "closed" not in line)
    assert any(line.startswith("open loop") for line in lines[:split])


def test_colour_is_never_the_only_carrier():
    """The same words stand there with and without colour."""
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system="truecolor")
    print_result(console, _sweep())
    plain = io.StringIO()
    print_result(Console(file=plain, width=80, color_system=None), _sweep())
    from rich.text import Text

    assert Text.from_ansi(out.getvalue()).plain.split() == plain.getvalue().split()


def test_indicative_figures_are_marked():
    assert "~" in as_text(_single(), width=80)


def test_escape_codes_and_markup_in_names_do_nothing():
    summary = _single()
    summary["stages"][0]["notes"] = ["[bold]x[/bold]"]
    summary["verdict"]["rules"][0] |= {
        "state": "fail",
        "name": "\x1b[31mred\x1b]0;title\x07",
        "hint": "[red]no[/red]\r\n",
    }
    text = as_text(summary, width=100)
    assert "\x1b" not in text and "\x07" not in text and "\r" not in text
    assert "[red]no[/red]" in text


def test_a_summary_with_nothing_in_it_still_prints():
    assert "not judged" in as_text({"schema": 1, "run_id": "r", "stages": []})
    assert "Nothing" not in markdown({})


def test_selection_line_names_both_ends_of_the_bracket():
    records, stages = made_records(SWEEP[:3])
    summary = made_selection(made_summary(records, stages))
    assert "capacity: holds 2 /s, fails at 4 /s" in as_text(summary)
    summary["selection"]["bracket_rps"] = [4.0, None]
    assert "the limit lies higher" in as_text(summary, width=200)
    summary["selection"]["bracket_rps"] = [None, 1.0]
    summary["selection"]["selected_stage"] = None
    assert "no measured rate held; fails at 1 /s" in as_text(summary)


def test_requests_cut_off_count_against_an_objective():
    """A figure that looks met over answers alone is missed when those cut off stand at that percentile."""
    summary = _single()
    summary |= {"objectives": ["ttft.p99<=60s"], "selection": None}
    assert "misses" not in as_text(summary)
    summary["stages"][0]["metrics"]["ttft"]["counting_cut_off"] = {"n": 120, "p99": None}
    summary["selection"] = {"mode": "point", "objectives": ["ttft.p99<=60s"], "bracket_rps": [None, 4.0]}
    assert "misses TTFT p99 ≤ 60 s (not reached)" in " ".join(as_text(summary).split())
