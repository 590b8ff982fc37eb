"""Each pitfall that trace files set for a reader, by its number and name in the specification of workload data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchlab.errors import UsageError
from benchlab.workload import resample
from benchlab.workload.inspect import as_text, facts, inspect
from benchlab.workload.read import Workload, read_items
from benchlab.workload.text import make_texts
from tests.benchlab.workload.made_files import lines, mooncake_row, put, weka


def read(folder: Path, rows: list[dict[str, Any]] | str, name: str = "t.jsonl", **options: Any) -> Workload:
    return read_items(put(folder, name, rows if isinstance(rows, str) else lines(rows)), **options)


UNITS = {
    "us": ({"timestamp": 1_760_587_752_000_000, "input": "a", "output": "b", "session_id": "s"}, 1e6),
    "ms": (mooncake_row(0, 600, [1, 2]), 1e3),
    "s": (
        {
            "chat_id": 1, "parent_chat_id": -1, "timestamp": 0.0, "input_length": 16, "output_length": 1,
            "type": "text", "turn": 1, "hash_ids": [1],
        },
        1.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_pitfall_1_units_are_fixed_by_the_format_and_the_span_is_told(tmp_path: Path, unit: str) -> None:
    row, per_s = UNITS[unit]
    later = {**row, "timestamp": row["timestamp"] + type(row["timestamp"])(3 * per_s), "output_length": 2}
    if unit == "us":
        del later["output_length"]
    elif unit == "s":
        later["chat_id"] = 2
    found = read(tmp_path, [row, later])
    assert [item.arrival_s for item in found.items] == [0.0, 3.0]
    assert found.time_unit == unit
    assert f"over 3.000 s, 0.333 requests/s (time unit: {unit}, by the format)" in found.notes[0]


def test_pitfall_2_the_origin_is_the_first_time(tmp_path: Path) -> None:
    table = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n19440110.0,GPT-4,5,6,11,API log\n"
    found = read(tmp_path, table + "19440111.5,GPT-4,5,6,11,API log\n", "b.csv")
    assert [item.arrival_s for item in found.items] == [0.0, 1.5]
    assert "times count from the first arrival" in found.notes


def test_pitfall_3_rows_are_sorted_stably_and_inversions_are_told(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        [mooncake_row(at, 512 + n, [n], out=1) for n, at in enumerate((5, 0, 5, 0), 10)],
        block_tokens=600,
        time_unit="ms",
    )
    assert [(item.id, item.arrival_s) for item in found.items] == [("2", 0.0), ("4", 0.0), ("1", 0.005), ("3", 0.005)]
    assert found.inversions == 2
    assert "2 neighbouring rows were out of order; sorted by arrival, stably" in found.notes


def test_pitfall_4_a_coarse_clock_is_told_and_can_be_spread(tmp_path: Path) -> None:
    rows = [mooncake_row(3000 * (n // 10), 600, [2 * n, 2 * n + 1]) for n in range(200)]
    found = read(tmp_path, rows)
    told = facts(found.items)["arrivals"]
    assert told["tick_s"] == 3.0
    assert "the source's clock ticks every 3.000 s" in as_text(inspect(found))
    spread, said = resample.spread_ticks(found.items, told["tick_s"], seed=1)
    assert "within ticks of 3 s" in said
    assert [item.arrival_s // 3 for item in spread] == [n // 10 for n in range(200)]
    assert facts(spread)["arrivals"]["tick_s"] is None
    assert facts(spread)["arrivals"]["cv"] < 1.5 < told["cv"]
    with pytest.raises(UsageError, match="not those of a coarse clock"):
        resample.spread_ticks(spread, None, seed=1)


def test_pitfall_5_zero_tokens_are_dropped_by_name_and_counted(tmp_path: Path) -> None:
    rows = [
        mooncake_row(n, size, [n] * (size > 0), out=out)
        for n, (size, out) in enumerate(((9, 1), (9, 0), (0, 0), (0, 4)))
    ]
    found = read(tmp_path, rows, block_tokens=512, time_unit="ms", form="mooncake")
    assert found.dropped == {
        "no output tokens (a failed request of the source)": 1,
        "no input and no output tokens": 1,
        "no input tokens": 1,
    }
    assert found.read == 4 == found.kept + sum(found.dropped.values())
    aborted = read(
        tmp_path, [weka(1, [dict(t=0.0, n=128, out=3), dict(t=5.0, n=192, out=0), dict(t=9.0, n=256, out=3)])]
    )
    assert (aborted.read, aborted.kept) == (3, 2)
    assert aborted.dropped == {"no output tokens (a failed request of the source)": 1}


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15T12:00:00.269Z,2,81,7\n", (81, 7)),
        (
            "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
            "1.0,u,43,GPT-4,906,446,1352,Conversation log\n",
            (906, 446),
        ),
        ("GeneratedTokens,extra,ContextTokens,TIMESTAMP\n7,x,81,2024-10-15 12:00:00\n", (81, 7)),
    ],
)
def test_pitfall_6_columns_are_taken_by_name(tmp_path: Path, table: str, wanted: tuple[int, int]) -> None:
    item = read(tmp_path, table, "t.csv").items[0]
    assert (item.input_tokens, item.output_tokens) == wanted


def test_pitfall_7_rounding_is_inferred_and_the_tail_is_unique_text(tmp_path: Path) -> None:
    up = read(tmp_path, [mooncake_row(0, 1000, [1, 2]), mooncake_row(1, 1000, [1, 3])])
    assert any("counted by ceil" in note for note in up.notes)
    down = read(tmp_path, [mooncake_row(0, 100, [1]), mooncake_row(1, 127, [1])], form="mooncake", block_tokens=64)
    assert any("counted by floor" in note for note in down.notes)
    one, two = (item.prompt for item in make_texts(down.items, key=down.sha256).items)
    assert one[:300] == two[:300]
    assert one.split()[-20:] != two.split()[-20:]
    with pytest.raises(UsageError, match=r"hash_ids: expected 1 or 2 ids of 64 tokens for 100 tokens, got 3"):
        read(tmp_path, [mooncake_row(0, 100, [1, 2, 3])], form="mooncake", block_tokens=64)


def test_pitfall_8_local_ids_are_renamed_before_conversations_meet(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for n in (1, 2):
        put(folder, f"t{n}.json", json.dumps(weka(n, [dict(t=0.0, n=128, out=3), dict(t=5.0, n=192, out=4)])))
    found = read_items(folder)
    first, second, third, _ = (item.prefix_blocks for item in found.items)
    assert first == second[:2]
    assert not set(second) & set(third)
    globally = read(tmp_path, [mooncake_row(0, 600, [7, 8]), mooncake_row(1, 600, [7, 9])])
    assert [item.prefix_blocks for item in globally.items] == [[7, 8], [7, 9]]


def test_pitfall_9_ids_are_a_chain_and_only_the_leading_run_counts(tmp_path: Path) -> None:
    rows = [mooncake_row(0, 1536, [1, 2, 3]), mooncake_row(1, 1536, [9, 2, 3]), mooncake_row(2, 1536, [1, 8, 3])]
    found = facts(read(tmp_path, rows).items)["prefix"]
    assert found["token_hit_ratio"] == pytest.approx(512 / 4608)


def test_pitfall_10_sessions_come_from_the_file_or_not_at_all(tmp_path: Path) -> None:
    plain = read(tmp_path, [mooncake_row(n, 600, [1, n + 2]) for n in range(3)])
    assert {item.session for item in plain.items} == {None}
    chats = [(5, -1, 0.0), (6, -1, 1.0), (9, 5, 2.0), (12, 9, 3.0), (20, 3, 4.0)]
    rows = [
        {"chat_id": chat, "parent_chat_id": parent, "timestamp": at, "input_length": 9, "output_length": 2, "turn": 1}
        for chat, parent, at in chats
    ]
    chain = read(tmp_path, rows)
    assert [item.session for item in chain.items] == ["chat 5", "chat 6", "chat 5", "chat 5", "chat 3"]
    assert any("1 rows continue a chat that began before the file" in note for note in chain.notes)


def test_pitfall_11_recorded_latency_gives_pauses_and_nothing_else(tmp_path: Path) -> None:
    requests = [dict(t=0.0, n=128, out=3, api=4.0), dict(t=10.0, n=192, out=4, api=7777.25, ttft=5555.5)]
    found = read(tmp_path, [weka(1, requests)])
    assert found.items[1].wait_s == 6.0  # 10 s after the start, 4 s of which were the source's server
    told = json.dumps(inspect(found))
    assert "7777" not in told and "5555" not in told
    assert "latency" not in told


def test_pitfall_12_sessions_wait_for_their_turns_and_single_shots_for_the_clock(tmp_path: Path) -> None:
    requests = [dict(t=0.0, n=128, out=3, think=0.0), dict(t=7.0, n=192, out=4, think=2.5)]
    agent = read(tmp_path, [weka(1, requests)])
    assert not agent.timed
    assert [(item.arrival_s, item.wait_s) for item in agent.items] == [(None, None), (None, 2.5)]
    assert agent.items[1].depends_on == [agent.items[0].id]
    single = read(tmp_path, [mooncake_row(0, 600, [1, 2]), mooncake_row(9, 600, [1, 3])])
    assert single.timed
    assert all(item.depends_on is None and item.wait_s is None for item in single.items)


def test_pitfall_13_caps_are_told_with_the_statistics_before_and_after(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        [
            mooncake_row(n, size, [1, *range(10 * n + 2, 10 * n + 1 + size // 512)])
            for n, size in enumerate((1024, 2048, 4096))
        ],
    )
    cut, said = resample.cap(found.items, 1100, None, drop=False)
    assert said == "2 items cut to input 1,100 tokens"
    assert [len(item.prefix_blocks) for item in cut] == [2, 2, 2]
    assert facts(cut)["prefix"]["token_hit_ratio"] > facts(found.items)["prefix"]["token_hit_ratio"]
    left, said = resample.cap(found.items, 1100, None, drop=True)
    assert (len(left), said) == (1, "2 items left out for lengths over input 1,100 tokens, sessions as a whole")


def test_pitfall_14_a_slice_of_a_prefix_trace_says_what_was_cut_away(tmp_path: Path) -> None:
    found = read(tmp_path, [mooncake_row(1000 * n, 600, [1, n + 2]) for n in range(10)])
    first, said = resample.cut(found.items, 0, 3)
    assert (len(first), "warm up" in said) == (3, False)
    middle, said = resample.cut(found.items, 5, 8)
    assert [item.arrival_s for item in middle] == [0.0, 1.0, 2.0]
    assert "first use was cut away: slice from 0, or warm up" in said


def test_pitfall_15_a_made_text_says_whether_its_tokens_were_counted(tmp_path: Path) -> None:
    found = read(tmp_path, [mooncake_row(0, 600, [1, 2])])
    assert "not counted" in make_texts(found.items, key=found.sha256).note()


def test_pitfall_16_text_of_a_block_comes_from_the_file_and_the_id(tmp_path: Path) -> None:
    rows = [mooncake_row(0, 1024, [1, 2]), mooncake_row(1, 1024, [1, 3])]
    found = read(tmp_path, rows)
    again = read(tmp_path, rows, "other-name.jsonl")
    one, two = ([item.prompt for item in make_texts(w.items, key=w.sha256).items] for w in (found, again))
    assert one == two
    assert one[0][:2000] == one[1][:2000] and one[0] != one[1]
    other = read(tmp_path, [*rows, mooncake_row(2, 600, [4, 5])])
    assert make_texts(other.items, key=other.sha256).items[0].prompt != one[0]


def test_pitfall_17_files_end_as_they_like_and_literals_are_never_run(tmp_path: Path) -> None:
    body = "\r\n".join(json.dumps(mooncake_row(n, 600, [1, n + 2])) for n in range(2))
    for end in ("", "\r\n", "\r\n\r\n  \n"):
        assert read(tmp_path, body + end, "trace.json").kept == 2
    (tmp_path / "profile").mkdir()
    put(tmp_path / "profile", "chunk-1-trace.csv", "0,2.0,1.0,Gamma,1.0,0.5\n")
    put(
        tmp_path / "profile",
        "chunk-1-dataset.json",
        json.dumps({"0": {"input_tokens": "{5: 1.0}", "output_tokens": f"open({str(tmp_path / 'ran')!r}, 'w')"}}),
    )
    with pytest.raises(UsageError, match="is no ServeGen data set"):
        read_items(tmp_path / "profile")
    assert not (tmp_path / "ran").exists()
