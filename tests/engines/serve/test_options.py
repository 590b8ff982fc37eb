"""The stop filter, the decoders of a stream and the command line: all without a socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab_engine.__main__ import main
from benchlab_engine.serve.stops import StopFilter
from benchlab_engine.serve.tokens import ByteStream, ByteVocabulary, WindowStream


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
        (["serve", "--runner", "paced:null", "--speculate", "ngram"], 2, "ngram:K or draft:MODEL:K"),
        (["serve", "--runner", "paced:null", "--speculate", "ngram:0"], 2, "K from 1 to 64"),
        (["serve", "--runner", "paced:null", "--speculate", "draft:4"], 2, "draft:MODEL:K"),
        (["serve", "--runner", "paced:null", "--kv-dtype", "int3"], 2, "int8"),
        (["serve", "--runner", "paced:null", "--quant", "int8"], 2, "weights=int4"),
        (["serve", "--runner", "paced:null", "--growth-reserve", "-1"], 2, "at least 0"),
        (["serve", "--runner", "paced:null", "--priority-age", "3"], 2, "unit"),
        (["serve", "--runner", "paced:null", "--max-seqs=--5"], 2, "from 1 to 16384"),
        (["serve", "--runner", "paced:null", "--queue-limit", "9" * 5000], 2, "of at least 0"),
        (["serve", "--runner", "paced:null", "--kv-blocks", "999999999999"], 2, "from 1 to 4194304"),
        (["serve", "--model", "tiny", "--threads", "100000"], 2, "from 0 to 1024"),
        (["serve", "--model", "tiny", "--max-batched-tokens", "9999999999999"], 2, "from 1 to 1048576"),
        (["serve", "--runner", "paced:null", "--journal", "/dev/null/x", "--port", "0"], 3, "can be made"),
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


def test_a_server_that_was_never_built_leaves_no_journal_in_the_way(tmp_path):
    file = tmp_path / "journal.jsonl"
    assert main(["serve", "--runner", "paced:nonsense", "--journal", str(file), "--port", "0"]) == 2
    assert not file.exists()
