"""A file of every format that is read, made here: what it is taken for, and what becomes of its fields."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchlab.errors import UsageError
from benchlab.loadgen.session_graph import find_needs, in_sessions
from benchlab.workload.detect import NAMES
from benchlab.workload.inspect import inspect
from benchlab.workload.item import WorkloadItem
from benchlab.workload.read import Workload, read_items
from tests.benchlab.workload.made_files import lines, mooncake_row, put, span, subagent, tracelab_round, weka

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,48,10\r\n2023-11-16 18:17:04.0319600,31,8"
)
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,4,6,10,Conversation log\n"
REPLAY = (
    "session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms\n"
    "0,100,0,0,512,64,250\n0,100,1,576,128,64,0\n1,350,0,0,400,48,80\n"
)
BAILIAN = {
    "chat_id": 7, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 40, "output_length": 3, "type": "search",
    "turn": 1, "hash_ids": [1, 2, 3],
}  # fmt: skip
RAG = {
    "timestamp": "27",
    "input_length": 70,
    "output_length": 12,
    "hash_ids": {"sys_prompt": [1], "passages_ids": [2, 3], "history": [], "web_search": [], "user_input": [4]},
    "session_id": "u",
}
LMCACHE = {"timestamp": 1_000_000, "input": "Hi there", "output": "A longer answer.", "session_id": "s"}
SHAREGPT = {
    "id": "x",
    "conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "Because it is."}],
}
BATCH = {
    "custom_id": "r-1",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": 9, "temperature": 0.5},
}
EVALSCOPE = {"body": json.dumps(BATCH["body"]), "timestamp": "2026-06-01T00:00:01Z", "request_id": "q"}
PAYLOADS = {"session_id": "s", "payloads": [BATCH["body"], BATCH["body"]]}
AGENTIC = {
    "metadata": {},
    "conversations": [
        [
            {"messages": [{"role": "user", "content": "a"}], "prompt_tokens": 3},
            {"messages": [{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}], "prompt_tokens": 9},
        ]
    ],
}
OFFLINE = {
    "request_id": "a", "type": "text", "input_length": 40, "output_length": 3, "hash_ids": [1, 2, 3], "img_ids": [],
}  # fmt: skip
USAGE = {"gen_ai.usage.input_tokens": 30, "gen_ai.usage.output_tokens": 5}

FILES: dict[str, tuple[str, str, int]] = {
    "azure": ("a.csv", AZURE, 2),
    "burstgpt": ("b.csv", BURST, 1),
    "lengths (etalon)": (
        "l.csv", "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n74,9,83,8.2\n", 1,
    ),
    "tracelab-replay": ("r.csv", REPLAY, 3),
    "mooncake": ("m.jsonl", lines([mooncake_row(0, 600, [1, 2])]), 1),
    "bailian": ("q.jsonl", lines([BAILIAN]), 1),
    "ragpulse": ("g.jsonl", lines([RAG]) + "\n", 1),
    "weka": ("w.json", json.dumps(weka(1, [dict(t=0.0, n=128, out=3), dict(t=4.0, n=192, out=2)]), indent=1), 2),
    "tracelab": ("t.jsonl", lines([tracelab_round("s", 0, 0, 100, 7, "20.100", "22.000")]), 1),
    "lmcache": ("c.jsonl", lines([LMCACHE]), 1),
    "sharegpt": ("s.json", json.dumps([SHAREGPT, SHAREGPT], indent=2), 2),
    "openai-batch": ("o.jsonl", lines([BATCH]), 1),
    "evalscope": ("e.jsonl", lines([EVALSCOPE]), 1),
    "aiperf-inputs": ("i.json", json.dumps({"data": [PAYLOADS]}), 2),
    "sglang-agentic": ("h.json", json.dumps(AGENTIC), 2),
    "opentelemetry": ("p.json", json.dumps({"trace_id": "x", "spans": [span("x", "01.0", "02.0", **USAGE)]}), 1),
    "servegen-batch": ("f.jsonl", lines([OFFLINE]), 1),
    "request-bodies": ("y.jsonl", lines([BATCH["body"]]), 1),  # type: ignore[list-item]
    "questions": ("z.jsonl", lines([{"question": "How many?", "answer": "Four of them."}]), 1),
    "sessions (turns)": ("u.jsonl", lines([{"question_id": 1, "category": "math", "turns": ["a", "b"]}]), 2),
    "rows": ("n.jsonl", lines([{"prompt": "a", "output_tokens": 3}]), 1),
}  # fmt: skip


def read(folder: Path, rows: Any, name: str = "t.jsonl", **options: Any) -> Workload:
    content = rows if isinstance(rows, str) else lines(rows)
    return read_items(put(folder, name, content), **options)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", FILES)
def test_every_format_is_known_by_its_names(tmp_path: Path, name: str, packed: bool) -> None:
    file, content, items = FILES[name]
    path = put(tmp_path, file + ".gz" * packed, gzip.compress(content.encode()) if packed else content)
    found = read_items(path)
    assert (found.format, len(found.items)) == (name, items)
    assert found.read == found.kept + sum(found.dropped.values())
    assert read_items(path, form=name.split(" ")[0]).items == found.items


@pytest.mark.parametrize("name", FILES)
def test_a_known_format_with_a_broken_row_says_where(tmp_path: Path, name: str) -> None:
    file, content, _ = FILES[name]
    broken = content.rstrip() + ("\r\n1,\r\n" if file.endswith(".csv") else "\n{\n")
    with pytest.raises(UsageError) as fault:
        read_items(put(tmp_path, file, broken))
    assert f"{file}:" in str(fault.value)


def test_what_is_in_doubt_names_the_candidates(tmp_path: Path) -> None:
    row = {**BAILIAN, "turns": ["a"]}
    with pytest.raises(UsageError, match=r"could be bailian or sessions.*\n?.*--from bailian or --from sessions"):
        read(tmp_path, [row])
    with pytest.raises(UsageError, match="the column 'a' stands twice"):
        read(tmp_path, "a,b,a\n1,2,3\n", "d.csv")


def test_a_format_by_name(tmp_path: Path) -> None:
    row = {"timestamp": 3, "input_length": 40, "output_length": 2, "hash_ids": [1, 2, 3]}
    assert read(tmp_path, [row, {**row, "timestamp": 5}], form="timed_trace").items[1].arrival_s == 2.0
    assert read(tmp_path, [{"timestamp": 3, "input_length": 40, "output_length": 2}], form="guidellm").time_unit == "s"
    with pytest.raises(UsageError, match="did you mean 'mooncake'"):
        read(tmp_path, [row], form="mooncak")
    with pytest.raises(UsageError, match="is JSON, and azure is not"):
        read(tmp_path, [row], form="azure")
    with pytest.raises(UsageError, match="is a table, and weka is not"):
        read(tmp_path, AZURE, "a.csv", form="weka")
    assert "mooncake" in NAMES


def test_spellings_of_other_tools(tmp_path: Path) -> None:
    rows = [
        {"text_input": "a", "output_length": 3, "session_id": "s", "delay": 1500},
        {"prompt": "b", "max_tokens": 4, "temperature": 0, "ignore_eos": True, "request_id": 9},
        {"messages": [{"role": "user", "content": "c"}], "max_completion_tokens": 5, "tools": [{"type": "function"}]},
    ]
    first, second, third = read(tmp_path, rows).items
    assert (first.prompt, first.output_tokens, first.session, first.wait_s) == ("a", 3, "s", 1.5)
    assert (second.id, second.sampling) == ("9", {"temperature": 0, "ignore_eos": True})
    assert (third.output_tokens, third.tools) == (5, [{"type": "function"}])
    parts = read(tmp_path, [{"texts": ["a", "b"], "role": "user", "extra": {"top_p": 0.5}, "temperature": 0}]).items[0]
    assert (parts.prompt, parts.sampling) == ("a\nb", {"top_p": 0.5, "temperature": 0})
    told = {"messages": json.dumps([{"role": "user", "content": "a"}]), "timestamp_ms": 5}
    assert read(tmp_path, [told]).items[0].messages == [{"role": "user", "content": "a"}]
    with pytest.raises(UsageError, match=r"messages: expected array"):
        read(tmp_path, [{"messages": "[broken"}])
    payload = [{"payload": BATCH["body"], "timestamp": at} for at in (2000, 3500)]
    assert [item.arrival_s for item in read(tmp_path, payload).items] == [0.0, 1.5]
    timed = read(tmp_path, [{"timestamp_ms": at, "input_length": 5, "output_length": 2} for at in (0, 1500)])
    assert [item.arrival_s for item in timed.items] == [0.0, 1.5]


def test_bailian_and_its_chain_of_parents(tmp_path: Path) -> None:
    second = {**BAILIAN, "chat_id": 8, "parent_chat_id": 7, "turn": 2, "timestamp": 61.0, "hash_ids": [1, 2, 9]}
    first, then = read(tmp_path, [BAILIAN, second]).items
    assert (first.session, first.turn, first.tags, first.block_tokens) == ("chat 7", 1, ["search"], 16)
    assert (then.session, then.turn, then.arrival_s, then.depends_on) == ("chat 7", 2, 60.5, None)
    with pytest.raises(UsageError, match=r"t.jsonl:1: typo: unknown field; did you mean 'type'"):
        read(tmp_path, [{**BAILIAN, "typo": 1}])


def test_ragpulse_shares_its_leading_components(tmp_path: Path) -> None:
    later = {**RAG, "timestamp": "29", "hash_ids": {**RAG["hash_ids"], "passages_ids": [2, 5]}}  # type: ignore[dict-item]
    alone = read(tmp_path, [RAG, later])
    assert [item.prefix_blocks for item in alone.items] == [None, None]
    assert any("2 rows without shared blocks" in note for note in alone.notes)
    for name, pairs in (
        ("1_sys_prompt", [(1, 33)]),
        ("2_passages", [(2, 20), (3, 7), (5, 7)]),
        ("4_user_input", [(4, 10)]),
    ):
        put(tmp_path, f"{name}.jsonl", lines({"hash_id": one, "length": size} for one, size in pairs))
    one, two = read(tmp_path, [RAG, later], "0_trace.jsonl").items
    assert (one.block_tokens, one.session, [one.turn, two.turn], two.arrival_s) == (16, "u", [1, 2], 2.0)
    assert one.prefix_blocks and two.prefix_blocks
    assert len(one.prefix_blocks) == 70 // 16
    assert one.prefix_blocks[:3] == two.prefix_blocks[:3]  # 33 + 20 tokens are the same: three full blocks
    assert one.prefix_blocks[3] != two.prefix_blocks[3]


def test_weka_conversations_with_sub_agents(tmp_path: Path) -> None:
    inner = [dict(t=0.0, n=64, out=2), dict(t=6.0, n=128, out=3, think=1.0)]
    requests = [
        dict(t=0.0, n=128, out=3, api=5.0),
        subagent(8.0, 20.0, inner),  # ends at 28, before the next request: it was waited for
        subagent(9.0, 500.0, inner),  # goes on: not waited for
        dict(t=30.0, n=192, out=4, think=25.0),
    ]
    found = read(tmp_path, [weka(1, requests)])
    names = [item.id.removeprefix("conversation-1/") for item in found.items]
    assert names == ["1", "2.1", "2.2", "3.1", "3.2", "4"]
    waits = {name: (item.depends_on, item.wait_s) for name, item in zip(names, found.items, strict=True)}
    at = "conversation-1/"
    assert waits["1"] == (None, None)
    assert waits["2.1"] == ([at + "1"], 3.0)  # spawned at 8, the request before ended at 5
    assert waits["2.2"] == ([at + "2.1"], 1.0)
    assert waits["4"] == ([at + "1", at + "2.2"], 2.0)  # 30 less the end of the sub-agent, not the 25 s of thinking
    assert {item.session for item in found.items} == {"conversation-1"}
    assert len(find_needs(in_sessions(found.items))) == 6


def test_weka_says_what_is_wrong_and_where_inside(tmp_path: Path) -> None:
    bad = weka(1, [dict(t=0.0, n=128, out=3)])
    bad["requests"][0]["in"] = "many"
    with pytest.raises(UsageError, match=r"t.jsonl:1: in: expected int >= 0, got 'many'"):
        read(tmp_path, [bad])
    bad["requests"][0] |= {"in": 128, "thinktime": 3}
    with pytest.raises(UsageError, match=r"requests\[0\].thinktime: unknown field; did you mean 'think_time'"):
        read(tmp_path, [bad])
    assert read(tmp_path, [bad], allow_unknown=True).kept == 1


def test_tracelab_rounds_wait_for_the_end_of_the_one_before(tmp_path: Path) -> None:
    rows = [
        tracelab_round("s", 0, 64, 100, 7, "20.000", "22.000"),
        tracelab_round("s", 1, 150, 90, 5, "25.500", "29.000"),
        tracelab_round("z", 0, 0, 64, 5, "21.000", "23.000"),
    ]
    first, then, other = (read(tmp_path, rows).items[place] for place in (0, 1, 2))
    assert (first.arrival_s, first.input_tokens, first.turn) == (0.0, 164, 0)
    assert (then.arrival_s, then.wait_s, then.turn) == (None, 3.5, 1)
    assert (other.arrival_s, other.session) == (1.0, "z")
    assert first.prefix_blocks and then.prefix_blocks
    assert (len(first.prefix_blocks), len(then.prefix_blocks), then.block_tokens) == (2, 3, 64)
    assert then.prefix_blocks[:2] == first.prefix_blocks
    with pytest.raises(UsageError, match="expected the rounds of a session in order, got 0 after 1"):
        read(tmp_path, [*rows[1:2], rows[0]])
    with pytest.raises(UsageError, match=r"input_tokens_total: expected prefix_tokens \+ newly_append_tokens = 164"):
        read(tmp_path, [{**rows[0], "input_tokens_total": 9}])


def test_tracelab_replay_asks_with_prefix_and_input(tmp_path: Path) -> None:
    first, then, other = read(tmp_path, REPLAY, "r.csv").items
    assert [item.input_tokens for item in (first, then, other)] == [512, 704, 400]
    assert (first.arrival_s, then.arrival_s, then.wait_s, other.arrival_s) == (0.0, None, 0.25, 0.25)
    assert then.prefix_blocks and first.prefix_blocks and then.prefix_blocks[:8] == first.prefix_blocks


def test_lmcache_sorts_within_sessions_and_knows_no_length_of_an_empty_answer(tmp_path: Path) -> None:
    rows = [{**LMCACHE, "timestamp": 3_000_000, "output": ""}, LMCACHE]
    found = read(tmp_path, rows)
    assert [(item.turn, item.arrival_s, item.output_tokens) for item in found.items] == [(1, 0.0, 4), (2, 2.0, None)]
    assert any("1 answers are not recorded" in note for note in found.notes)
    assert any("estimate of 4 characters a token" in note for note in found.notes)


def test_sharegpt_takes_the_first_question_and_the_length_of_its_answer(tmp_path: Path) -> None:
    led = {"conversations": [{"from": "gpt", "value": "Before"}, *SHAREGPT["conversations"]]}  # type: ignore[misc]
    rows = [SHAREGPT, led, {"conversations": []}, {"conversations": [{"from": "human", "value": "Alone"}]}]
    found = read(tmp_path, json.dumps(rows), "s.json")
    assert [item.messages for item in found.items] == [[{"role": "user", "content": "Why?"}]] * 2
    assert [item.output_tokens for item in found.items] == [4, 4]
    assert found.dropped == {
        "a conversation without a question": 1,
        "a conversation whose first question has no answer": 1,
    }
    assert any("1 conversations begin with the model's turn" in note for note in found.notes)


def test_batches_bodies_and_evalscope(tmp_path: Path) -> None:
    item = read(tmp_path, [BATCH, {**BATCH, "custom_id": "e", "url": "/v1/embeddings"}]).items[0]
    assert (item.id, item.output_tokens, item.sampling) == ("r-1", 9, {"temperature": 0.5})
    later = {**EVALSCOPE, "timestamp": "2026-06-01T00:00:03.5Z", "request_id": "p", "completion_tokens": 77}
    first, then = read(tmp_path, [EVALSCOPE, later]).items
    assert (first.arrival_s, then.arrival_s, then.output_tokens) == (0.0, 2.5, 77)
    one, two = read(tmp_path, [PAYLOADS]).items
    assert (two.session, two.turn, two.depends_on) == ("s", 2, [one.id])


def test_spans_of_a_trace_are_a_session(tmp_path: Path) -> None:
    rows = [
        span("t", "01.000", "03.000", **USAGE),
        span("t", "04.500", "06.000", **USAGE),
        span("t", "05.000", "07.000", **USAGE),  # beside the second: waits for the first, too
        {**span("t", "01.500", "01.600"), "attributes": {"gen_ai.operation.name": "execute_tool"}},
        span(
            "u",
            "02.000",
            "09.000",
            **{"gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"a"}]}]'},
        ),
    ]
    found = read(tmp_path, rows)
    by_name = {item.id: item for item in found.items}
    assert [by_name[name].wait_s for name in ("t/1", "t/2", "t/3", "u/1")] == [None, 1.5, 2.0, None]
    assert by_name["t/3"].depends_on == ["t/1"]
    assert (by_name["t/1"].arrival_s, by_name["u/1"].arrival_s, by_name["t/1"].session) == (0.0, 1.0, "t")
    assert by_name["u/1"].messages == [{"role": "user", "content": "a"}]
    assert (found.read, found.dropped) == (5, {"a span that is no call of a model": 1})
    attributes = [{"key": "gen_ai.usage.input_tokens", "value": {"intValue": "12"}}]
    export = {"traceId": "x", "startTimeUnixNano": "1000", "endTimeUnixNano": "2000", "attributes": attributes}
    otlp = {"resourceSpans": [{"scopeSpans": [{"spans": [export]}]}]}
    assert read(tmp_path, json.dumps(otlp, indent=1), "o.json").items[0].input_tokens == 12


def test_parquet_rows_are_json_rows(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.Table.from_pylist([mooncake_row(0, 600, [1, 2]), mooncake_row(1500, 600, [1, 3])]), tmp_path / "m.parquet"
    )
    found = read_items(tmp_path / "m.parquet")
    assert (found.format, [item.arrival_s for item in found.items]) == ("mooncake", [0.0, 1.5])
    pq.write_table(pa.table({"question": ["a?", None], "answer": ["b", "c"]}), tmp_path / "q.parquet")
    asked = read_items(tmp_path / "q.parquet", form="questions")
    assert (asked.kept, asked.dropped) == (1, {"no text in any known column": 1})
    broken = put(tmp_path, "b.parquet", (tmp_path / "m.parquet").read_bytes()[:-9])
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        read_items(broken)


def test_a_folder_is_one_workload_of_one_format(tmp_path: Path) -> None:
    folder = tmp_path / "w"
    folder.mkdir()
    put(folder, "b.jsonl", lines([{**LMCACHE, "session_id": "b", "timestamp": 2_000_000}]))
    put(folder, "a.jsonl", lines([LMCACHE]))
    put(folder, "c.jsonl", "")
    put(folder, "README.md", "not a workload")
    found = read_items(folder)
    assert [(item.id, item.session) for item in found.items] == [("a:1", "s"), ("b:1", "b")]
    assert any("3 files of a folder, 1 of them empty" in note for note in found.notes)
    sha = found.sha256
    put(folder, "b.jsonl", lines([{**LMCACHE, "session_id": "b", "timestamp": 2_000_001}]))
    assert read_items(folder).sha256 != sha
    put(folder, "d.jsonl", lines([{"prompt": "a"}]))
    with pytest.raises(UsageError, match=r"d.jsonl: is rows, but the files before are lmcache"):
        read_items(folder)


def test_servegen_profiles_are_drawn_by_seed_and_span(tmp_path: Path) -> None:
    for client, trace in (
        (1, "0,0,0,,0,0\n600,2.0,1.0,Gamma,1.0,0.5\n"),
        (2, "0,0,0,,0,0\n600,1.0,1,Weibull,1.0,1.0\n"),
    ):
        put(tmp_path, f"chunk-{client}-trace.csv", trace)
        data = {"0": {"input_tokens": "{5: 0.5, 9: 0.5}", "output_tokens": "{0: 0.25, 7: 0.75}", "reason_ratio": "{}"}}
        put(tmp_path, f"chunk-{client}-dataset.json", json.dumps(data))
    found = read_items(tmp_path)
    assert found.items == read_items(tmp_path).items
    assert found.read == found.kept + found.dropped["no output tokens (a failed request of the source)"]
    assert 1500 < found.read < 2100
    assert {item.tenant for item in found.items} == {"client-1", "client-2"}
    assert any("2 of 4 windows are idle" in note for note in read_items(tmp_path, span_s=(0, 1200)).notes)
    assert read_items(tmp_path, seed=1).items[0] != found.items[0]
    with pytest.raises(UsageError, match="no client sends anything from 0 to 600 s"):
        read_items(tmp_path, span_s=(0, 600))
    put(tmp_path, "chunk-2-trace.csv", "0,1.0,1,Pareto,1.0,1.0\n")
    with pytest.raises(UsageError, match=r"chunk-2-trace.csv:1: expected start, rate, CV, Gamma or Weibull"):
        read_items(tmp_path)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    file, content, _ = FILES[draw(st.sampled_from(sorted(FILES)))]
    data = bytearray(content.encode())
    for _ in range(draw(st.integers(0, 5))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 12))] = draw(
            st.binary(max_size=3)
            | st.sampled_from([b"null", b"{}", b"[]", b"-1", b"1e999", b"1e18", b"true", b'"', b"\n", b",", b"9" * 25])
        )
    return file, bytes(data)


@given(damaged(), st.booleans(), st.booleans())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_to_any_format_is_told_in_words(
    tmp_path: Path, damage: tuple[str, bytes], lenient: bool, unknown: bool
) -> None:
    file, data = damage
    path = tmp_path / file
    path.write_bytes(data)
    try:
        found = read_items(path, lenient=lenient, allow_unknown=unknown)
    except UsageError as fault:
        assert str(fault)
        return
    assert found.read == found.kept + sum(found.dropped.values())
    json.dumps(inspect(found), allow_nan=False)
    for item in found.items:
        msgspec.convert(msgspec.to_builtins(item), WorkloadItem)
