"""Rules on the hosts that the load came from, where it came from several: none was lost, and their clocks agree.

The one idea: a run on fewer hosts than it began with did not offer the load that it says, however well the others did;
so a lost host fails the run by name. Clocks matter to nothing but the instant at which a stage starts on each host and
to telemetry laid beside it: their error is stated and only warns. It must not know how hosts are joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchlab.metrics.rule import Rule, judged
from benchlab.units import NS_PER_MS, NS_PER_S

CLOCK_LIMIT_MS = 5.0
"""How far apart a stage may begin on two hosts before that is worth a word: what a dispatch may be late."""


def host_rules(manifest: Mapping[str, Any]) -> list[Rule]:
    """The rules; none for a run that was made by one host."""
    hosts = manifest.get("hosts")
    if not isinstance(hosts, list) or not hosts:
        return []
    entries = [host for host in hosts if isinstance(host, Mapping)]
    return [_all_there(entries), _clocks(entries)]


def _all_there(hosts: list[Mapping[str, Any]]) -> Rule:
    lost = [host for host in hosts if (host.get("lost") or {}).get("sending")]
    words = []
    for host in lost:
        facts = host["lost"]
        words.append(
            f"node {host.get('name')} was lost {facts.get('at_ns', 0) / NS_PER_S:.1f} s into the run "
            f"({facts.get('why')}); {facts.get('requests', 0)} of its requests are counted unfinished or not_sent"
        )
    hint = "; ".join(words) + (". Measure again with every node up" if words else "")
    return Rule("hosts_lost", "fail" if lost else "pass", len(lost), 0, hint)


def _clocks(hosts: list[Mapping[str, Any]]) -> Rule:
    """The widest that the start of a stage may differ between a host and the parent: drift since, and the error."""
    widest, which = None, ""
    for host in hosts:
        readings = host.get("clock") or []
        if not readings:
            continue
        first = readings[0]
        off = max(abs(found["offset_ns"] - first["offset_ns"]) + found["error_ns"] for found in readings)
        if widest is None or off > widest:
            widest, which = off, str(host.get("name"))
    value = None if widest is None else widest / NS_PER_MS
    hint = (
        f"stages may have begun up to {0 if value is None else value:.3g} ms apart on node {which}: latencies are not "
        "touched, but arrivals of the hosts interleave less evenly; shorter runs, or time synchronisation on the nodes"
    )
    return judged("hosts_clock_ms", value, CLOCK_LIMIT_MS, hint)
