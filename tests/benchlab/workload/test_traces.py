"""Other people's files: units, order, zero tokens, blocks, and doubt told as doubt."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchlab.errors import UsageError
from benchlab.workload.read import Workload, read_items

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data"


def read(folder: Path, content: str, name: str = "t.jsonl", **options: object) -> Workload:
    (folder / name).write_bytes(content.encode())
    return read_items(folder / name, **options)


def arrivals(found: Workload) -> list[float | None]:
    return [item.arrival_s for item in found.items]


def test_C55_seven_digits_of_a_second_are_kept(tmp_path: Path) -> None:
    rows = "".join(f"2024-05-01 10:00:00.{part},8,4\r\n" for part in ("0030000", "0040000", "0570000", "0605000"))
    found = read(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\r\n" + rows.rstrip(), "t.csv")
    assert arrivals(found) == [0.0, 0.001, 0.054, 0.0575]


@pytest.mark.parametrize(
    "times",
    [
        ("2024-05-10 00:00:00.500000+00:00", "2024-05-10 00:00:02+00:00"),
        ("2024-10-15T12:00:00.500Z", "2024-10-15T12:00:02.000Z"),
        ("2024-05-10 00:00:00.5", "2024-05-10 02:00:02+02:00"),
    ],
)
def test_wall_clocks_in_all_spellings(tmp_path: Path, times: tuple[str, str]) -> None:
    rows = "".join(f"{time},3,8,4\n" for time in times)
    found = read(tmp_path, "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n" + rows, "t.csv")
    assert arrivals(found) == [0.0, 1.5]
    assert found.items[0].input_tokens == 8


C56 = '{"timestamp":0,"input_length":8,"output_length":4}\n{"timestamp":3000,"input_length":8,"output_length":4}\n'


@pytest.mark.parametrize(("unit", "second"), [("ms", 3.0), ("s", 3000.0), ("us", 0.003)])
def test_C56_the_unit_is_said_and_the_span_told(tmp_path: Path, unit: str, second: float) -> None:
    found = read(tmp_path, C56, time_unit=unit)
    assert arrivals(found) == [0.0, second]
    assert f"over {second:,.3f} s" in found.notes[0]
    assert f"time unit: {unit}" in found.notes[0]


def test_C56_without_a_unit_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--time-unit ms or --time-unit s"):
        read(tmp_path, C56)
    with pytest.raises(UsageError, match="not a unit of time"):
        read(tmp_path, C56, time_unit="fortnights")


C64 = '{"input_length":40,"hash_ids":[1,2,3]}\n{"input_length":32,"hash_ids":[1,2]}\n'


def test_C64_full_and_partial_last_blocks_are_accepted(tmp_path: Path) -> None:
    found = read(tmp_path, C64, block_tokens=16)
    assert [item.prefix_blocks for item in found.items] == [[1, 2, 3], [1, 2]]
    assert any("counted by ceil" in note for note in found.notes)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ('{"input_length":10,"hash_ids":[1,2,3]}', "t.jsonl:3: hash_ids: expected 0 or 1 ids of 16 tokens for 10"),
        ('{"input_length":48,"hash_ids":[1,2,3]}', "t.jsonl:3: hash_ids: block 3 has 16 tokens here and 8"),
        ('{"input_length":39,"hash_ids":[1,2,3]}', "t.jsonl:3: hash_ids: block 3 has 7 tokens here"),
        ('{"input_length":40,"hash_ids":[1,2]}', "t.jsonl:3: hash_ids: 2 ids round floor, but earlier rows round ceil"),
        ('{"input_length":16,"hash_ids":[true]}', "t.jsonl:3: hash_ids: expected integers or texts"),
        ('{"input_length":16,"hash_ids":7}', "t.jsonl:3: hash_ids: expected a list"),
    ],
)
def test_C64_blocks_that_do_not_fit_are_refused_by_line(tmp_path: Path, row: str, says: str) -> None:
    with pytest.raises(UsageError) as fault:
        read(tmp_path, C64 + row, block_tokens=16)
    assert says in str(fault.value)


def test_blocks_rounded_down_and_ids_as_texts(tmp_path: Path) -> None:
    found = read(
        tmp_path, '{"input_length":40,"hash_ids":["a","b"]}\n{"input_length":33,"hash_ids":["a","c"]}', block_tokens=16
    )
    assert [item.prefix_blocks for item in found.items] == [[-1, -2], [-1, -3]]


def test_blocks_of_an_unknown_size_are_doubt(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--block-tokens"):
        read(tmp_path, C64)
    with pytest.raises(UsageError, match="candidates: Mooncake"):
        read(tmp_path, '{"timestamp":0,"input_length":40,"output_length":4,"hash_ids":[1,2,3]}')
    with pytest.raises(UsageError, match="candidates: Mooncake"):
        read(tmp_path, '{"timestamp":0,"input_length":8,"output_length":4,"hash_ids":[1]}')


def test_mooncake_is_ms_sorted_and_rebased_and_zero_tokens_are_dropped(tmp_path: Path) -> None:
    row = '{"timestamp":%d,"input_length":600,"output_length":%d,"hash_ids":[1,2]}\n'
    found = read(tmp_path, "".join(row % pair for pair in ((5000, 3), (4000, 4), (6000, 0), (9000, 5))))
    assert arrivals(found) == [0.0, 1.0, 5.0]
    assert [item.id for item in found.items] == ["2", "1", "4"]
    assert found.dropped == {"no output tokens (a failed request of the source)": 1}
    assert (found.read, found.kept, found.inversions, found.format) == (4, 3, 1, "mooncake")


def test_burstgpt_columns_by_name(tmp_path: Path) -> None:
    head = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    rows = "19440110.0,u-1,43,GPT-4,906,446,1352,Conversation log\n19440161.5,,2,ChatGPT,36,0,36,API log\n"
    rows += "19440170.0,,2,ChatGPT,0,0,0,API log\n19440171,,2,ChatGPT,36,29,65,API log\n"
    found = read(tmp_path, head + rows, "b.csv")
    assert arrivals(found) == [0.0, 61.0]
    assert [(item.input_tokens, item.output_tokens, item.session) for item in found.items] == [
        (906, 446, "u-1"),
        (36, 29, None),
    ]
    assert found.dropped == {
        "no output tokens (a failed request of the source)": 1,
        "no input and no output tokens": 1,
    }


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("yesterday,8,4", "TIMESTAMP: expected a date and time"),
        ("2024-13-01 00:00:00,8,4", "TIMESTAMP: expected a date that exists"),
        ("2024-05-01 00:00:00,eight,4", "ContextTokens: expected int >= 0, got 'eight'"),
        ("2024-05-01 00:00:00,8", "expected 3 cells, got 2"),
        ("2024-05-01 00:00:00,8,-4", "GeneratedTokens: expected int >= 0, got '-4'"),
    ],
)
def test_a_broken_csv_row_is_named(tmp_path: Path, row: str, says: str) -> None:
    with pytest.raises(UsageError) as fault:
        read(tmp_path, f"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-01 00:00:00,8,4\n{row}\n", "t.csv")
    assert f"t.csv:3: {says}" in str(fault.value)


@pytest.mark.skipif(not DATA.is_dir(), reason="the excerpts of public traces are not here")
@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("azure_llm_2024_head5/AzureLLMInferenceTrace_code_1week.head5.csv", 5),
        ("azure_llm_2024_head5/AzureLLMInferenceTrace_conv_1week.head5.csv", 5),
        ("azure_llm_2024_head5/AzureLMMInferenceTrace_multimodal.head5.csv", 5),
        ("burstgpt_head_quoted/BurstGPT_1.head3.csv", 3),
        ("burstgpt_head_quoted/BurstGPT_3.head4.csv", 4),
    ],
)
def test_heads_of_public_traces(name: str, kept: int) -> None:
    found = read_items(DATA / name)
    assert (found.read, found.kept) == (kept, kept)
    assert found.items[0].arrival_s == 0.0
