"""C80: a baseline that waits for what the server has not published yet."""

from __future__ import annotations

from benchlab.clock import ManualClock
from benchlab.telemetry.prometheus import ScrapeError
from benchlab.telemetry.settle import settle_baseline


class Server:
    """A server whose counters are a function of the time."""

    def __init__(self, at):
        self.clock, self.at = ManualClock(), at

    def scrape(self):
        return self.at(self.clock.now_ns / 1e9)

    def settle(self, **options):
        return settle_baseline(self.scrape, self.clock, lambda s: self.clock.advance(round(s * 1e9)), **options)


def test_c80_a_late_warmup_observation_is_not_counted_to_the_window():
    def page(t):
        return {"ttft_sum": 9.0, "ttft_count": 1} if t >= 0.3 else {"ttft_sum": 0.0, "ttft_count": 0}

    server = Server(page)
    baseline = server.settle()

    assert baseline.clean and baseline.values == {"ttft_sum": 9.0, "ttft_count": 1}
    after = {"ttft_sum": 9.0 + 10 * 0.2, "ttft_count": 11}
    mean = (after["ttft_sum"] - baseline.values["ttft_sum"]) / (after["ttft_count"] - baseline.values["ttft_count"])
    assert round(mean, 6) == 0.2
    assert baseline.waited_ns >= 1_300_000_000


def test_a_server_that_never_rests_is_flagged_with_what_moves():
    baseline = Server(lambda t: {"a{}": 1.0, "tokens{}": t}).settle(limit_ns=2_000_000_000)

    assert not baseline.clean
    assert baseline.reason == "tokens still moves after 2.0 s"
    assert baseline.values["a{}"] == 1.0


def test_a_server_that_cannot_be_scraped_is_flagged_with_why():
    def broken(t):
        raise ScrapeError("answered 500", where="http://h/metrics")

    baseline = Server(broken).settle(limit_ns=1_000_000_000)
    assert (baseline.clean, baseline.values, baseline.scrapes) == (False, {}, 0)
    assert "answered 500" in baseline.reason


def test_a_failure_in_between_starts_the_quiet_time_again():
    def flaky(t):
        if 0.5 < t < 0.7:
            raise ScrapeError("answered 503")
        return {"a": 1.0}

    baseline = Server(flaky).settle()
    assert baseline.clean and baseline.waited_ns >= 1_600_000_000
