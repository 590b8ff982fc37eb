"""An engine's `/metrics`, fetched on our clock and told under our names.

The values are from some instant between the question and the answer: they are stamped in its middle, and how long it
took is a metric of its own (an engine whose answer takes 3 s is telling something). It never makes a run fail.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from benchlab.records.manifest import redact_text
from benchlab.records.sample import Sample
from benchlab.telemetry.names import Reading, Row, known_series, translate
from benchlab.telemetry.prometheus import (
    MAX_BYTES,
    Exposition,
    ScrapeError,
    find_duplicates,
    parse_exposition,
)

if TYPE_CHECKING:
    import httpx

Now = Callable[[], int]

MAX_NOTES = 50


def metrics_url(url: str) -> str:
    """Where an endpoint's metrics usually are: `/metrics` at its root, with any API path (`/v1`) taken off."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    path = re.sub(r"/v\d+(/.*)?$", "", parts.path.rstrip("/"))
    return urlunsplit((parts.scheme, parts.netloc, path if path.endswith("/metrics") else f"{path}/metrics", "", ""))


class Scraper:
    """One metrics page. headers: sent along (authorisation); never stored. only: labels that a series must have."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        only: Mapping[str, str] | None = None,
        rows: Sequence[Row] | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        self.url = url
        self.entity = redact_text(url)
        self.rows = rows
        self._headers, self._only, self._timeout_s = dict(headers or {}), dict(only or {}), timeout_s
        self._client: httpx.Client | None = None

    def fetch(self) -> Exposition:
        """The page as it is now, less the series that `only` leaves out. Raises ScrapeError."""
        import httpx

        if self._client is None:
            # a proxy of the environment would answer for another machine, or hide that this one is down
            self._client = httpx.Client(trust_env=False, timeout=self._timeout_s, headers=self._headers)
        try:
            with self._client.stream("GET", self.url) as response:
                if response.status_code != 200:
                    raise ScrapeError(f"answered {response.status_code}", where=self.entity)
                page = self._read(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ScrapeError(f"{type(error).__name__}: {error}", where=self.entity) from error
        result = parse_exposition(page, where=self.entity)
        if self._only:
            wanted = set(self._only.items())
            result.series = [series for series in result.series if wanted <= set(series.labels)]
        return result

    def _read(self, response: httpx.Response) -> bytes:
        """The body, bounded in size and in time (a server that drips bytes passes every timeout between reads)."""
        parts, size, until = [], 0, time.monotonic() + 2 * self._timeout_s
        for part in response.iter_bytes():
            parts.append(part)
            size += len(part)
            if size > MAX_BYTES:
                raise ScrapeError(f"the metrics page is larger than {MAX_BYTES // 2**20} MiB", where=self.entity)
            if time.monotonic() > until:
                raise ScrapeError("the metrics page does not end", where=self.entity)
        return b"".join(parts)

    def counters(self) -> dict[str, float]:
        """All counters of the page, by our name and labels; for a baseline (`settle`). Raises ScrapeError."""
        return {f"{r.metric}{{{r.labels}}}": r.value for r in translate(self.fetch(), self.rows) if r.counter}

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None


class ScrapeSource:
    """A Scraper as a source of Samples. It runs in a thread of its own: a slow engine must not stop the other clocks.

    notes: what was odd, each thing once: failures, duplicates, broken lines, a restart seen in the numbers.
    restarts: when (ns from t0) a restart was seen.
    """

    name = "engine"
    blocking = True

    def __init__(self, scraper: Scraper, *, period_ns: int = 1_000_000_000) -> None:
        self.scraper = scraper
        self.period_ns: int | None = period_ns
        self.notes: list[str] = []
        self.restarts: list[int] = []
        self._said: set[str] = set()
        self._before: dict[str, float] = {}
        self._names: set[str] = set()

    def read(self, now: Now) -> list[Sample]:
        """One scrape; a failed one is a Sample `up` of 0 with the reason, and a note the first time."""
        asked_ns, entity = now(), self.scraper.entity
        try:
            page = self.scraper.fetch()
        except ScrapeError as error:
            self._note(f"scrape: {error.where}: {error.what}")
            return [Sample(asked_ns, self.name, entity, "up", 0.0, reason=error.what)]
        answered_ns = now()
        t_ns = (asked_ns + answered_ns) // 2
        readings = translate(page, self.scraper.rows)
        self._look_at(page, readings, t_ns)
        samples = [Sample(t_ns, self.name, entity, r.metric, r.value, r.counter, r.labels) for r in readings]
        samples.append(Sample(t_ns, self.name, entity, "up", 1.0))
        samples.append(Sample(t_ns, self.name, entity, "scrape_duration_s", (answered_ns - asked_ns) / 1e9))
        return samples

    def close(self) -> None:
        """Close the connection."""
        self.scraper.close()

    def _note(self, text: str) -> None:
        if text not in self._said and len(self.notes) < MAX_NOTES:
            self._said.add(text)
            self.notes.append(text)

    def _look_at(self, page: Exposition, readings: list[Reading], t_ns: int) -> None:
        """What the page shows beside its numbers: broken lines, duplicates, a restart, no name that we know."""
        entity = self.scraper.entity
        if page.problems:
            self._note(f"scrape: {entity}: {page.broken_lines} broken lines, the first: {page.problems[0]}")
        if not readings:
            self._note(f"scrape: {entity}: {len(page.series)} series, none under a name that benchlab knows")
        names = {series.name for series in page.series}
        if names != self._names:  # which series there are changes rarely: look for twins then only
            self._names = names
            for twin in find_duplicates(known_series(page, self.scraper.rows))[:10]:
                self._note(f"scrape: {entity}: {twin}; keep one with a label filter")
        values = {f"{r.metric}{{{r.labels}}}": r.value for r in readings if r.counter or r.metric == "process_started"}
        fell = [key for key, value in values.items() if value < self._before.get(key, value)]
        born, born_before = values.get("process_started{}"), self._before.get("process_started{}")
        if fell or (born is not None and born_before is not None and born != born_before):
            self.restarts.append(t_ns)
            why = f"{fell[0].removesuffix('{}')} went down" if fell else "its process start time changed"
            self._note(
                f"scrape: {entity}: the server was restarted, or its counters were ({why}, at {t_ns / 1e9:.1f} s)"
            )
        self._before = values
