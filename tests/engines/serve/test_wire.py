"""The wire, the stop filter, the decoders of a stream and the command line: all without a socket."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab_engine.__main__ import main
from benchlab_engine.serve.stops import StopFilter
from benchlab_engine.serve.tokens import ByteStream, ByteVocabulary, WindowStream
from benchlab_engine.serve.wire_openai import EventWriter, WireError, parse

CHAT = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0]"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"tools": [{}]}, "tools"),
        ({"stop": [""]}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"seed": "x"}, "seed"),
        ({"stream_options": 1}, "stream_options"),
        ({"model": 1}, "model"),
    ],
)
def test_a_wrong_field_is_named(extra, param):
    with pytest.raises(WireError) as caught:
        parse(json.dumps(CHAT | extra).encode(), chat=True)
    assert caught.value.status == 400
    assert caught.value.body["error"]["param"] == param


@pytest.mark.parametrize("raw", [b"{", b"[]", b"", b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_refused(raw):
    with pytest.raises(WireError) as caught:
        parse(raw, chat=True)
    assert caught.value.status == 400


def test_prompts_are_a_text_or_token_ids():
    assert parse(b'{"prompt": "hi"}', chat=False).prompt == "hi"
    assert parse(b'{"prompt": ["hi"]}', chat=False).prompt == "hi"
    assert parse(b'{"prompt": [1, 2]}', chat=False).prompt_tokens == (1, 2)
    for wrong in ('""', "[]", '["a", "b"]', "[-1]", "[true]", "null"):
        with pytest.raises(WireError):
            parse(f'{{"prompt": {wrong}}}'.encode(), chat=False)


def test_events_are_one_line_of_json_each():
    writer = EventWriter(parse(json.dumps(CHAT).encode(), chat=True), "chatcmpl-1", 5, "m")
    for event in (writer.role(), writer.text('"\n\u2028'), writer.finish("stop", "x"), writer.usage({"a": 1})):
        assert event.startswith(b"data: {")
        assert event.endswith(b"}\n\n")
        assert event.count(b"\n") == 2
        json.loads(event[6:])
    assert json.loads(writer.text('"\n')[6:])["choices"][0]["delta"] == {"content": '"\n'}


@given(st.lists(st.text("abc", max_size=3), max_size=12), st.lists(st.text("abc", min_size=1, max_size=3), max_size=2))
def test_the_stop_filter_shows_exactly_what_comes_before_the_first_stop(pieces, stops):
    shown, whole = "", "".join(pieces)
    stream = StopFilter(stops)
    for piece in pieces:
        shown += stream.push(piece)
        if stream.hit:
            break
    if stream.hit is None:
        shown += stream.flush()
        assert shown == whole
        assert not any(stop in whole for stop in stops)
    else:
        assert whole.startswith(shown + stream.hit)
        assert not any(stop in shown for stop in stops)


def test_text_is_held_back_only_while_it_could_begin_a_stop_string():
    stream = StopFilter(["END"])
    assert [stream.push(piece) for piece in ("a", "E", "N", "x", "E")] == ["a", "", "", "ENx", ""]
    assert stream.flush() == "E"


@given(st.text(max_size=20))
def test_bytes_become_text_only_as_whole_characters(text):
    stream = ByteVocabulary().stream()
    pieces = [stream.push(token) for token in ByteVocabulary().encode(text)]
    assert "".join(pieces) + stream.flush() == text.encode("utf-8", "replace").decode()


def test_a_character_cut_short_is_replaced_at_the_end():
    stream = ByteStream(lambda token: bytes((token,)))
    assert stream.push(0xE2) == ""
    assert stream.flush() == "�"


def test_the_window_decoder_gives_each_tokens_text():
    words = ["▁The", "▁cap", "ital", "▁of"]
    stream = WindowStream(lambda ids: "".join(words[index] for index in ids).replace("▁", " ").lstrip())
    assert "".join([stream.push(index) for index in range(4)]) == "The capital of"


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["serve", "--runner", "paced:fast"], 2, "ttft=50ms"),
        (["serve", "--runner", "gpu"], 2, "paced:PROFILE"),
        (["serve", "--max-wait", "5"], 2, "unit"),
        (["serve", "--port", "99999"], 2, "65535"),
        (["serve", "--policy", "magic"], 2, "continuous"),
        (["serve", "--runner", "paced:null", "--fault", "x"], 2, "slow-start"),
        (["serve", "--runner", "paced:null", "--host", "no.such.host.invalid", "--port", "0"], 3, "127.0.0.1"),
        (["serve", "--runner", "paced:null", "--max-seqs", "900", "--port", "0"], 2, "max_seqs 900"),
        (["fetch", "nothing"], 2, "smollm2-135m"),
        (["dance"], 2, "serve"),
    ],
)
def test_the_command_line_says_what_is_wrong(argv, code, says, capsys):
    assert main(argv) == code
    shown = capsys.readouterr().err
    assert says in shown
    assert "Traceback" not in shown


@pytest.mark.torch
@pytest.mark.parametrize(
    ("model", "code", "says"),
    [
        ("", 2, "--model is missing"),
        ("gpt-9", 3, "no such file or directory, and no known name (smollm2-135m"),
        ("smollm2-135m", 3, "benchlab engine fetch smollm2-135m"),
        ("x:tiny", 2, "7:tiny"),
        ("EMPTY", 3, "config.json"),
        ("BROKEN", 3, "is the file whole?"),
    ],
)
def test_a_model_that_cannot_be_had_is_one_clear_message(model, code, says, capsys, tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="extra 'engine' is not installed")
    monkeypatch.setenv("BENCHLAB_CACHE", str(tmp_path / "cache"))
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but no more")
    path = {"EMPTY": str(tmp_path), "BROKEN": str(broken)}.get(model, model)
    assert main(["serve", "--model", path, "--port", "0"]) == code
    shown = capsys.readouterr().err
    assert says in shown
    assert "Traceback" not in shown
