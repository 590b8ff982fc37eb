"""A lock names what differs, does not care where a file lies, and notices a hand in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchlab.cli.app import main
from benchlab.errors import Exit, NotComparableError, UsageError
from benchlab.workload.lock import check_lock, differences, lock, read_lock, stored, write_lock
from benchlab.workload.read import read_items
from tests.benchlab.workload.made_files import lines, mooncake_row, put

ROWS = [mooncake_row(1000 * n, 600, [1, n + 2]) for n in range(5)]


def test_the_same_items_in_another_format_are_the_same_workload(tmp_path: Path) -> None:
    source, out, locked = (tmp_path / name for name in ("m.jsonl", "o.jsonl", "m.lock.json"))
    put(tmp_path, "m.jsonl", lines(ROWS))
    assert main(["workload", "lock", str(source), "-o", str(locked), "--sampling", '{"temperature": 0}']) == 0
    assert main(["workload", "convert", str(source), "-o", str(out)]) == 0
    assert main(["workload", "check", str(out), "--lock", str(locked)]) == 0
    assert main(["workload", "check", str(source), "--lock", str(locked)]) == 0


def test_what_differs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = put(tmp_path, "m.jsonl", lines(ROWS))
    write_lock(lock(read_items(one)), tmp_path / "l.json")
    later = put(tmp_path, "later.jsonl", lines([*ROWS[:4], {**ROWS[4], "timestamp": 4001}]))
    assert main(["workload", "check", str(later), "--lock", str(tmp_path / "l.json")]) == Exit.NOT_COMPARABLE
    told = capsys.readouterr().err
    assert "arrivals: locked" in told and "items" not in told.split("try:")[0].split("\n", 1)[1]
    fewer = read_items(put(tmp_path, "fewer.jsonl", lines(ROWS[:4])))
    with pytest.raises(NotComparableError, match=r"items.count: locked 5, now 4"):
        check_lock(tmp_path / "l.json", fewer)
    other = read_items(put(tmp_path, "other.jsonl", lines([{**ROWS[0], "output_length": 9}, *ROWS[1:]])))
    with pytest.raises(NotComparableError, match=r"lengths.output: locked"):
        check_lock(tmp_path / "l.json", other)


def test_what_the_lock_leaves_open_does_not_bind(tmp_path: Path) -> None:
    found = read_items(put(tmp_path, "m.jsonl", lines(ROWS)))
    bare, full = lock(found), lock(found, seeds={"content": 1}, tokenizer="abc", chat_template="def")
    assert differences(bare, full) == []
    assert differences(full, lock(found, seeds={"content": 2}, tokenizer="xyz", chat_template="def")) == [
        "seeds.content: locked 1, now 2",
        "tokenizer: locked abc, now xyz",
    ]
    assert full["fingerprint"] != bare["fingerprint"]
    json.dumps(full, allow_nan=False)


def test_a_lock_is_never_overwritten_nor_trusted_blindly(tmp_path: Path) -> None:
    locked = lock(read_items(put(tmp_path, "m.jsonl", lines(ROWS))))
    path = tmp_path / "l.json"
    write_lock(locked, path)
    assert read_lock(path) == json.loads(json.dumps(locked))
    with pytest.raises(UsageError, match="nothing is ever overwritten"):
        write_lock(locked, path)
    changed = path.read_text().replace('"count": 5', '"count": 6')
    for content, says in (
        (changed, "not that of its contents"),
        ("{}", "schema 1"),
        ("[", "is no lock file"),
        ("[]", "schema 1"),
    ):
        path.write_text(content)
        with pytest.raises(UsageError, match=says):
            read_lock(path)
    with pytest.raises(UsageError, match="is no lock file"):
        read_lock(tmp_path / "none.json")


def test_what_a_run_stores_binds_it_to_its_workload(tmp_path: Path) -> None:
    found = read_items(put(tmp_path, "m.jsonl", lines(ROWS)))
    kept = stored(found, seeds={"arrival": 1, "content": 0}, sampling={"temperature": 0})
    locked = lock(found, seeds={"arrival": 1, "content": 0}, sampling={"temperature": 0})
    assert kept["lock"] == {key: locked[key] for key in kept["lock"]} and "fingerprint" in kept["lock"]
    assert kept["lock"]["fingerprint"] != stored(found, seeds={"arrival": 2, "content": 0})["lock"]["fingerprint"]
    assert kept["facts"]["prefix"]["token_hit_ratio"] == pytest.approx(512 * 4 / 3000)
    assert (kept["time_unit"], kept["inversions"]) == ("ms", 0)
    json.dumps(kept, allow_nan=False)


def test_a_run_checks_the_lock_before_anything_is_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, locked = put(tmp_path, "m.jsonl", lines(ROWS)), tmp_path / "l.json"
    assert main(["workload", "lock", str(data), "-o", str(locked), "--arrival-seed", "3"]) == 0
    run = ["run", "-u", "http://127.0.0.1:9", "-m", "m", "-d", str(data), "-c", "1", "--duration", "5s", "--dry-run"]
    assert main([*run, "--lock", str(locked), "--arrival-seed", "3", "--from", "mooncake"]) == 0
    assert main([*run, "--lock", str(locked)]) == Exit.NOT_COMPARABLE
    assert "seeds.arrival: locked 3, now 0" in capsys.readouterr().err
