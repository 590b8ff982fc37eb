"""A baseline at a stage's edge: scraped until the server has published everything, or flagged as unclean.

Servers publish their observations late. A baseline taken at once would count the last warm-up request to the
measured window (C80). Clock, pause and scrape are handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchlab.clock import Clock
from benchlab.telemetry.prometheus import ScrapeError

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Baseline:
    """values: the last page's counters ({} when none could be had). clean: unchanged for the whole quiet time.

    reason: why not, else "". scrapes: how many it took. waited_ns: how long. at_ns: when (clock's own zero).
    """

    values: dict[str, float]
    clean: bool
    reason: str
    scrapes: int
    waited_ns: int
    at_ns: int


def settle_baseline(
    scrape: Callable[[], dict[str, float]],
    clock: Clock,
    pause: Callable[[float], object],
    *,
    quiet_ns: int = NS_PER_S,
    limit_ns: int = 5 * NS_PER_S,
    every_ns: int = NS_PER_S // 5,
) -> Baseline:
    """Repeat `scrape` (such as `Scraper.counters`) until its counters have not moved for `quiet_ns`.

    Two equal pages prove little: a server may publish once a second, so the quiet time must be longer than that.
    pause: sleeps so many seconds. After `limit_ns` the last page is given with clean=False, and the reason.
    """
    began_ns = clock.monotonic_ns()
    values: dict[str, float] = {}
    same_since_ns: int | None = None
    scrapes, moved, failed = 0, "", ""
    while True:
        try:
            page = scrape()
            scrapes += 1
            failed = ""
            now_ns = clock.monotonic_ns()
            if same_since_ns is None or page != values:
                moved = next((key for key in page if page[key] != values.get(key)), "a series that went away")
                values, same_since_ns = page, now_ns
        except ScrapeError as error:
            failed, same_since_ns, now_ns = str(error), None, clock.monotonic_ns()
        if same_since_ns is not None and now_ns - same_since_ns >= quiet_ns:
            return Baseline(values, True, "", scrapes, now_ns - began_ns, now_ns)
        if now_ns - began_ns >= limit_ns:
            reason = failed or f"{moved.removesuffix('{}')} still moves after {(now_ns - began_ns) / NS_PER_S:.1f} s"
            return Baseline(values, False, reason, scrapes, now_ns - began_ns, now_ns)
        pause(every_ns / NS_PER_S)
