"""What is written down must be strict JSON, whole, and free of secrets."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab.errors import StorageError, UsageError
from benchlab.records.manifest import finite, read_json, redact_argv, redact_headers, redact_text, write_json

SECRET = st.text(alphabet="abcdefghkmnpqrstuvwxyz0123456789", min_size=8, max_size=20).map(lambda text: "Zq" + text)


@settings(deadline=None)
@given(
    SECRET,
    st.sampled_from(["-H", "--header"]),
    st.sampled_from(["Authorization: Bearer ", "X-Api-Key: ", "Cookie:", ""]),
)
def test_headers_on_the_command_line(secret: str, flag: str, name: str) -> None:
    value = name + secret
    for argv in ([flag, value], [f"{flag}={value}"], [f"-H{value}"], [flag, value, "--rate", "5"]):
        clean = redact_argv(["benchlab", "run", *argv])
        assert secret not in " ".join(clean)
        assert clean[:2] == ["benchlab", "run"]


@settings(deadline=None)
@given(
    SECRET,
    st.sampled_from(["--api-key", "--token", "--hf-token", "--password", "--auth", "--client-secret", "--cookie"]),
)
def test_secret_flags(secret: str, flag: str) -> None:
    assert redact_argv([flag, secret, "--rate", "5"]) == [flag, "***", "--rate", "5"]
    assert redact_argv([f"{flag}={secret}"]) == [f"{flag}=***"]


@settings(deadline=None)
@given(
    SECRET,
    st.sampled_from(
        [
            "https://user:{}@host/v1",
            "http://{}@host",
            "http://u:a@{}@host",
            "user:{}@host:8000",
            "--url=user:{}@host:8000",
            "sk-{}",
            "hf_{}",
            "key is sk-{}, ok",
            "Bearer {}",
            "authorization: Basic {}",
            '{{"api_key": "{}"}}',
            "https://host/v1?api_key={}&x=1",
            "OPENAI_API_KEY=sk-{}",
            "HF_TOKEN=hf_{}",
        ]
    ),
)
def test_secrets_in_texts(secret: str, form: str) -> None:
    text = form.format(secret)
    assert secret not in redact_text(text)
    assert secret not in " ".join(redact_argv(["run", text]))
    assert secret not in " ".join(redact_headers({"X-Note": text}).values())


@pytest.mark.parametrize(
    "name", ["Authorization", "authorization", "X-API-Key", "Proxy-Authorization", "Cookie", "X-Auth"]
)
def test_secret_headers(name: str) -> None:
    assert redact_headers({name: "Zq1234567", "Accept": "a/b"}) == {name: "***", "Accept": "a/b"}


@pytest.mark.parametrize(
    "argv",
    [
        ["benchlab", "run", "--max-tokens", "128", "--tokenizer", "org/tiny", "--output-tokens", "lognormal:80,40"],
        ["--url", "http://127.0.0.1:8000/v1", "--slo", "ttft=500ms", "--label", "key=value"],
        ["--model=org/tiny-v1", "--requests=50", "--body", '{"temperature":0,"max_tokens":5}'],
        ["--keyboard", "x", "--monkey=1", "--authority", "a"],
    ],
)
def test_a_harmless_command_can_be_repeated(argv: list[str]) -> None:
    if "--label" in argv:  # the one that looks like a secret is hidden rather than shown
        assert redact_argv(argv)[:-1] == argv[:-1]
    else:
        assert redact_argv(argv) == argv


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=50, deadline=None)
@given(value=st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_manifest_is_strict_json(value: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    path = tmp_path_factory.mktemp("m") / "manifest.json"
    write_json(path, value)
    assert json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse) == finite(value) == read_json(path)
    assert [child.name for child in path.parent.iterdir()] == ["manifest.json"]


def test_finite() -> None:
    assert finite({"a": [math.nan, (math.inf, 1.0)], 2: -math.inf}) == {"a": [None, [None, 1.0]], "2": None}


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert read_json(path) == {"a": 1}
    with pytest.raises(StorageError):
        write_json(tmp_path / "none" / "manifest.json", {})


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"null"])
def test_unreadable_json_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_json(path)
    assert caught.value.where == str(path)
    with pytest.raises(UsageError):
        read_json(tmp_path / "missing.json")
