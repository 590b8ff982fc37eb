"""Records on disk: round trips, and a spool that was cut at any byte accounts for every request once."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab.errors import StorageError, UsageError
from benchlab.records.event import Kind, Outcome
from benchlab.records.record import Identity, Record
from benchlab.records.sample import Sample
from benchlab.records.schema import REQUESTS, SAMPLES, record_from_row, records_from, requests_batch, samples_batch
from benchlab.records.spool import Spool, merge, merge_texts
from benchlab.records.store import Run, new_run_directory, read_parquet, slug, write_manifest, write_parquet
from tests.support.record_strategies import records


def plain(record: Record) -> tuple[object, ...]:
    lists = [list(getattr(record, name)) for name in ("chunk_ns", "chunk_slack_ns", "chunk_tokens", "chunk_kind")]
    rest = {n: getattr(record, n) for n in Record.__dataclass_fields__ if not n.startswith("chunk_")}
    return (rest, lists)


@settings(max_examples=30, deadline=None)
@given(st.lists(records(), max_size=4))
def test_round_trip_through_columns(made: list[Record]) -> None:
    table = pa.Table.from_batches([requests_batch(made)], schema=REQUESTS)
    assert table.validate(full=True) is None
    back = list(records_from(table))
    assert [plain(r) for r in back] == [plain(r) for r in made]
    assert all(isinstance(r.outcome, Outcome) and all(isinstance(k, Kind) for k in r.chunk_kind) for r in back)


@settings(max_examples=20, deadline=None)
@given(made=st.lists(records(), max_size=3))
def test_round_trip_through_parquet(made: list[Record], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("p") / "requests.parquet"
    write_parquet(path, pa.Table.from_batches([requests_batch(made)], schema=REQUESTS))
    assert [plain(r) for r in records_from(read_parquet(path))] == [plain(r) for r in made]
    assert [child.name for child in path.parent.iterdir()] == [path.name]


def test_none_inside_the_token_list_is_kept() -> None:
    tokens = [None, 0, 3, None]
    kinds = [Kind.ROLE, Kind.CONTENT, Kind.CONTENT, Kind.DONE]
    made = Record(
        "q", 0, "i", Outcome.OK, 0, chunk_ns=[1, 2, 3, 4], chunk_slack_ns=[0] * 4, chunk_tokens=tokens, chunk_kind=kinds
    )
    table = pa.Table.from_batches([requests_batch([made, made])], schema=REQUESTS)
    assert table.column("chunk_tokens").to_pylist() == [tokens, tokens]
    assert next(records_from(table)).chunk_tokens == tokens


def test_columns_that_an_older_file_lacks() -> None:
    full = pa.Table.from_batches([requests_batch([Record("q", 2, "i", Outcome.OK, 5)])], schema=REQUESTS)
    older = full.select(["request_id", "stage", "item_id", "outcome", "intended_ns"])
    assert plain(next(records_from(older))) == plain(Record("q", 2, "i", Outcome.OK, 5))
    nulls = {name: None for name in full.column_names} | full.select(older.column_names).to_pylist()[0]
    assert plain(record_from_row(nulls)) == plain(Record("q", 2, "i", Outcome.OK, 5))


def test_samples() -> None:
    made = [Sample(1, "nvml", "GPU-1", "power_w", 1.5), Sample(2, "nvml", "GPU-1", "power_w", None, reason="no")]
    batch = samples_batch(iter(made))
    assert batch.schema == SAMPLES
    assert batch.column("value").to_pylist() == [1.5, None]
    assert samples_batch([]).num_rows == 0


# -- the spool


def who(number: int) -> Identity:
    return Identity(f"q{number}", number % 3, f"i{number}", number, tags=("t",), worker=number % 2, tenant="x")


def finished(number: int) -> Record:
    chunk: dict[str, Any] = {"chunk_ns": [7], "chunk_slack_ns": [0], "chunk_tokens": [None]}
    chunk["chunk_kind"] = [Kind.CONTENT]
    who_ = who(number)
    return Record(who_.request_id, who_.stage, who_.item_id, Outcome.OK, number, end_ns=9, worker=who_.worker, **chunk)


def write_spool(folder: Path, *, rounds: int = 4) -> set[str]:
    """Each round: three begin, one of them ends within the round, one of an earlier round ends. Returns all ids."""
    spool = Spool(folder, 0, keep_text=True)
    number, late = 0, []
    for _ in range(rounds):
        for _ in range(3):
            spool.begin(who(number), intended_ns=number, dispatched_ns=number + 1)
            late.append(number)
            number += 1
        spool.add(finished(late.pop()), "text")
        if len(late) > 2:
            spool.add(finished(late.pop(0)))
        spool.flush()
    spool.close()
    return {f"q{n}" for n in range(number)}


def test_spool_whole(tmp_path: Path) -> None:
    everyone = write_spool(tmp_path)
    table = merge(tmp_path, why_unfinished="the worker was killed")
    found = list(records_from(table))
    assert {r.request_id for r in found} == everyone and len(found) == len(everyone)
    lost = [r for r in found if r.outcome is Outcome.UNFINISHED]
    assert lost and all(r.error == "the worker was killed" and r.error_kind == "killed" for r in lost)
    assert all(r.tags == ("t",) and r.tenant == "x" and r.dispatched_ns == r.intended_ns + 1 for r in lost)
    order = [(r.stage, r.intended_ns) for r in found]
    assert order == sorted(order)
    assert merge_texts(tmp_path).num_rows == 4
    assert merge(tmp_path / "nothing", why_unfinished="").num_rows == 0


@pytest.fixture(scope="module")
def spool_bytes(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], set[str]]:
    folder = tmp_path_factory.mktemp("spool")
    everyone = write_spool(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}, everyone


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_spool_cut_at_any_byte(
    data: st.DataObject, spool_bytes: tuple[dict[str, bytes], set[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What was begun and reached the disk comes out exactly once, as finished or as unfinished."""
    files, everyone = spool_bytes
    folder = tmp_path_factory.mktemp("cut")
    victim = data.draw(st.sampled_from(sorted(files)))
    at = data.draw(st.integers(0, len(files[victim])))
    for name, content in files.items():
        (folder / name).write_bytes(content[:at] if name == victim else content)
    found = Counter(merge(folder, why_unfinished="killed").column("request_id").to_pylist())
    assert set(found.values()) <= {1}
    assert set(found) <= everyone
    if "requests" in victim:  # a cut tail of finished ones: those that outlived a flush were written as begun
        ended_at_once = {f"q{3 * r + 2}" for r in range(4)}
        assert everyone - set(found) <= ended_at_once
    merge_texts(folder)
    shutil.rmtree(folder)


def test_a_batch_that_was_written_twice_counts_once(tmp_path: Path) -> None:
    for worker in (0, 1):
        spool = Spool(tmp_path, worker)
        for number in range(4):
            spool.begin(who(number), intended_ns=number, dispatched_ns=number)
        spool.flush()
        spool.add(finished(0))
        spool.close()
    ids = merge(tmp_path, why_unfinished="killed").column("request_id").to_pylist()
    assert sorted(ids) == ["q0", "q1", "q2", "q3"]


def test_full_disk_is_a_storage_error(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    (tmp_path / "worker-0.requests.arrow").symlink_to("/dev/full")
    spool = Spool(tmp_path, 0)
    spool.add(finished(0))
    with pytest.raises(StorageError) as caught:
        spool.flush()
    assert "worker-0.requests.arrow" in str(caught.value)
    with pytest.raises(StorageError):
        spool.close()  # what could not be written is told again, and every file is closed


def test_a_spool_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "worker-0.requests.arrow").mkdir()
    with pytest.raises(StorageError):
        Spool(tmp_path, 0)


# -- run directories (C89)


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("org/tiny-v1", "org-tiny-v1"),
        ("../../etc", "etc"),
        ("", "run"),
        ("...", "run"),
        (".hidden", "hidden"),
        ("a b\n", "a-b"),
    ],
)
def test_slug(name: str, safe: str) -> None:
    assert slug(name) == safe


@given(st.text(max_size=80))
def test_slug_is_always_safe(name: str) -> None:
    made = slug(name)
    assert made and len(made) <= 40 and made[0] not in ".-"
    assert "/" not in made and "\\" not in made and made.isascii()
    assert slug(made) == made


def test_C89_same_second_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [new_run_directory(None, name="org/tiny-v1", wall_ns=10**18)[0] for _ in range(20)]
    assert len(set(paths)) == 20
    assert all(path.parent == Path("runs") and (path / "spool").is_dir() for path in paths)


def test_C89_nothing_is_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "missing" / "dir"
    new_run_directory(out, name="m", wall_ns=10**18)
    with pytest.raises(UsageError):
        new_run_directory(out, name="m", wall_ns=10**18)
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(UsageError):
        new_run_directory(file, name="m", wall_ns=0)
    with pytest.raises(UsageError):
        new_run_directory(file / "below", name="m", wall_ns=0)
    assert file.read_text() == "x"


def test_C89_two_runs_race_for_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both saw it empty; only one gets it."""
    out = tmp_path / "out"
    new_run_directory(out, name="m", wall_ns=0)
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(()))
    with pytest.raises(UsageError):
        new_run_directory(out, name="m", wall_ns=0)


def test_run_is_read_back(tmp_path: Path) -> None:
    path, run_id = new_run_directory(tmp_path / "r", name="m", wall_ns=10**18)
    with pytest.raises(UsageError, match="did not finish"):
        Run(path)
    write_manifest(path, {"schema": 1, "run_id": run_id, "stages": [], "rate": float("inf")})
    write_parquet(path / "requests.parquet", pa.Table.from_batches([requests_batch([finished(1)])], schema=REQUESTS))
    run = Run(path / "manifest.json")
    assert (run.run_id, run.manifest["rate"]) == (run_id, None)
    assert plain(next(records_from(run.requests()))) == plain(finished(1))
    assert run.telemetry().num_rows == 0
    with pytest.raises(UsageError):
        Run(tmp_path / "nothing")
    (path / "requests.parquet").write_bytes(b"junk")
    with pytest.raises(UsageError, match="Parquet"):
        run.requests()
