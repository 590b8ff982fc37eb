"""Rules on a run from several hosts: a lost one fails it by name, clocks only warn."""

from __future__ import annotations

from typing import Any

from benchlab.metrics.hosts import host_rules

MS = 1_000_000


def host(name: str, *clock: tuple[int, int], lost: dict[str, Any] | None = None) -> dict[str, Any]:
    readings = [{"at_ns": 0, "offset_ns": offset, "error_ns": error, "trips": 40} for offset, error in clock]
    return {"name": name, "clock": readings, "lost": lost}


def test_a_run_of_one_host_has_no_such_rules() -> None:
    assert host_rules({}) == host_rules({"hosts": []}) == host_rules({"hosts": None}) == []


def test_a_lost_host_is_named_with_what_it_left_open() -> None:
    lost = {"at_ns": 7_400_000_000, "why": "its node has died", "sending": True, "requests": 45}
    rule, clocks = host_rules({"hosts": [host("a", (0, MS)), host("b", (0, MS), lost=lost)]})
    assert (rule.name, rule.state, rule.value) == ("hosts_lost", "fail", 1)
    assert "node b was lost 7.4 s into the run (its node has died); 45 of its requests" in rule.hint
    assert clocks.state == "pass"


def test_a_host_that_went_when_all_was_told_fails_nothing() -> None:
    lost = {"at_ns": 1, "why": "x", "sending": False, "requests": 0}
    assert host_rules({"hosts": [host("a", (0, MS), lost=lost)]})[0].state == "pass"


def test_drift_and_error_of_a_clock_add_up() -> None:
    far = 3600 * 10**9  # the offset itself is no matter, only what became of it
    hosts = [host("a", (far, MS), (far + 3 * MS, MS)), host("b", (0, MS), (-5 * MS, MS))]
    rule = host_rules({"hosts": hosts})[1]
    assert (rule.name, rule.state, rule.value, rule.limit) == ("hosts_clock_ms", "warn", 6.0, 5.0)
    assert "node b" in rule.hint and "latencies are not touched" in rule.hint
    assert host_rules({"hosts": hosts[:1]})[1].value == 4.0


def test_a_clock_that_was_never_read_is_not_checked() -> None:
    assert host_rules({"hosts": [host("a")]})[1].state == "not checked"
