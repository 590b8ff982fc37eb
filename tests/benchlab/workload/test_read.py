"""The reader: what it keeps, what it refuses, and in which words."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from benchlab.errors import Exit, UsageError
from benchlab.workload.item import WorkloadItem
from benchlab.workload.read import REJECTED, Workload, read_items, write_items

FIXTURE = [HealthCheck.function_scoped_fixture]


def write(folder: Path, content: str | bytes, name: str = "w.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refused(path: Path, **options: object) -> str:
    with pytest.raises(UsageError) as fault:
        read_items(path, **options)
    assert fault.value.exit_code == Exit.USAGE
    return str(fault.value)


def test_a_plain_file(tmp_path: Path) -> None:
    path = write(tmp_path, '{"prompt":"a","output_tokens":3}\n\n{"id":"x","prompt":"b"}\n')
    found = read_items(path)
    assert [item.id for item in found.items] == ["1", "x"]
    assert (found.read, found.kept, found.dropped, found.timed) == (2, 2, {}, False)
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_C59_the_output_length_of_each_row_is_kept(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"prompt":"List three colours.","output_length":200}\n{"prompt":"Name one.","output_length":7}\n',
    )
    assert [item.output_tokens for item in read_items(path).items] == [200, 7]


C62 = b'\xef\xbb\xbf{"prompt":"a"}\n\n{"prompt":"b"\n{"prompt":""}\n["c"]\n{"prompt":"d"}\r'


def test_C62_unusable_rows_stop_the_reading_with_line_and_reason(tmp_path: Path) -> None:
    told = refused(write(tmp_path, C62))
    assert "w.jsonl:3: is not JSON" in told
    assert told.index("w.jsonl:3") < told.index("w.jsonl:4") < told.index("w.jsonl:5")
    assert "--lenient" in told


def test_C62_lenient_keeps_two_and_lists_three(tmp_path: Path) -> None:
    found = read_items(write(tmp_path, C62), lenient=True)
    assert [item.prompt for item in found.items] == ["a", "d"]
    assert (found.read, found.kept, found.dropped) == (5, 2, {REJECTED: 3})
    assert [line.split(":")[1] for line in found.complaints] == ["3", "4", "5"]


def test_C67_zero_and_negative_outputs_are_refused_by_line(tmp_path: Path) -> None:
    rows = "".join(f'{{"prompt":"Name a tree.","output_length":{n}}}\n' for n in (0, -5, 1))
    told = refused(write(tmp_path, rows))
    assert "w.jsonl:1: output_length: expected int >= 1, got 0" in told
    assert "w.jsonl:2: output_length: expected int >= 1, got -5" in told
    assert "w.jsonl:3" not in told
    assert [item.output_tokens for item in read_items(tmp_path / "w.jsonl", lenient=True).items] == [1]


def test_C58_a_missing_time_among_timed_rows_is_refused_by_line(tmp_path: Path) -> None:
    row = '"input_length":8,"output_length":4}\n'
    path = write(tmp_path, '{"timestamp":0.0,' + row + "{" + row + '{"timestamp":2.0,' + row)
    told = refused(path, time_unit="s")
    assert "w.jsonl:2: arrival_s: missing" in told
    kept = read_items(path, time_unit="s", lenient=True)
    assert [item.arrival_s for item in kept.items] == [0.0, 2.0]
    assert kept.read == kept.kept + sum(kept.dropped.values())


def test_C58_a_file_without_times_is_untimed(tmp_path: Path) -> None:
    found = read_items(write(tmp_path, '{"input_length":8,"output_length":4}\n' * 3))
    assert not found.timed
    assert found.span_s is None


def test_C58_a_later_turn_needs_no_time(tmp_path: Path) -> None:
    rows = '{"id":"a","prompt":"a","arrival_s":0}\n{"prompt":"b","depends_on":["a"],"wait_s":1}\n'
    assert read_items(write(tmp_path, rows)).timed


def test_C61_a_leading_system_turn_is_no_request(tmp_path: Path) -> None:
    row = {
        "session_id": "s1",
        "turns": [
            {"role": "system", "text": "Be brief."},
            {"role": "user", "text": "Hi"},
            {"role": "user", "text": "Bye"},
        ],
    }
    found = read_items(write(tmp_path, json.dumps(row)))
    system = {"role": "system", "content": "Be brief."}
    assert [item.messages for item in found.items] == [
        [system, {"role": "user", "content": "Hi"}],
        [system, {"role": "user", "content": "Bye"}],
    ]
    assert [(item.session, item.turn) for item in found.items] == [("s1", 1), ("s1", 2)]
    assert found.items[1].depends_on == [found.items[0].id]


def test_C61_a_system_message_alone_is_refused(tmp_path: Path) -> None:
    told = refused(write(tmp_path, '{"messages":[{"role":"system","content":"Be brief."}]}'))
    assert "a system message alone is not a request" in told


def test_C68_each_row_is_there_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    rows = "".join(f'{{"prompt":"p{n}"}}\n' for n in range(8))
    items = read_items(write(tmp_path, rows)).items
    assert [item.prompt for item in items] == [f"p{n}" for n in range(8)]
    strides = [items[worker::4] for worker in range(4)]
    assert sorted(item.id for stride in strides for item in stride) == [str(n) for n in range(1, 9)]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ('{"prompt":"a","output_tokens":0}', "output_tokens: expected int >= 1, got 0"),
        ('{"prompt":"a","output_tokens":"9"}', "output_tokens: expected int | null, got '9'"),
        ('{"prompt":"a","output_token":9}', "output_token: unknown field; did you mean 'output_tokens'?"),
        ('{"prompt":"a","zzz":9}', "zzz: unknown field"),
        ('{"prompt":"  "}', "prompt: expected a text that is not empty"),
        ('{"prompt":""}', "prompt: expected a text that is not empty, got ''"),
        ('{"id":"a"}', "expected exactly one of messages, prompt and input_tokens, got none"),
        ('{"prompt":"a","input_tokens":3}', "got prompt and input_tokens"),
        ('{"prompt":"a","input_length":3}', "got prompt and input_length"),
        ('{"input_tokens":3,"input_length":3}', "input_length: says the same as input_tokens"),
        ('{"messages":[]}', "messages: expected at least one message"),
        ('{"messages":[{"role":"you","content":"a"}]}', "messages[0].role: expected one of system"),
        ('{"messages":[{"role":"user"}]}', "messages[0].content: expected a text"),
        ('{"messages":[{"role":"user","content":""}]}', "messages[0].content: expected a text that is not empty"),
        ('{"messages":[3]}', "messages[0]: expected object"),
        ('{"prompt":"a","arrival_s":-1}', "arrival_s: expected float >= 0"),
        ('{"prompt":"a","arrival_s":NaN}', "is not JSON"),
        ('{"prompt":"a","output_tokens":99999999999999999999999}', "output_tokens: expected"),
        ('{"prompt":"a","prefix_blocks":[1]}', "prefix_blocks: expected input_tokens beside it"),
        ('{"input_tokens":20,"prefix_blocks":[1]}', "prefix_blocks: expected block_tokens beside it"),
        ('{"input_tokens":20,"prefix_blocks":[1,2,3],"block_tokens":16}', "prefix_blocks: expected at most 2 ids"),
        ('{"prompt":"a","sampling":5,"extra":{"top_p":1}}', "sampling: expected object"),
        ('{"prompt":"a","wait_s":1,"delay":5}', "delay: says the same as wait_s"),
        ('{"prompt":"a","texts":["b"]}', "texts: says the same as prompt"),
        ('{"prompt":"a","arrival_s":1,"timestamp_ms":5}', "timestamp_ms: says the same as arrival_s"),
        ('{"prompt":"a","timestamp_ms":5,"created_time":6}', "created_time: another time than"),
        ('{"prompt":"a","extra":5}', "extra: expected an object of request fields, got 5"),
        ('{"turns":[]}', "turns: expected a list of turns"),
        ('"a"', "expected a JSON object"),
        ("[" * 100_000, "w.jsonl:1: "),
        ('{"prompt":' + "[" * 50_000 + "]" * 50_000 + "}", "w.jsonl:1: "),
    ],
)
def test_a_broken_row_is_named(tmp_path: Path, row: str, says: str) -> None:
    told = refused(write(tmp_path, row + "\n"))
    assert "w.jsonl:1: " in told
    assert says in told
    assert len(told) < 1000


def test_unknown_fields_are_accepted_when_told(tmp_path: Path) -> None:
    found = read_items(write(tmp_path, '{"prompt":"a","note":1}'), allow_unknown=True)
    assert found.items[0].prompt == "a"


def test_an_id_stands_once(tmp_path: Path) -> None:
    told = refused(write(tmp_path, '{"id":"q","prompt":"a"}\n{"id":"q","prompt":"b"}\n'))
    assert "w.jsonl:2: id: 'q' is also the id of line 1" in told


def test_an_id_is_not_the_line_of_a_row_without_one(tmp_path: Path) -> None:
    told = refused(write(tmp_path, '{"id":"2","prompt":"a"}\n{"prompt":"b"}\n'))
    assert "w.jsonl:2: id: '2' is also the id of line 1" in told
    kept = read_items(tmp_path / "w.jsonl", lenient=True)
    assert [item.prompt for item in kept.items] == ["a"]
    assert [item.id for item in read_items(write(tmp_path, '{"id":"1","prompt":"a"}\n{"prompt":"b"}\n')).items] == [
        "1",
        "2",
    ]


def test_twenty_complaints_and_no_more(tmp_path: Path) -> None:
    told = refused(write(tmp_path, '{"prompt":""}\n' * 500))
    assert told.count("w.jsonl:") == 21  # the heading and twenty lines
    assert "stopped here" in told


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "holds no items"),
        (b"\n \n\r\n", "holds no items"),
        (b"\xef\xbb\xbf", "holds no items"),
        (b"\xff\xfe{\x00}\x00", "NUL bytes"),
        (b'{"prompt":"\xe9"}', "is not UTF-8"),
        (b'{"prompt":"a\x00b"}', "NUL bytes"),
        (b"\x1f\x8bnothing", "cannot be read"),
        (b"\x28\xb5\x2f\xfdnothing", "cannot be read"),
        (gzip.compress(b'{"prompt":"a"}')[:-6], "cannot be read"),
        (b"a,b\n1,2\n", "no known CSV"),
        (b"a,b\r1,2\r", "the header is not CSV"),
        (b'"a,b\n', "is not JSON"),
        (b'a,"b\n', "the header is not CSV"),
        (b"hello there\n", "is not JSON"),
    ],
)
def test_a_broken_file_is_told(tmp_path: Path, content: bytes, says: str) -> None:
    assert says in refused(write(tmp_path, content))


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "none.jsonl")
    assert "is a folder" in refused(tmp_path)
    assert "cannot be opened" in refused(Path("a\0b"))


def test_a_line_of_50_MB_is_refused_in_words(tmp_path: Path) -> None:
    told = refused(write(tmp_path, b'{"prompt":"' + b"a" * 50_000_000 + b'"}'))
    assert "w.jsonl:1: a line of more than 32 MiB" in told


def test_gzip_and_zstd(tmp_path: Path) -> None:
    import pyarrow as pa

    plain = b'{"prompt":"a"}\r\n{"prompt":"b"}\r\n'
    packed = write(tmp_path, gzip.compress(plain), "w.jsonl.gz")
    assert [item.prompt for item in read_items(packed).items] == ["a", "b"]
    assert read_items(packed).sha256 == hashlib.sha256(packed.read_bytes()).hexdigest()
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(plain)
    packed = write(tmp_path, sink.getvalue().to_pybytes(), "w.jsonl.zst")
    assert [item.prompt for item in read_items(packed).items] == ["a", "b"]


def test_plain_prompts(tmp_path: Path) -> None:
    found = read_items(write(tmp_path, "Name a tree.\n\nWhy, though?\n", "prompts.txt"))
    assert [item.prompt for item in found.items] == ["Name a tree.", "Why, though?"]


def test_native_rows_out_of_order_are_sorted_stably_and_told(tmp_path: Path) -> None:
    rows = "".join(f'{{"prompt":"{name}","arrival_s":{at}}}\n' for name, at in (("a", 2), ("b", 1), ("c", 1)))
    found = read_items(write(tmp_path, rows))
    assert [item.prompt for item in found.items] == ["b", "c", "a"]
    assert found.inversions == 1
    assert any("out of order" in note for note in found.notes)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | TEXT, lambda inner: st.lists(inner, max_size=3)
)
ITEMS = st.lists(
    st.builds(
        WorkloadItem,
        id=TEXT,
        prompt=TEXT,
        output_tokens=st.none() | st.integers(1, 10**6),
        wait_s=st.none() | st.floats(0, 1e6),
        session=st.none() | TEXT,
        turn=st.none() | st.integers(0, 9),
        sampling=st.none() | st.dictionaries(TEXT, JSON, max_size=2),
        priority=st.none() | st.integers(-9, 9),
        tenant=st.none() | TEXT,
        expect=JSON,
        tags=st.lists(TEXT, max_size=2),
    )
    | st.builds(
        WorkloadItem,
        id=TEXT,
        input_tokens=st.integers(64, 10**6),
        block_tokens=st.just(16),
        prefix_blocks=st.lists(st.integers(0, 99), max_size=4),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda item: item.id,
)


@given(ITEMS)
@settings(max_examples=100, deadline=None, suppress_health_check=FIXTURE)
def test_what_is_written_is_read(tmp_path: Path, items: list[WorkloadItem]) -> None:
    write_items(items, tmp_path / "r.jsonl")
    assert read_items(tmp_path / "r.jsonl").items == items


SEEDS = (
    C62,
    b'{"timestamp":0,"input_length":600,"output_length":4,"hash_ids":[1,2]}\n' * 2,
    b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-05-01 10:00:00.0030000,8,4\r\n",
    b'{"session_id":"s","turns":[{"role":"user","text":"a"},{"role":"user","text":"b"}]}\n',
    b'{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"arrival_s":1e3}\n',
)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 3))] = draw(
            st.binary(max_size=4)
            | st.sampled_from([b"null", b"{}", b"[]", b"-1", b"1e999", b"true", b'"', b"\n", b","])
        )
    return bytes(data)


@given(broken() | st.binary(max_size=200), st.booleans(), st.sampled_from([None, "ms"]), st.booleans())
@example(b"", True, None, True)
@settings(max_examples=300, deadline=None, suppress_health_check=FIXTURE)
def test_no_bytes_make_a_traceback(tmp_path: Path, data: bytes, lenient: bool, unit: str | None, open_: bool) -> None:
    path = write(tmp_path, data, "fuzz.jsonl")
    try:
        found = read_items(
            path, lenient=lenient, time_unit=unit, allow_unknown=open_, block_tokens=16 if open_ else None
        )
    except UsageError as fault:
        assert str(fault)
        return
    assert isinstance(found, Workload)
    assert found.read == found.kept + sum(found.dropped.values())
    assert found.items
    for item in found.items:  # what is kept can be written and is sound again
        msgspec.convert(msgspec.to_builtins(item), WorkloadItem)


def test_a_pipe_is_read_once_and_a_table_without_commas_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b'{"prompt":"a"}\n',))
    writer.start()
    assert read_items(tmp_path / "pipe").kept == 1
    writer.join()
    table = '"Timestamp","Request tokens","Response tokens"\n1,"2",3\n'
    assert read_items(write(tmp_path, table, "quoted.csv")).items[0].input_tokens == 2
    assert "the header has no commas" in refused(write(tmp_path, "TIMESTAMP;ContextTokens\n1;2\n", "t.csv"))
