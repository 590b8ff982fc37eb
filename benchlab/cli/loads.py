"""Flags that say what load there is: stages from rates, users and ramps, and the shapes of arrivals and pauses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchlab.campaign.spec import Load, RunSpec, Warmup
from benchlab.clients.transports import resolve_transport
from benchlab.errors import UsageError
from benchlab.loadgen.abandon import check_rules, parse_abandon
from benchlab.loadgen.arrivals import Arrival, from_burstiness, parse_arrival
from benchlab.loadgen.limits import parse_sources
from benchlab.loadgen.rate_curve import parse_ramp
from benchlab.loadgen.think import ThinkTime, parse_think
from benchlab.loadgen.trace_times import parse_trace_shape
from benchlab.units import NS_PER_S, parse_duration_ns, parse_rate

_DEFAULT_USERS = (1, 4, 16)
_MAX_STAGES = 1000
_UNLIMITED_NS = 3600 * NS_PER_S


def words(text: str | None) -> list[str]:
    """The words between commas."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def parse_loads(flags: Mapping[str, Any], *, sweep: bool) -> list[Load]:
    """The stages, in the order -r, --ramp, -c. Raises UsageError."""
    arrival = _arrival(flags)
    loads = [Load("open", rate=rate, arrival=arrival) for rate in _rates(flags["rate"])]
    for text in flags.get("ramp") or []:
        ramp = parse_ramp(text)
        if arrival.kind == "trace":
            hint = "take one of them, or give the trace a mean rate with -r"
            raise UsageError("a trace has times of its own", where="--ramp, --arrival trace", hint=hint)
        loads.append(Load("open", rate=ramp.mean, arrival=arrival, ramp=ramp))
    loads += [Load("closed", concurrency=users) for users in _users(flags["concurrency"])]
    if not loads and arrival.kind == "trace":
        loads = [Load("open", arrival=Arrival("trace"))]
    if not loads and sweep:
        raise UsageError("a sweep needs loads", where="-r/--rate, -c/--concurrency", hint="write -r 1,2,4 or -c 1,4,16")
    return loads or [Load("closed", concurrency=users) for users in _DEFAULT_USERS]


def parse_shapes(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a RunSpec that shape its load beside the stages. Raises UsageError."""
    rules = tuple(parse_abandon(text) for text in flags.get("abandon") or [])
    check_rules(rules)
    trace = parse_trace_shape(
        flags.get("trace_scale"), flags.get("trace_clip"), flags.get("trace_loop"), flags.get("trace_spread")
    )
    asked = [f"--trace-{name}" for name in ("scale", "loop", "spread") if flags.get(f"trace_{name}") is not None]
    if asked and flags["arrival"] != "trace":
        raise UsageError("there is no trace to shape", where=asked[0], hint="add --arrival trace")
    pacing = flags.get("pacing", "normal")
    if pacing not in ("normal", "precise"):
        raise UsageError(f"'{pacing}' is not known here", where="--pacing", hint="one of normal, precise")
    sources = tuple(parse_sources(flags.get("source_address")))
    if sources and resolve_transport(flags.get("transport", "auto")) != "native":
        raise UsageError("only our own transport has them", where="--source-address", hint="--transport native")
    return {
        "think": parse_think(flags["think"]) if flags["think"] else ThinkTime(),
        "trace": trace,
        "abandon": rules,
        "pacing": pacing,
        "source_addresses": sources,
        "stage_limit_ns": _stage_limit(flags),
        "abort_ns": _time_or_none(flags.get("abort_after", "none"), "--abort-after"),
    }


_NOT_WITH_REPLAY = {
    "rate": "-r/--rate", "concurrency": "-c/--concurrency", "ramp": "--ramp", "duration": "--duration",
    "requests": "-n/--requests", "isl": "--isl", "osl": "--osl", "burstiness": "--burstiness", "think": "--think",
    "trace_clip": "--trace-clip",
}  # fmt: skip


def with_replay(spec: RunSpec, flags: Mapping[str, Any]) -> RunSpec:
    """The specification with the stages, items and seeds of a stored run. Raises UsageError."""
    from benchlab.campaign.replay import read_replay

    other = [flag for name, flag in _NOT_WITH_REPLAY.items() if flags.get(name)]
    other += ["--arrival"] * (flags["arrival"] != "poisson")
    if other:
        hint = "leave it out: the stored run says what is sent and when"
        raise UsageError("a replay has its load already", where=f"--replay, {other[0]}", hint=hint)
    found = read_replay(flags["replay"], data=spec.data if flags["data"] else None)
    return replace(
        spec,
        loads=found.loads,
        data=found.data,
        recipe=found.recipe,
        isl=found.isl,
        osl=found.osl,
        seed=found.seed,
        arrival_seed=found.arrival_seed,
        cache=found.cache,
        tokenizer=spec.tokenizer or found.tokenizer,
        duration_ns=None,
        warmup=Warmup(),
        replay=Path(flags["replay"]),
    )


def _arrival(flags: Mapping[str, Any]) -> Arrival:
    burstiness = flags.get("burstiness")
    if burstiness is None:
        return parse_arrival(flags["arrival"])
    if flags["arrival"] != "poisson":
        raise UsageError("both say how arrivals are spread", where="--burstiness, --arrival", hint="give one of them")
    return from_burstiness(burstiness)


def _stage_limit(flags: Mapping[str, Any]) -> int | None:
    """A stage of so many requests without any time limit could hang for ever: it gets one."""
    asked = flags.get("stage_limit")
    if asked is not None:
        return _time_or_none(asked, "--stage-limit")
    return _UNLIMITED_NS if flags["timeout"] == "none" and flags["requests"] is not None else None


def _time_or_none(text: str, flag: str) -> int | None:
    return None if text == "none" else parse_duration_ns(text, flag=flag)


def _rates(text: str | None) -> list[float]:
    if text is not None and not words(text):
        raise UsageError("no rate was given", where="-r/--rate", hint="write -r 1,2,4")
    return _expanded(text, lambda word: parse_rate(word, flag="-r/--rate"), "-r/--rate")


def _users(text: str | None) -> list[int]:
    if text is not None and not words(text):
        raise UsageError("no number of users was given", where="-c/--concurrency", hint="write -c 1,4,16")
    found = _expanded(text, _user, "-c/--concurrency")
    return list(dict.fromkeys(round(number) for number in found)) if ".." in (text or "") else [int(n) for n in found]


def _user(word: str) -> float:
    if not word.isdecimal() or int(word) < 1:
        raise UsageError(f"'{word}' is no number of users", where="-c/--concurrency", hint="write -c 1,4,16")
    return float(int(word))


def _expanded(text: str | None, number: Callable[[str], float], flag: str) -> list[float]:
    """'1,4,16', '1..32:x2' (1, 2, 4, ... 32) and '2..10:+2' (2, 4, ... 10), mixed as one likes."""
    found: list[float] = []
    for word in words(text):
        low, dots, rest = word.partition("..")
        if not dots:
            found.append(number(word))
            continue
        high, colon, step = rest.partition(":")
        first, last = number(low), number(high)
        by = _step(step, word, flag) if colon else 0.0
        if not colon or first > last:
            raise UsageError(f"'{word}' is no range", where=flag, hint="write 1..32:x2 or 2..10:+2")
        count = (math.log(last / first) / math.log(by) if step[0] == "x" else (last - first) / by) + 1e-9
        if len(found) + count > _MAX_STAGES:
            raise UsageError(f"'{word}' makes more than {_MAX_STAGES} stages", where=flag, hint="take larger steps")
        at = range(math.floor(count) + 1)
        found += [float(f"{first * by**n if step[0] == 'x' else first + by * n:.12g}") for n in at]
    return found


def _step(step: str, word: str, flag: str) -> float:
    try:
        by = float(step[1:])
    except ValueError:
        by = -1.0
    if not math.isfinite(by) or not ((step[:1] == "x" and by > 1) or (step[:1] == "+" and by > 0)):
        hint = "steps are x2 (times, above 1) or +2 (plus, above 0): 1..32:x2, 2..10:+2"
        raise UsageError(f"'{word}' has no step that leads up", where=flag, hint=hint)
    return by
