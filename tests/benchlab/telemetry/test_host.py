"""The host and process trees, from a made-up /proc and from the real one."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from benchlab.telemetry.host import HostSource, host_facts
from benchlab.telemetry.proctree import ProcessTree

S = 1_000_000_000
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


def make_proc(folder, cpu="cpu  100 0 100 700 50 0 0 50 0 0"):
    (folder / "net").mkdir(exist_ok=True)
    (folder / "stat").write_text(cpu + "\ncpu0 1 2 3\n")
    (folder / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 600 kB\nHugePages_Total: 0\n")
    (folder / "net" / "dev").write_text(
        "Inter-| Receive | Transmit\n face |bytes\n"
        "    lo: 70 1 0 0 0 0 0 0 80 1 0 0 0 0 0 0\n  eth0:11 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n"
        "  eth1: 100 1 0 0 0 0 0 0 200 1 0 0 0 0 0 0\n"
    )
    return folder


def add_process(folder, pid, parent, ticks, started=7, state="S", name="a ) b"):
    (folder / str(pid) / "task" / str(pid)).mkdir(parents=True, exist_ok=True)
    fields = [state, parent, 1, 1, 0, 0, 0, 0, 0, 0, 0, ticks, 0, 0, 0, 20, 0, 2, 0, started, 1000, 3]
    (folder / str(pid) / "stat").write_text(f"{pid} ({name}) " + " ".join(str(field) for field in fields) + "\n")


def named(samples, entity="host"):
    return {s.metric: s.value for s in samples if s.entity == entity}


def test_shares_of_a_window_and_figures_of_now(tmp_path):
    proc = make_proc(tmp_path)
    source = HostSource(proc=proc)
    first = named(source.read(lambda: 0))
    make_proc(tmp_path, "cpu  150 0 110 720 60 0 0 60 0 0")
    second = named(source.read(lambda: S))

    assert "cpu_share" not in first  # a share needs two readings
    assert second["cpu_share"] == pytest.approx(0.6)
    assert second["cpu_steal_share"] == pytest.approx(0.1)
    assert (second["memory_used_bytes"], second["memory_total_bytes"]) == (400 * 1024, 1000 * 1024)
    assert (second["net_rx_bytes"], second["net_tx_bytes"]) == (111, 220)
    assert (second["net_loopback_rx_bytes"], second["net_loopback_tx_bytes"]) == (70, 80)


def test_without_proc_what_is_missing_is_said_once(tmp_path):
    source = HostSource(proc=tmp_path)
    first, second = source.read(lambda: 0), source.read(lambda: S)

    assert {s.metric for s in first if s.value is None} >= {"cpu_share", "memory_used_bytes"}
    assert all(s.reason for s in first if s.value is None)
    assert [s for s in second if s.value is None] == []
    assert "no /proc" in source.notes[0]


def test_a_trees_cpu_never_goes_down_when_a_child_ends(tmp_path):
    hertz = os.sysconf("SC_CLK_TCK")
    add_process(tmp_path, 10, 1, ticks=100)
    add_process(tmp_path, 11, 10, ticks=40)
    add_process(tmp_path, 99, 1, ticks=5000)
    tree = ProcessTree(10, tmp_path)
    first = tree.read(0)
    add_process(tmp_path, 10, 1, ticks=100 + hertz)
    add_process(tmp_path, 11, 10, ticks=40, state="Z")
    second = tree.read(S)

    assert (first.cpu_s, first.processes, first.threads) == (140 / hertz, 2, 4)
    assert second.cpu_s == pytest.approx(140 / hertz + 1)
    assert second.cores == pytest.approx(1.0)
    assert second.processes == 1


def test_a_number_given_to_another_process_is_not_taken_for_the_old_one(tmp_path):
    add_process(tmp_path, 10, 1, ticks=100, started=7)
    tree = ProcessTree(10, tmp_path)
    assert tree.read(0).processes == 1
    add_process(tmp_path, 10, 1, ticks=3, started=8)

    assert tree.read(S) is None


def test_a_grandchild_whose_parent_ended_stays_in_the_tree(tmp_path):
    add_process(tmp_path, 10, 1, ticks=1)
    add_process(tmp_path, 11, 10, ticks=1)
    add_process(tmp_path, 12, 11, ticks=1)
    tree = ProcessTree(10, tmp_path)
    assert tree.read(0).processes == 3
    add_process(tmp_path, 11, 10, ticks=1, state="Z")
    add_process(tmp_path, 12, 1, ticks=9)

    assert tree.read(S).processes == 2


CHILD = """
import time
print(1, flush=True)
began = time.process_time()
while time.process_time() - began < 0.3:
    pass
print(2, flush=True)
time.sleep(60)
"""
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


@linux
def test_a_real_tree_with_a_child_that_works():
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout.readline() == "1\n"
        source = HostSource({"engine": process.pid})
        source.read(lambda: 0)
        assert process.stdout.readline() == "2\n"
        after = named(source.read(lambda: S), "engine")
        assert after["processes"] == 2
        assert after["cpu_s"] >= 0.2  # it asks for 0.3; the kernel counts in hundredths
        assert after["memory_rss_bytes"] > 1_000_000
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        process.stdout.close()
    deadline = time.monotonic() + 20
    gone = source.read(lambda: 2 * S)
    while named(gone, "engine").get("cpu_s") is not None and time.monotonic() < deadline:
        time.sleep(0.01)
        gone = source.read(lambda: 2 * S)
    assert [s.reason for s in gone if s.entity == "engine"] == [f"process {process.pid} is gone"]


@linux
def test_facts_of_this_host():
    facts = host_facts()

    assert facts["cores"] >= 1 and facts["memory_bytes"] > 0 and facts["name"]
