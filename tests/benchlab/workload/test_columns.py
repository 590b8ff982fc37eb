"""Columns against plain loops: the same items, the same complaints about blocks, the same hits, whatever the ids."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from benchlab.errors import UsageError
from benchlab.workload import blocks, columns, read_rows
from benchlab.workload.columns import Columns
from benchlab.workload.documents import Values, is_document
from benchlab.workload.formats import Context
from benchlab.workload.inspect import inspect
from benchlab.workload.item import WorkloadItem
from benchlab.workload.items import LazyItems, lazily
from benchlab.workload.read import read_items, write_items
from tests.benchlab.workload.made_files import lines, mooncake_row, put

FIXTURE = [HealthCheck.function_scoped_fixture]
IDS = st.integers(0, 6) | st.integers(-3, 10) | st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.builds(
    WorkloadItem,
    id=st.uuids().map(str),
    input_tokens=st.integers(64, 2**31 - 1),
    block_tokens=st.sampled_from([8, 16]),
    prefix_blocks=st.lists(IDS, max_size=4),
    output_tokens=st.none() | st.integers(1, 9),
    arrival_s=st.floats(0, 1e6),
    session=st.none() | st.sampled_from(["s", "t"]),
    turn=st.none() | st.integers(0, 4),
    tenant=st.none() | st.sampled_from(["a", "b"]),
    tags=st.lists(st.sampled_from(["x", "y"]), max_size=2),
)


@given(st.lists(NUMBERS, max_size=6, unique_by=lambda item: item.id))
def test_items_made_from_columns_are_the_items(items: list[WorkloadItem]) -> None:
    found = lazily(items)
    assert found == items
    assert list(found[1:]) == items[1:]
    assert lazily(found) is found


@given(st.lists(NUMBERS, min_size=1, max_size=6, unique_by=lambda item: item.id))
@settings(suppress_health_check=FIXTURE, deadline=None)
def test_rows_of_numbers_are_read_as_they_were_written(tmp_path: Path, items: list[WorkloadItem]) -> None:
    write_items(items, tmp_path / "r.jsonl")
    assert read_items(tmp_path / "r.jsonl").items == sorted(items, key=lambda item: item.arrival_s or 0)


def hits_by_loop(items: list[WorkloadItem]) -> tuple[float, float, int]:
    known: set[tuple[Any, int]] = set()
    shared = total = hit = 0
    for item in items:
        run = 0
        for block in item.prefix_blocks or ():
            if (item.block_tokens, block) not in known:
                break
            run += 1
        shared += min(run * (item.block_tokens or 0), item.input_tokens or 0)
        total, hit = total + (item.input_tokens or 0), hit + (run > 0)
        known.update((item.block_tokens, block) for block in item.prefix_blocks or ())
    return shared / total, hit / len(items), len(known)


@given(st.lists(NUMBERS, min_size=1, max_size=9), st.sampled_from([1, 3, 2**21]), st.booleans())
@settings(deadline=None)
def test_hits_are_those_of_a_loop_over_a_set(items: list[WorkloadItem], chunk: int, backwards: bool) -> None:
    made = Columns.of(items)
    rows = np.arange(len(items))[:: -1 if backwards else 1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_CHUNK", chunk)
        found = blocks.cache_hits(made, rows)
    assert found is not None
    wanted = hits_by_loop([items[row] for row in rows])
    assert (found["token_hit_ratio"], found["items_with_hit"]) == pytest.approx(wanted[:2])
    assert found["blocks"] == wanted[2]


ROWS = st.lists(
    st.tuples(st.integers(1, 40), st.lists(st.integers(0, 5), max_size=4), st.sampled_from(["ceil", "floor", None])),
    min_size=1,
    max_size=8,
)


def complaints_by_loop(rows: list[tuple[int, list[int]]], size: int) -> set[int]:
    """Which rows a reader that goes line by line would refuse, rounding first and sizes after."""
    bad: set[int] = set()
    rounding = None
    for row, (tokens, ids) in enumerate(rows):
        fits = {name for name, count in (("floor", tokens // size), ("ceil", -(-tokens // size))) if count == len(ids)}
        if not fits:
            bad.add(row)
        elif len(fits) == 1:
            rounding = rounding or next(iter(fits))
            if rounding not in fits:
                bad.add(row)
    if rounding != "ceil":
        return bad
    sizes: dict[int, int] = {}
    for row, (tokens, ids) in enumerate(rows):
        if row in bad:
            continue
        last = tokens - (len(ids) - 1) * size
        here = {block: last if place == len(ids) - 1 else size for place, block in enumerate(ids)}
        if any(sizes.get(block, tokens_here) != tokens_here for block, tokens_here in here.items()):
            bad.add(row)
        else:
            sizes |= here
    return bad


@given(ROWS, st.sampled_from([1, 2, 2**21]))
@example([(9, [1, 1], None)], 2**21)
@settings(deadline=None, max_examples=300)
def test_blocks_are_refused_as_by_a_loop(rows: list[tuple[int, list[int], str | None]], chunk: int) -> None:
    shaped = []
    for tokens, ids, rounding in rows:
        count = {"ceil": -(-tokens // 8), "floor": tokens // 8, None: len(ids)}[rounding]
        shaped.append((tokens, (ids * 9 if ids else [0] * 9)[:count]))
    made = Columns()
    for line, (tokens, ids) in enumerate(shaped):
        made.put(line, 0, tokens, 1, 8, ids, columns.THEIRS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_CHUNK", chunk)
        told, _ = blocks.check(made)
    repeats = {row for row, (_, ids) in enumerate(shaped) if len(set(ids)) < len(ids)}
    if not repeats:  # an id twice in one row has no order of its own to be first in
        assert set(told) == complaints_by_loop(shaped, 8)


def test_ids_of_64_bits_widen_the_column() -> None:
    made = Columns()
    made.put(1, 0, 16, 1, 8, [1, 2], columns.THEIRS)
    made.put(2, 0, 16, 1, 8, [3, 2**62], columns.THEIRS)
    assert made.blocks.tolist() == [1, 2, 3, 2**62]
    assert made.ends.tolist() == [0, 2, 4]
    with pytest.raises(UsageError, match="more than 64 bits"):
        made.put(3, 0, 16, 1, 8, [5, 2**64], columns.THEIRS)
    assert made.blocks.tolist() == [1, 2, 3, 2**62]


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "timestamp": st.integers(-1, 10**6) | st.floats(0, 9) | st.just(10**19),
                "input_length": st.integers(0, 3000),
                "output_length": st.integers(-1, 3),
                "hash_ids": st.lists(st.integers(0, 2**63 - 1) | st.just(2**64), max_size=3) | st.just(["a"]),
            }
        ),
        min_size=1,
        max_size=5,
    )
)
@settings(suppress_health_check=FIXTURE, deadline=None)
def test_the_fast_way_and_the_slow_way_agree(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    path = put(tmp_path, "m.jsonl", lines(rows))

    def outcome() -> tuple[Any, ...]:
        try:
            found = read_items(path, form="mooncake", lenient=True)
        except UsageError as fault:
            return (str(fault),)
        return found.items, found.dropped, found.complaints, found.notes

    quick = outcome()
    with pytest.MonkeyPatch.context() as patch:
        slow_form = read_rows.Format("mooncake", read_rows.rows, "ms", 512, drop_zero=True, trace=True)
        patch.setattr("benchlab.workload.reading.named", lambda name: slow_form)
        slow = outcome()
    assert quick == slow


def test_text_beyond_what_is_held_stays_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "HELD_TEXT_CHARS", 100)
    rows = [{"id": f"i{n}", "prompt": f"{n} é " + "word " * n, "output_tokens": n + 1} for n in range(40)]
    path = put(
        tmp_path,
        "w.jsonl",
        "\ufeff" + "\r\n".join(json.dumps(row, ensure_ascii=n % 2 == 0) for n, row in enumerate(rows)),
    )
    found = read_items(path)
    assert isinstance(found.items, LazyItems)
    assert len(found.items.columns.left.rows) > 30
    assert [item.prompt for item in found.items] == [row["prompt"] for row in rows]
    assert [item.id for item in found.items] == [row["id"] for row in rows]
    assert inspect(found)["input_tokens_estimated"]["n"] == 40
    path.write_bytes(b"changed")
    with pytest.raises(UsageError, match="changed while it was in use"):
        found.items[39]


def test_an_id_twice_is_found_in_text_that_stayed_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "HELD_TEXT_CHARS", 10)
    for ids in (["a", "b", "c", "b"], ["a", "b", "c", "a"]):
        path = put(tmp_path, "w.jsonl", lines({"id": one, "prompt": "word " * 9} for one in ids))
        with pytest.raises(
            UsageError, match=rf"w.jsonl:4: id: '{ids[3]}' is also the id of line {ids.index(ids[3]) + 1}"
        ):
            read_items(path)


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=6) | st.sampled_from(['"', "\\", "]{", '\\"']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=3), max_size=5),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_a_document_is_cut_into_its_values(rows: list[dict[str, Any]], indent: int | None, array: bool) -> None:
    text = json.dumps(rows, indent=indent) if array else "\n".join(json.dumps(row, indent=indent) for row in rows)
    numbered = [(number, line) for number, line in enumerate(text.encode().split(b"\n"), 1) if line.strip()]
    assert [json.loads(value) for _, value in Values(iter(numbered), "f")] == rows


@given(st.binary(max_size=60))
def test_a_document_of_any_bytes_ends(data: bytes) -> None:
    assert is_document(b"[") and not is_document(b'{"a": 1}')
    assert all(value for _, value in Values(iter(enumerate(data.split(b"\n"), 1)), "f"))


def test_a_broken_document_is_told_by_line(tmp_path: Path) -> None:
    for content, says in (
        ('[\n{"prompt": "a"},\n{"prompt": \n\n', "d.json:3: is not JSON"),
        ('[\n{"prompt": "a"},\n7, "x",\n{"prompt": "b"}]', "d.json:3: "),
        ('{"input_tokens":9,"block_tokens":9,"prefix_blocks":[18446744073709551616]}', "d.json:1: prefix_blocks: "),
        ("[1, 2]", "d.json:1: expected a JSON object, got [1, 2]"),
        ('{"spans": []}', "holds no items"),
        ('[\n{"prompt": "a"}\n]\n{"prompt": 5}\n', "d.json:4: prompt: expected str"),
        ('[\n{"prompt": "a"},\n', "d.json:2: is not JSON"),
        ('{\n "prompt": "a"\n}\n{\n "prompt": ""\n}', "d.json:4: prompt: expected a text"),
    ):
        with pytest.raises(UsageError) as fault:
            read_items(put(tmp_path, "d.json", content))
        assert says in str(fault.value)


def test_columns_that_are_not_used_take_no_room() -> None:
    made = Columns()
    for line in range(100):
        made.put(line, 0, 5, 1)
    assert math.isnan(made.get("wait_s", 99))
    assert np.isnan(made.view("wait_s")).all()
    assert made.view("turn").strides == (0,)
    made.set("turn", 3, 7)
    assert made.view("turn").tolist() == [-1, -1, -1, 7, *[-1] * 96]


def test_a_time_unit_that_is_given_overrides_that_of_the_format(tmp_path: Path) -> None:
    path = put(tmp_path, "m.jsonl", lines([mooncake_row(0, 600, [1, 2]), mooncake_row(3, 600, [1, 3])]))
    found = read_items(path, time_unit="s", form="mooncake")
    assert found.items[1].arrival_s == 3.0
    assert "by --time-unit" in found.notes[0]
    assert Context().answer_tokens("") is None
