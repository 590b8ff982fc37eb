"""`benchlab simulate`: whole simulated runs, what reads them afterwards, and bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from benchlab.records.store import Run
from benchlab_engine.core.journal import read_lines
from benchlab_engine.core.replay import replay
from tests.running import CLI, environment, plain_signals

SWEEP = (
    "simulate", "-q", "-r", "2,8,200", "-c", "4", "--profile", "step=5ms,prompt=0.1ms,decode=0.5ms",
    "--duration", "20s", "--warmup", "2s", "--objective", "ttft.p90<=200ms", "--slo", "tpot=50ms", "--drain", "5s",
)  # fmt: skip


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A simulated sweep; not to be changed."""
    from benchlab.cli.app import main

    path = tmp_path_factory.mktemp("runs") / "swept"
    assert main([*SWEEP, "-o", str(path), "--format", "json"]) == 0
    return path


def test_a_sweep_is_judged_like_a_measured_one(call, swept, tmp_path):
    done = call(*SWEEP, "-o", tmp_path / "again")
    assert done.code == 0
    assert "◀ selected" in done.out
    assert "capacity: holds 7.4" in done.out
    assert done.err == "benchlab: exit 0 (done)\n"
    summary = json.loads((swept / "summary.json").read_text())
    assert [stage["condition"] for stage in summary["stages"]] == ["stable", "stable", "errored", "stable"]
    assert summary["stages"][0]["attainment"] == 1
    assert summary["selection"]["selected_stage"] == 1
    assert sum(stage["refused"]["shed"] for stage in summary["stages"]) > 0
    # The same seeds, the same bytes.
    assert (tmp_path / "again" / "requests.parquet").read_bytes() == (swept / "requests.parquet").read_bytes()


def test_nobody_can_take_it_for_a_measurement(call, swept):
    summary = json.loads((swept / "summary.json").read_text())
    assert summary["simulated"]["profile"] == "step=5ms,prompt=0.1ms,decode=0.5ms"
    assert summary["verdict"]["state"] == "WARN"
    rules = {rule["name"]: rule for rule in summary["verdict"]["rules"] if rule["stage"] in (None, 0)}
    assert rules["simulated"]["state"] == "warn"
    for name in ("rate_held", "dispatch_lag_p99_ms", "client_cpu_share", "wall_clock_steps", "merged_chunk_share"):
        assert (rules[name]["state"], rules[name]["value"]) == ("not checked", None), name
    manifest = Run(swept).manifest
    assert manifest["simulated"]["max_seqs"] == 16
    assert manifest["simulated"]["costs"]["prompt_token"] == 100_000
    assert manifest["t0"]["wall_ns"] is None
    assert manifest["host"] is None
    page = (swept / "report.html").read_text()
    assert "<title>benchlab: SIMULATED" in page
    assert "benchlab report · SIMULATED" in page
    assert call("report", swept, "--format", "md").out.startswith("### benchlab: ▲ SIMULATED (step=5ms")


@pytest.mark.parametrize("words", [("show",), ("validate",), ("gate", "--assert", "ttft.p50<=10s")])
def test_stored_commands_read_it(call, swept, words):
    command, *more = words
    assert call(command, swept, *more).code == 0


def test_simulated_and_measured_are_not_compared(call, swept, stored):
    done = call("compare", swept, stored)
    assert done.code == 6
    assert "simulated" in done.out
    done = call("gate", swept, "--baseline", stored, "--max-regression", "ttft.p50=5%")
    assert done.code == 6
    assert "the run is simulated and the baseline measured" in done.err
    done = call("gate", stored, "--baseline", swept, "--max-regression", "ttft.p50=5%")
    assert "the run is measured and the baseline simulated" in done.err


def test_two_simulations_are_compared(call, swept, tmp_path):
    slower = [word.replace("step=5ms", "step=15ms") for word in SWEEP]
    assert call(*slower, "-o", tmp_path / "slower").code == 0
    done = call("compare", swept, tmp_path / "slower")
    assert done.code == 0
    assert "worse" in done.out
    assert call("gate", swept, "--baseline", tmp_path / "slower", "--max-regression", "tpot.p50=5%").code == 0


def test_the_journal_replays(call, tmp_path):
    file = tmp_path / "journal.jsonl"
    words = (
        "simulate",
        "-q",
        "-r",
        "5",
        "--duration",
        "5s",
        "--profile",
        "roofline:l4:smollm2-135m",
        "--journal",
        file,
    )
    assert call(*words, "-o", tmp_path / "run").code == 0
    with file.open() as lines:
        found = replay(None, read_lines(lines))
    assert found.equal
    assert found.num_steps > 100
    done = call(*words, "-o", tmp_path / "other")
    assert done.code == 2
    assert "--journal" in done.err
    assert not (tmp_path / "other").exists()


def test_other_seeds_give_another_run(call, swept, tmp_path):
    assert call(*SWEEP, "--arrival-seed", "1", "-o", tmp_path / "other").code == 0
    assert (tmp_path / "other" / "requests.parquet").read_bytes() != (swept / "requests.parquet").read_bytes()
    ours, theirs = (
        json.loads((run / "summary.json").read_text())["fingerprint"] for run in (swept, tmp_path / "other")
    )
    assert ours["workload_items"] == theirs["workload_items"] is not None
    assert ours["seeds"] == {"arrival": 0, "content": 0} != theirs["seeds"]


def test_a_prefix_that_is_shared_comes_from_the_cache(call, tmp_path):
    base = ("simulate", "-q", "-d", "support-assistant", "-r", "4", "--duration", "20s")
    base += ("--profile", "roofline:h100:llama-3-8b")
    assert call(*base, "-o", tmp_path / "with").code == 0
    assert call(*base, "--no-prefix-cache", "-o", tmp_path / "without").code == 0
    shares = []
    for name in ("with", "without"):
        table = Run(tmp_path / name).requests()
        shares.append(sum(table["cached_tokens"].to_pylist()) / sum(table["prompt_tokens"].to_pylist()))
    assert shares[0] > 0.3
    assert shares[1] == 0


BAD = {
    "no load": ((), "-r/--rate"),
    "no such profile": (("-r", "1", "--profile", "warp"), "use teaching, null"),
    "no such device": (("-r", "1", "--profile", "roofline:h1:llama-3-8b"), "use h100"),
    "a model that does not fit": (("-r", "1", "--profile", "roofline:l4:llama-3-70b"), "does not fit"),
    "steps of no time": (("-r", "1", "--profile", "null", "--duration", "5s"), "takes no time"),
    "a batch below its sequences": (("-r", "1", "--max-batched-tokens", "4"), "max_batched_tokens 4"),
    "no policy": (("-r", "1", "--policy", "random"), "continuous"),
    "no way to speculate": (("-r", "1", "--speculate", "ngram"), "ngram:4"),
    "no unit": (("-r", "1", "--max-wait", "2"), "--max-wait"),
    "no workload": (("-r", "1", "-d", "no-such-file"), "no-such-file"),
    "no objective": (("-r", "1", "--objective", "speed>3"), "speed"),
    "a journal nowhere": (("-r", "1", "--duration", "5s", "--journal", "/no/such/place/j"), "/no/such/place/j"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_and_leaves_nothing(call, name, tmp_path, monkeypatch):
    words, says = BAD[name]
    monkeypatch.chdir(tmp_path)
    done = call("simulate", *words)
    assert done.code == 2, done
    assert done.out == ""
    assert "Traceback" not in done.err
    assert says in " ".join(done.err.split()).replace("│ │ ", "")
    assert [path for path in Path("runs").glob("*") if path.is_dir()] == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_nothing_and_says_so(number, code, tmp_path):
    out, journal = tmp_path / "run", tmp_path / "journal.jsonl"
    words = [*CLI, "simulate", "-r", "500", "--duration", "3000s", "-o", out, "--journal", journal]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(words, env=environment(), **pipes, text=True, preexec_fn=plain_signals)  # noqa: PLW1509
    while not list(out.glob("spool/*.requests.arrow")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    shown, said = process.communicate(timeout=60)
    assert (process.returncode, shown) == (code, "")
    assert said.splitlines()[-1].startswith(f"benchlab: exit {code} (interrupted; nothing is kept")
    assert not out.exists()
    assert not journal.exists()


def test_an_out_that_holds_something_is_left_alone(call, swept):
    before = sorted(path.name for path in swept.iterdir())
    done = call(*SWEEP, "-o", swept)
    assert done.code == 2
    assert sorted(path.name for path in swept.iterdir()) == before


def test_a_dry_run_simulates_nothing(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call(*SWEEP, "--dry-run")
    assert done.code == 0
    assert "c4" in done.out
    assert list(tmp_path.iterdir()) == []
