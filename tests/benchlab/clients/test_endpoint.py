"""Everything that people type where a URL is wanted."""

from __future__ import annotations

import pytest

from benchlab.clients.endpoint import Endpoint, look_up, parse_endpoint
from benchlab.errors import TargetError, UsageError


@pytest.mark.parametrize(
    ("typed", "base", "authority"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("localhost", "http://localhost", "localhost"),
        ("localhost:8000/", "http://localhost:8000", "localhost:8000"),
        ("  http://host:8000/v1  ", "http://host:8000", "host:8000"),
        ("http://host:8000/v1/", "http://host:8000", "host:8000"),
        ("http://host/v1/chat/completions", "http://host", "host"),
        ("http://host/v1/completions/", "http://host", "host"),
        ("http://host/v1/messages", "http://host", "host"),
        ("http://host/v1/models", "http://host", "host"),
        ("https://host", "https://host", "host"),
        ("https://host:443/v1", "https://host", "host"),
        ("https://host:80", "https://host:80", "host:80"),
        ("http://host:443", "http://host:443", "host:443"),
        ("HTTP://Host:8000", "http://host:8000", "host:8000"),
        ("https://host/team a%20b/v1".replace(" ", ""), "https://host/teama%20b", "host"),
        ("https://host/openai/v1/chat/completions", "https://host/openai", "host"),
        ("http://host:/v1", "http://host", "host"),
        ("[::1]:8000", "http://[::1]:8000", "[::1]:8000"),
        ("http://[::1]/v1", "http://[::1]", "[::1]"),
        ("host?", "http://host", "host"),
        ("https:8443", "http://https:8443", "https:8443"),
        (
            "http://b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example",
            "http://xn--bcher-kva.example",
            "xn--bcher-kva.example",
        ),
        ("http://host/\N{LATIN SMALL LETTER E WITH ACUTE}", "http://host/%C3%A9", "host"),
    ],
)
def test_accepted(typed: str, base: str, authority: str) -> None:
    endpoint = parse_endpoint(typed)
    assert (endpoint.base, endpoint.authority) == (base, authority)
    assert endpoint.base.isascii()
    assert parse_endpoint(endpoint.base) == endpoint


@pytest.mark.parametrize(
    "typed",
    [
        "",
        " ",
        "http://",
        "://host",
        "ftp://host",
        "unix:///tmp/socket",
        "http:/host:8000",
        "http:host",
        "htp:/x",
        "https:/host",
        "http://host:port",
        "http://host:99999",
        "http://host:-1",
        "http://host:0",
        "http://[::1",
        "::1",
        "http://ho st",
        "http://host/a b",
        "http://host\r\nX: y",
        "http://host\x00",
        "http://user:secret@host",
        "user:secret@host:8000",
        "http://@host",
        "http://host?key=secret",
        "http://host/v1#part",
        "/v1/chat/completions",
    ],
)
def test_refused_with_a_hint_and_no_secret(typed: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_endpoint(typed)
    assert caught.value.hint
    assert caught.value.where == "-u/--url"
    assert "secret" not in str(caught.value)


def test_secrets_of_a_malformed_url_are_not_repeated() -> None:
    for typed in ("http://user:secret@host:port", "user:secret@host:port", "http://user:se@cret@host:port"):
        with pytest.raises(UsageError) as caught:
            parse_endpoint(typed)
        assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("localhost.", True),
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("127.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("127.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.example", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("example.org", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert Endpoint("http", host, 80, "").loopback is loopback


def test_look_up() -> None:
    found = look_up(parse_endpoint("localhost:8000"))
    assert found[0][1][:2] == ("127.0.0.1", 8000)
    for name in ("no-such-host.invalid", "a..b"):
        with pytest.raises(TargetError):
            look_up(parse_endpoint(name))
