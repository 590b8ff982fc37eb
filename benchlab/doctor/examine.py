"""The whole examination, part by part, in seconds.

The one idea: parts that stand alone (host, ceiling, exactness, endpoint), one result. The host is looked at before
anything loads it; ceiling and exactness share one rig. It must not know how the result is shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchlab import __version__
from benchlab.clients.contract_shape import Check
from benchlab.doctor import ceiling, exactness, host, sizing
from benchlab.doctor.ceiling import Ceiling
from benchlab.doctor.exactness import Error
from benchlab.doctor.host import Fact, Timers
from benchlab.units import format_number

PARTS = ("host", "ceiling", "exactness", "endpoint")
APIS = ("chat", "completions", "messages")
RATES = (100.0, 1000.0, 5000.0)
"""Events a second at which exactness is measured, both kinds of stamp at once."""
TOP_SHARE = 0.6
"""And of one worker's ceiling, one kind after the other."""
_MAX_CORES = 8
_SHARP_MS = 0.1
"""What the first chunk's and the gaps' p99 error should stay below (with kernel stamps)."""

Say = Callable[[str], None]


@dataclass(slots=True)
class Examination:
    """What was found. A part that was not asked for is None (or empty)."""

    version: str = __version__
    took_s: float = 0.0
    facts: list[Fact] = field(default_factory=list)
    timers: Timers | None = None
    ceiling: Ceiling | None = None
    exactness: list[Error] = field(default_factory=list)
    url: str | None = None
    model: str | None = None
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def failed(self) -> list[Check]:
        """The checks of the endpoint that failed."""
        return [check for check in self.checks if check.state == "FAIL"]


def examine(
    *,
    url: str | None,
    parts: Sequence[str] = PARTS,
    apis: Sequence[str] = ("chat",),
    asked: bool = True,
    model: str | None = None,
    headers: Mapping[str, str] | None = None,
    extra: dict[str, Any] | None = None,
    say: Say = lambda _: None,
) -> Examination:
    """Examine this host, and the endpoint at `url` if there is one.

    apis: which to check; `asked`: the user named them, so that one that is not served is a failure. Raises TargetError
    for an endpoint that does not answer, UsageError for an URL or header that cannot be used.
    """
    start = time.monotonic()
    found = Examination()
    if url is not None and "endpoint" in parts:  # first: what does not answer is told at once
        say("endpoint: asking what it serves")
        _endpoint(found, url, apis, asked, model, headers or {}, extra or {}, say)
    if "host" in parts:
        say("host: facts and timers")
        found.facts = host.facts()
        found.timers = host.measure_timers()
        found.notes += host.timer_notes(found.timers)
    if "ceiling" in parts or "exactness" in parts:
        _load(found, parts, say)
    found.notes += _notes(found)
    found.took_s = time.monotonic() - start
    return found


def _load(found: Examination, parts: Sequence[str], say: Say) -> None:
    """Ceiling and exactness: workers 0 to n-1 stamp as runs do, the last one in its callback."""
    from benchlab.doctor.rig import Rig

    cores = max(1, min(sizing.usable_cores(), _MAX_CORES)) if "ceiling" in parts else 1
    with Rig(workers=cores + 1, tokens=ceiling.TOKENS, kernel_stamps=lambda worker: worker < cores) as rig:
        ceiling.warm_up(rig)
        if "ceiling" in parts:
            say("ceiling: this client against a server that never waits")
            found.ceiling = ceiling.measure(rig, cores)
            top = found.ceiling.events_per_s
            if top and found.ceiling.requests_per_s:
                sizing.keep(sizing.Kept(top, found.ceiling.requests_per_s))
        else:
            top = ceiling.measure_sharp(rig, 0.6, workers=[0]).per_cpu_s
        if "exactness" in parts:
            say("exactness: stamps against the server's own log")
            found.exactness = exactness.measure(rig, RATES, TOP_SHARE * (top or RATES[-1]), kernel=0, callback=cores)


def _endpoint(
    found: Examination,
    url: str,
    apis: Sequence[str],
    asked: bool,
    model: str | None,
    headers: Mapping[str, str],
    extra: dict[str, Any],
    say: Say,
) -> None:
    from benchlab.campaign.probe import ask_models, choose_model
    from benchlab.clients.apis import key_headers, make_dialect
    from benchlab.clients.contract import Contract, check_server
    from benchlab.clients.endpoint import parse_endpoint

    endpoint = parse_endpoint(url, flag="URL")
    found.url = endpoint.base
    keyed = {**headers, **key_headers(apis[0], headers)}
    found.model = choose_model(model, ask_models(endpoint, keyed, apis[0]), endpoint)

    async def ask() -> None:
        found.checks += await check_server(endpoint, headers=keyed, model=found.model)
        for api in apis:
            say(f"endpoint: {api}")
            dialect = make_dialect(api, found.model or "", extra)
            sent = {**headers, **key_headers(api, headers)}
            found.checks += await Contract(endpoint, api, dialect, headers=sent, asked=asked).run()

    asyncio.run(ask())


def _notes(found: Examination) -> list[str]:
    """What a reader should take away, in words; empty where all is well."""
    notes = [f"{fact.name.replace('_', ' ')}: {fact.note}" for fact in found.facts if fact.note]
    for error in found.exactness:
        if error.stamps == "kernel" and max(error.first.p99 or 0, error.gap.p99 or 0) > _SHARP_MS:
            worst = format_number(max(error.first.p99 or 0, error.gap.p99 or 0))
            notes.append(f"at {error.rate:,.0f} events/s the stamps' p99 error is {worst} ms, above {_SHARP_MS} ms")
        if error.unmatched:
            notes.append(f"at {error.rate:,.0f} events/s {error.unmatched} answers could not be lined up with the log")
    if found.exactness and not any(error.stamps == "kernel" for error in found.exactness):
        notes.append("this platform gives no kernel stamps: times are taken in the socket's callback")
    held = found.ceiling
    if held is not None and held.streams_held < held.streams_tried:
        notes.append(f"only {held.streams_held:,} of {held.streams_tried:,} streams were open at once")
    return notes
