"""JUnit: gates as tests, and no green gate on an INVALID measurement."""

from __future__ import annotations

from xml.etree import ElementTree

from benchlab.report.junit import junit

_RULES = [
    {"name": "rate_held", "state": "pass", "value": 1, "limit": 1, "hint": ""},
    {"name": "lag", "state": "fail", "value": "9 < 10 & \x1b</failure>", "limit": 5, "hint": "]]>"},
    {"name": "telemetry", "state": "not checked", "value": None, "limit": None, "hint": ""},
]
_GATES = [
    {"name": "tpot.p95<40ms", "passed": True, "value": 31.0, "limit": 40.0},
    {"name": "ttft.p99<1s", "passed": False, "value": None, "limit": 1000.0},
    {"name": "no verdict", "value": 1.0, "limit": 1.0},
]


def _parse(state: str):
    return ElementTree.fromstring(junit({"verdict": {"state": state, "rules": _RULES}, "gates": _GATES}))


def test_counts_and_results():
    validity, gates = _parse("WARN")
    assert (validity.get("tests"), validity.get("failures"), validity.get("skipped")) == ("3", "1", "1")
    assert (gates.get("tests"), gates.get("failures"), gates.get("errors")) == ("3", "2", "0")


def test_an_invalid_measurement_turns_no_gate_green():
    _, gates = _parse("INVALID")
    assert gates.get("errors") == "3"


def test_a_run_without_gates_is_a_document():
    assert [suite.get("tests") for suite in ElementTree.fromstring(junit({}))] == ["0", "0"]
