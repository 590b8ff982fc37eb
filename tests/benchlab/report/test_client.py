"""The sentence on the load generator: its certificate at its worst, and silence where there is none."""

from __future__ import annotations

from benchlab.report.client import client_line
from benchlab.report.text import as_text


def client(**more) -> dict:
    plain = {
        "workers": [{"worker": 0}],
        "headroom": 46.7,
        "cpu_share": 0.0212,
        "dispatch_lag_ms": {"p50": 0.1, "p99": 0.31, "max": 1.0},
        "loop_lag_ms": {"p50": 0.1, "p99": 0.9, "max": 1.0},
        "stamps": "kernel",
        "stamp_error_ms": 0.00007,
        "not_sent": 0,
    }
    return plain | more


def test_it_says_the_worst_of_all_stages() -> None:
    worse = client(headroom=3.14, loop_lag_ms={"p99": 12.0}, stamp_error_ms=20.04, stamps="callback", not_sent=1200)

    assert client_line({"stages": [{"client": client()}]}) == (
        "headroom 47×, 2.1 % of a core, dispatch lag p99 0.31 ms, loop lag p99 0.90 ms, "
        "times within 0.1 ms (kernel stamps)"
    )
    assert client_line({"stages": [{"client": client()}, {"client": worse}]}) == (
        "headroom 3.1×, 2.1 % of a core, dispatch lag p99 0.31 ms, loop lag p99 12 ms, "
        "times within 20 ms (mixed stamps), 1,200 not sent"
    )


def test_what_is_not_known_is_not_said() -> None:
    assert client_line({}) is None
    assert client_line({"stages": [{}, {"client": None}, {"client": 3}]}) is None
    assert client_line({"stages": [{"client": {"workers": []}}]}) is None
    assert client_line({"stages": [{"client": {"workers": [{}], "headroom": None, "loop_lag_ms": "?"}}]}) is None


def test_it_stands_below_the_headline() -> None:
    shown = as_text({"verdict": {"state": "VALID", "rules": []}, "stages": [{"client": client()}]})

    assert "client: headroom 47×" in shown
    assert "client:" not in as_text({"verdict": {"state": "VALID", "rules": []}, "stages": [{}]})
