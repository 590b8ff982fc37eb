"""What the comparison with other clients is worked out from: the server's log, pairs of stamps, targets, the page."""

import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.peers import exact, install, page, server_log, targets, tools, watch
from tests.benchmarks.peers.cases import CASES, PEERS, Case
from tests.benchmarks.peers.server_log import Answer

MS = 1_000_000


def answer(name: str, read_ms: float, *content_ms: float, whole: bool = True) -> Answer:
    content = np.array([round(ms * MS) for ms in content_ms], dtype=np.int64)
    return Answer(name, round(read_ms * MS), int(content[-1]), content, whole, 100)


def record(name: str, read: int, times: list[int], *, first: int = 0, flags: int = 8, magic: int = 0x31435250) -> bytes:
    n = len(times) - first
    head = struct.pack(
        "<IIQqqIIIIiI48s", magic, len(times), 1, read, times[-1], n, first, n, flags, 5, 300, name.encode()
    )
    return head + struct.pack(f"<{len(times)}q", *times)


def test_the_log_is_read_in_order_of_arrival_and_a_role_chunk_is_no_content(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(record("b", 20, [30, 40]) + record("a", 10, [11, 50, 60], first=1) + record("c", 30, [31], flags=9))
    a, b, c = server_log.read(log)
    assert (a.id, a.read_ns, list(a.content_ns), a.whole) == ("a", 10, [50, 60], True)
    assert (b.id, list(b.content_ns)) == ("b", [30, 40])
    assert not c.whole
    log.write_bytes(record("a", 10, [11], magic=1))
    with pytest.raises(ValueError, match="no log"):
        server_log.read(log)


def test_probes_before_the_load_are_left_out_and_pauses_within_it_are_not() -> None:
    load = [answer(str(n), 5000 + n, 5010 + n) for n in range(20)]
    late = answer("late", 9000, 9001)
    kept = server_log.without_probes([answer("probe", 0, 1), *load, late])
    assert kept == [*load, late]
    assert server_log.without_probes(load) == load


def test_arrivals_on_the_grid_and_by_the_law() -> None:
    even = [answer(str(n), 5 * n, 5 * n + 1) for n in range(400)]
    found = server_log.arrivals(even, "constant", 200)
    assert found["rate"] == pytest.approx(200)
    assert found["gap_cv"] == pytest.approx(0, abs=1e-9)
    assert found["off_grid_p99_ms"] == pytest.approx(0, abs=1e-6)
    assert server_log.arrivals(even, "poisson", 200)["ks"] > 0.5
    at = np.cumsum(np.random.default_rng(1).exponential(5, 2000))
    drawn = server_log.arrivals([answer(str(n), ms, ms + 1) for n, ms in enumerate(at)], "poisson", 200)
    assert drawn["ks"] < drawn["ks_limit"]


def test_stamps_are_paired_by_id_or_order_and_merged_chunks_are_judged_by_their_slack() -> None:
    truth = [answer("a", 0, 10, 20, 30), answer("b", 1, 11, 21, 31)]
    sharp = np.zeros(3)
    b = ("b", 2.0, np.array([11.5, 21.5, 31.5]) * MS, sharp)
    a = ("a", 1.0, np.array([10.0, 30.0, 30.0]) * MS, np.array([0.0, 11.0 * MS, 0.0]))
    found = exact._compare([b, a], truth)
    assert found["first"]["max"] == pytest.approx(0.5)
    assert found["gap"]["max"] == pytest.approx(0)
    assert (found["merged_share"], found["covered_share"]) == (1 / 6, 1.0)
    nameless = [(None, 1.0, a[2], sharp), (None, 2.0, b[2][:2], sharp[:2])]
    found = exact._compare(nameless, truth)
    assert found["unpaired"] == 1
    assert found["gap"]["max"] == pytest.approx(10)
    early = ("a", 1.0, np.array([10.0, 30.0, 30.0]) * MS, np.array([0.0, 1.0 * MS, 0.0]))
    assert exact._compare([early], truth)["covered_share"] == 0.0


def test_costs_are_those_of_the_window() -> None:
    at = [0, 10, 20, 30]
    seen = watch.Watched(0, 0, 30, at, [0, 1, 3, 3], [0, 0, 1, 1], [0, 2, 6, 6], [0, 0, 0, 0], 1, 1, 1)
    assert seen.cost((5, 20)) == {"client_s": 2.5, "server_s": 1.0, "others_s": 1.5}


def test_what_was_not_measured_does_not_hold_and_ratios_are_of_the_same_round() -> None:
    assert all(target.holds is None for target in targets.all_of([]))
    rows = [
        {"case": "closed-64", "tool": tool, "round": n, "events_s": rate, "server_share": 0.9}
        for tool, rates in (("benchlab", (100.0, 400.0, 900.0)), ("vllm", (50.0,)), ("floor", (120.0, 1.0, 1.0)))
        for n, rate in enumerate(rates)
    ]
    against = targets.all_of(rows)[0]
    assert (against.value, against.holds) == (2.0, False)
    assert "the floor: 2.4 x" in against.note
    rows[0]["events_s"] = 250.0
    assert targets.all_of(rows)[0].holds


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_client_of_a_case_is_told_its_load(case: Case, tmp_path: Path) -> None:
    for tool in case.tools:
        argv = tools.command(tool, case, seed=0, peers=Path("/peers"), out=tmp_path, url="http://host")
        if tool == "genai-bench" and case.kind != "closed":
            assert argv is None
            continue
        told = " ".join(argv) + ((tmp_path / "config.yml").read_text() if tool == "inference-perf" else "")
        numbers = re.findall(r"(?<![\w.])\d+(?![\w.])", told.replace(str(tmp_path), ""))
        assert {str(case.tokens), str(case.level)} <= set(numbers)
    assert set(case.tools) <= {"benchlab", "benchlab-2", "benchlab-precise", "floor", *PEERS}


def test_the_page_is_made_of_the_rows_alone(tmp_path: Path) -> None:
    place = tmp_path / "page.md"
    place.write_text(f"before\n{page.START}\nold\n{page.END}\nafter\n")
    host = {
        "cpu": "a cpu",
        "cores": 2,
        "kernel": "6",
        "python": "3.11",
        "wheels": {peer.name: list(peer.wheels) for peer in install.PEERS},
    }
    row = {
        "case": "closed-64", "tool": "floor", "round": 0, "exit": 0, "seconds": 3.0, "events_s": 12345.0, "load": 0.5,
        "at": "2026-01-02T03:04:05+00:00", "cpu_per_1k": 0.01, "command": "x", "others_cores": 0.1,
    }  # fmt: skip
    command = "/peers/vllm/bin/python /a/b.py --base-url http://127.0.0.1:80 --endpoint /v1/chat/completions x=/c/d,m=e"
    document = {"host": host, "rows": [row, row | {"case": "paced-256", "command": command}]}
    page.write(place, json.loads(json.dumps(document)))
    text = place.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "12,345" in text and "2026-01-02" in text and "not measured" in text
    assert "`python b.py --base-url URL --endpoint /v1/chat/completions x=d,m=e`" in text
    assert "12,345 ev/s" in page.line(row)
    place.write_text("no markers")
    with pytest.raises(ValueError, match="no <!--"):
        page.write(place, document)
