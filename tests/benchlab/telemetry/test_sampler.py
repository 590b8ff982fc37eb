"""The schedule, the gaps, and a real scrape of a real (small) server."""

from __future__ import annotations

import threading
import time

import pytest

from benchlab.clock import SystemClock
from benchlab.records.sample import Sample
from benchlab.telemetry.sampler import Sampler, _Lane
from benchlab.telemetry.scrape import Scraper, ScrapeSource, metrics_url

S = 1_000_000_000


class Scripted:
    """A source that answers with a count, or fails as told."""

    blocking = False
    period_ns = None

    def __init__(self, name="scripted", fail=()):
        self.name, self.fail = name, fail
        self.notes, self.reads, self.closed = [], 0, False

    def read(self, now):
        self.reads += 1
        if self.reads in self.fail:
            raise RuntimeError("broken")
        return [Sample(now(), self.name, "e", "n", float(self.reads))]

    def close(self):
        self.closed = True


def test_the_grid_is_absolute_and_missed_instants_are_skipped_not_made_up():
    lane = _Lane(Scripted(), 500)
    lane.due_ns = 1000
    lane.schedule(1010)
    assert (lane.due_ns, lane.skipped) == (1500, 0)
    lane.schedule(3100)
    assert (lane.due_ns, lane.skipped) == (3500, 3)
    lane.schedule(3500)
    assert lane.due_ns == 4000


def test_a_time_without_readings_is_a_gap_with_its_reason():
    source = Scripted(fail=(2, 3))
    lane = _Lane(source, S // 2)
    times = iter([0, 0, 0, 4 * S, 4 * S, 4 * S, 4 * S, 4 * S, 4 * S])
    lane.last_ns = 0
    for _ in range(4):
        lane.read(lambda: next(times))

    (gap,) = lane.gaps
    assert (gap.source, gap.start_ns, gap.end_ns) == ("scripted", 0, 4 * S)
    assert "broken" in gap.why
    assert source.notes == ["scripted: a reading failed: RuntimeError: broken"]  # said once


def test_a_sampler_reads_at_once_goes_on_and_stops():
    clock = SystemClock()
    source, other = Scripted(), Scripted("other")
    t0_ns = clock.monotonic_ns()
    with Sampler([source, other], t0_ns, period_ns=5_000_000, notes=["no GPU"]) as sampler:
        assert source.reads == 1  # before any load
        deadline = time.monotonic() + 20
        while source.reads < 5 and time.monotonic() < deadline:
            time.sleep(0.005)
    samples = sampler.samples()

    assert source.reads >= 5 and source.closed and other.closed
    assert [s.t_ns for s in samples] == sorted(s.t_ns for s in samples)
    assert samples[0].t_ns >= 0
    assert sampler.notes == ["no GPU"]
    assert sampler.facts()["readings"] == {"scripted": source.reads, "other": other.reads}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("telemetry-")]


def test_a_slow_blocking_source_does_not_hold_up_the_others():
    quick, release = Scripted(), threading.Event()

    class Slow(Scripted):
        blocking = True

        def read(self, now):
            if self.reads:
                release.wait(30)
            return super().read(now)

    slow = Slow("slow")
    sampler = Sampler([quick, slow], SystemClock().monotonic_ns(), period_ns=5_000_000).start()
    deadline = time.monotonic() + 20
    while quick.reads < 6 and time.monotonic() < deadline:
        time.sleep(0.005)
    release.set()
    sampler.stop()

    assert quick.reads >= 6 and slow.closed


def scrape(source, t=0):
    return {s.metric + s.labels: s for s in source.read(lambda: t)}


def test_a_scrape_under_our_names(server):
    server.page = b"vllm:num_requests_running 3\nvllm:prompt_tokens_total 100\nunknown 1\n"
    source = ScrapeSource(Scraper(server.url))
    found = scrape(source)
    source.close()

    assert found["running"].value == 3 and not found["running"].counter
    assert found["prompt_tokens"].value == 100 and found["prompt_tokens"].counter
    assert found["up"].value == 1 and found["up"].entity == server.url
    assert "scrape_duration_s" in found and "unknown" not in found
    assert source.notes == []


def test_a_scrape_that_fails_is_a_note_once_and_no_error(server):
    server.status = 404
    source = ScrapeSource(Scraper(server.url))
    for _ in range(3):
        assert scrape(source)["up"].value == 0
    source.close()

    assert source.notes == [f"scrape: {server.url}: answered 404"]


def test_c79_a_restart_in_the_numbers_is_noted_with_its_time(server):
    source = ScrapeSource(Scraper(server.url))
    for t, page in ((0, b"vllm:prompt_tokens_total 160\n"), (2 * S, b"vllm:prompt_tokens_total 20\n")):
        server.page = page
        scrape(source, t)
    source.close()

    assert source.restarts == [2 * S]
    assert "restarted" in source.notes[0] and "prompt_tokens went down, at 2.0 s" in source.notes[0]


def test_c82_twins_are_noted_and_a_label_filter_keeps_one(server):
    server.page = (
        b'vllm:request_success_total{instance="10.0.0.5:8000"} 200\n'
        b'vllm:request_success_total{instance="pod-a:metrics"} 200\n'
    )
    both, one = ScrapeSource(Scraper(server.url)), ScrapeSource(Scraper(server.url, only={"instance": "pod-a:metrics"}))
    twice, once = scrape(both), scrape(one)
    both.close()
    one.close()

    assert twice["requests_done"].value == 400 and "2 times" in both.notes[0]
    assert once["requests_done"].value == 200 and one.notes == []


def test_a_user_name_in_the_address_is_not_stored(server):
    source = ScrapeSource(Scraper(server.url.replace("127.0.0.1", "me:pw@127.0.0.1")))
    server.page = b"vllm:num_requests_running 1\n"
    found = scrape(source)
    source.close()

    assert "pw" not in found["up"].entity


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:1", "http://h:1/metrics"),
        ("http://h:1/v1", "http://h:1/metrics"),
        ("http://h:1/v1/chat/completions", "http://h:1/metrics"),
        ("http://h:1/gate/v1/", "http://h:1/gate/metrics"),
        ("http://h:1/metrics", "http://h:1/metrics"),
        ("h:1", "http://h:1/metrics"),
    ],
)
def test_where_metrics_are(url, expected):
    assert metrics_url(url) == expected


def test_importing_the_room_loads_nothing_heavy():
    import subprocess
    import sys

    code = (
        "import sys, benchlab.telemetry, benchlab.telemetry.sampler, benchlab.telemetry.scrape,"
        "benchlab.telemetry.nvml, benchlab.telemetry.host\n"
        "assert not {'httpx', 'pynvml', 'pyarrow', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
