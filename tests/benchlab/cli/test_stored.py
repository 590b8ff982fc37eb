"""Commands on stored runs: their results, what they make of damage, and their exit codes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchlab.records.event import Outcome
from benchlab.records.record import Identity, Record
from benchlab.records.spool import Spool
from tests.made_runs import WORKER, MadeStage, made_run, open_stage, steady

READERS = {
    "report": [],
    "show": [],
    "gate": ["--assert", "ttft.p50<=10s"],
    "validate": [],
}


def manifest(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        told = json.loads((run / "manifest.json").read_text())
        change(told)
        (run / "manifest.json").write_text(json.dumps(told))

    return damage


def text(name: str, what: str) -> Callable[[Path], None]:
    return lambda run: (run / name).write_text(what)


def odd_columns(run: Path) -> None:
    pq.write_table(pa.table({"request_id": ["a"], "stage": ["x"]}), run / "requests.parquet")


def cut(run: Path) -> None:
    path = run / "requests.parquet"
    path.write_bytes(path.read_bytes()[:500])


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "manifest cut": (text("manifest.json", '{"a":'), "manifest.json: cannot be read as JSON"),
    "manifest binary": (lambda run: (run / "manifest.json").write_bytes(b"\xff\x00"), "manifest.json"),
    "manifest list": (text("manifest.json", "[]"), "manifest.json: holds no JSON object"),
    "manifest empty": (text("manifest.json", "{}"), "'stages' is missing"),
    "manifest gone": (lambda run: (run / "manifest.json").unlink(), "manifest.json: no such file"),
    "manifest of another kind": (manifest(lambda told: told.update(stages=3)), "'stages' is no list"),
    "manifest with an odd stage": (manifest(lambda told: told.update(stages=["a"])), "stages[0] is no stage"),
    "manifest with an odd time": (
        manifest(lambda told: told["stages"][0].update(w0_ns="soon")),
        "stages[0].w0_ns is no whole number",
    ),
    "manifest of the future": (manifest(lambda told: told.update(schema=9)), "schema is 9"),
    "requests gone": (lambda run: (run / "requests.parquet").unlink(), "requests.parquet: no such file"),
    "requests text": (text("requests.parquet", "nope"), "requests.parquet: cannot be read as Parquet"),
    "requests cut": (cut, "requests.parquet: cannot be read as Parquet"),
    "requests of other types": (odd_columns, "requests.parquet: column 'stage' is no int32"),
}


@pytest.fixture
def copy(stored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored, tmp_path / "run"))


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("command", READERS)
def test_damage_is_named(command, damage, copy, call, told) -> None:
    change, words = DAMAGE[damage]
    change(copy)
    assert words in told(call(command, copy, *READERS[command]), 2)[0]
    assert not (copy / "report.html").exists()


@pytest.mark.parametrize("command", [*READERS, "compare", "recover"])
@pytest.mark.parametrize("kind", ["nothing", "file", "empty directory"])
def test_no_run(command, kind, stored, call, told, tmp_path) -> None:
    path = tmp_path / "there"
    if kind == "file":
        path.write_text("hello")
    elif kind == "empty directory":
        path.mkdir()
    argv = [command, path, *READERS.get(command, [])] + ([stored] if command == "compare" else [])
    assert "there" in told(call(*argv), 2)[0]


@pytest.mark.parametrize("command", READERS)
def test_a_run_with_a_spool_only_is_to_be_recovered(command, copy, call, told) -> None:
    (copy / "requests.parquet").unlink()
    (copy / "spool").mkdir()
    assert f"benchlab recover {copy}" in "\n".join(told(call(command, copy, *READERS[command]), 2))


def test_recover_makes_a_run_of_a_spool(copy, call) -> None:
    (copy / "requests.parquet").unlink()
    spool = Spool(copy / "spool", 0)
    for number in range(5):
        at = number * 10**9
        spool.add(Record(f"s0-{number}", 0, "i", Outcome.OK, at, dispatched_ns=at, sent_ns=at, end_ns=at + 10**8))
    spool.begin(Identity("s0-5", 0, "i", 0), intended_ns=5 * 10**9, dispatched_ns=5 * 10**9)
    spool.close()
    with (copy / "spool" / "worker-0.requests.arrow").open("ab") as file:
        file.write(b"\xff\xff\xff\xff\x10")  # what a kill leaves: the beginning of a batch
    done = call("recover", copy, "--format", "json")
    assert "recovered 6 requests" in done.err
    outcomes = json.loads(done.out)["stages"][0]["outcomes"]
    assert (outcomes["ok"], outcomes["unfinished"]) == (5, 1)
    assert not (copy / "spool").exists()


@pytest.mark.parametrize("content", [None, b"x" * 100])
def test_recover_keeps_a_spool_that_it_cannot_read(content, copy, call, told) -> None:
    (copy / "requests.parquet").unlink()
    (copy / "spool").mkdir()
    if content:
        (copy / "spool" / "worker-0.requests.arrow").write_bytes(content)
    assert "holds no request that can be read" in told(call("recover", copy), 2)[0]
    assert (copy / "spool").is_dir()
    assert not (copy / "requests.parquet").exists()


def test_recover_leaves_a_whole_run_alone(copy, call, told) -> None:
    assert "it is complete" in told(call("recover", copy), 2)[0]


# -- results and exit codes


def test_report_writes_the_page_and_prints_the_table(copy, call) -> None:
    done = call("report", copy)
    assert done.code == 0
    assert "VALID" in done.out
    assert max(map(len, done.out.splitlines())) <= 100
    assert (copy / "report.html").read_text().startswith("<!doctype html>")
    assert done.err == "benchlab: exit 0 (done)\n"


@pytest.mark.parametrize("form", ["md", "csv", "json"])
def test_report_in_other_formats(form, copy, call) -> None:
    done = call("report", copy, "--format", form)
    assert done.code == 0
    first = done.out.splitlines()[0]
    assert {"md": first.startswith(("#", "|", "*")), "csv": "," in first, "json": first == "{"}[form]


@pytest.mark.parametrize(
    ("command", "extra"),
    [("report", []), ("show", []), ("validate", []), ("gate", ["--assert", "ttft.p50<=10s"])],
)
def test_json_is_one_document(command, extra, copy, call) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads(call(command, copy, *extra, "--format", "json").out, parse_constant=refuse)


def test_gate(copy, call) -> None:
    passed = call("gate", copy, "--assert", "ttft.p50<=10s")
    assert (passed.code, passed.err) == (0, "benchlab: exit 0 (1 gate passed)\n")
    breached = call("gate", copy, "--assert", "ttft.p50<=1ms", "--format", "json")
    assert breached.code == 99
    [row] = json.loads(breached.out)["gates"]
    assert (row["passed"], row["limit"], row["value"]) == (False, 1.0, pytest.approx(100, abs=60))


def test_gate_needs_one(copy, call, told) -> None:
    assert "no gate was given" in told(call("gate", copy), 2)[0]
    assert "'tttf' is no metric" in told(call("gate", copy, "--assert", "tttf.p50<1s"), 2)[0]


def test_regression_against_itself_and_against_nothing(copy, stored, call, told) -> None:
    argv = ["gate", copy, "--max-regression", "ttft.p50=5%"]
    assert call(*argv, "--baseline", stored).code == 0  # judged from its records: it has no summary.json
    assert "there is no baseline" in told(call(*argv, "--baseline", copy / "none"), 6)[0]
    (copy / "summary.json").write_text('{"stages": 3}')
    assert "there is no baseline" in told(call(*argv, "--baseline", copy / "summary.json"), 6)[0]
    told(call(*argv), 2)


def test_invalid_outranks_a_gate(call, tmp_path) -> None:
    stage = open_stage(2, 0.0, seed=1)
    late = MadeStage(stage.records, stage.w0, stage.w1, offered_rps=2, cut=stage.cut, entry={"planned": 99})
    run = made_run(tmp_path / "invalid", [late])
    for command, extra in (("validate", []), ("report", []), ("gate", ["--assert", "ttft.p50<=1ms"])):
        done = call(command, run, *extra)
        assert done.code == 4, done
        assert done.err.splitlines()[-1] == "benchlab: exit 4 (INVALID: complete_records)"


def test_busy_client_is_invalid(call, tmp_path) -> None:
    stage = open_stage(2, 0.0, seed=1)
    worker = WORKER | {"cpu_s": 29.5, "wall_s": 30.0}
    busy = MadeStage(stage.records, stage.w0, stage.w1, offered_rps=2, cut=stage.cut, entry={"workers": [worker]})
    done = call("validate", made_run(tmp_path / "busy", [busy]), "--format", "json")
    assert done.code == 4
    assert json.loads(done.out)["state"] == "INVALID"


def test_compare(copy, stored, call, told, tmp_path) -> None:
    same = call("compare", stored, copy, "--format", "json")
    assert same.code == 0
    assert json.loads(same.out)
    other = made_run(tmp_path / "other", [open_stage(2, 0.0, seed=1)], workload={"sha256": "1" * 64, "cache": "cold"})
    differs = call("compare", stored, other)
    assert differs.code == 6
    assert differs.err.startswith("benchlab: exit 6 (the runs did not do the same thing: ")
    assert "workload_sha256" in differs.out
    told(call("compare", stored), 2)
    (copy / "summary.json").write_text('{"schema": 1, "stages": [3], "verdict": 4}')
    assert "is no summary" in told(call("compare", stored, copy), 2)[0]


def test_show(copy, call, told) -> None:
    done = call("show", copy, "-n", "3", "--format", "json")
    assert len(json.loads(done.out)) == 3
    assert call("show", copy, "--stage", "3", "--outcome", "timeout").out.count("timeout") >= 1
    assert "no such request" in call("show", copy, "--stage", "77").out
    told(call("show", copy, "--metric", "speed"), 2)
    told(call("show", copy, "--outcome", "lost"), 2)
    told(call("show", copy, "--format", "md"), 2)


def test_every_stage_short_is_still_a_result(call, tmp_path) -> None:
    few = MadeStage([steady(0.1, ttft=0.1, gap=0.02, tokens=4)], 0.0, 5.0, offered_rps=0.2)
    done = call("report", made_run(tmp_path / "few", [few]), "--objective", "ttft.p99<=1s")
    assert done.code == 0
