"""Where requests go: an URL taken apart once, its address looked up once a run."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from urllib.parse import quote, urlsplit
from urllib.request import proxy_bypass

from benchlab.errors import TargetError, UsageError
from benchlab.records.manifest import redact_text

_SUFFIXES = ("/chat/completions", "/completions", "/messages", "/generate_stream", "/v1/models", "/v1")
_TRITON = re.compile(r"/v2/models/[^/]+(/generate(_stream)?)?$")
_LOOPBACK_V4 = re.compile(r"127(\.\d{1,3}){1,3}")
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint's base. `prefix` is what stands before `/v1/...`."""

    scheme: str
    host: str
    port: int
    prefix: str

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"http": 80, "https": 443}[self.scheme] else f"{host}:{self.port}"

    @property
    def base(self) -> str:
        """The URL that paths such as `/v1/models` are appended to."""
        return f"{self.scheme}://{self.authority}{self.prefix}"

    @property
    def loopback(self) -> bool:
        """True if the endpoint is on this host by its name."""
        host = self.host.removesuffix(".").removeprefix("::ffff:")
        return host in ("localhost", "::1") or _LOOPBACK_V4.fullmatch(host) is not None


def parse_endpoint(url: str, *, flag: str = "-u/--url") -> Endpoint:
    """'127.0.0.1:8000', 'http://host:8000/v1', 'https://host/prefix/v1/chat/completions' -> Endpoint.

    Raises UsageError for anything that is not http or https, or that carries user names, queries or nonsense.
    """
    text = url.strip()
    shown = redact_text(text)
    if "://" not in text:
        if re.match(r"https?:", text, re.IGNORECASE) and not re.match(r"https?:\d", text, re.IGNORECASE):
            raise UsageError(f"'{shown}' is not a URL: '//' is missing", where=flag, hint="write http://127.0.0.1:8000")
        if re.match(r"[a-z][a-z0-9+.-]*:/", text, re.IGNORECASE):
            raise UsageError(f"'{shown}' is not a URL", where=flag, hint="write http://127.0.0.1:8000")
        text = "http://" + text
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"'{shown}' is not a URL: {error}", where=flag, hint="write http://127.0.0.1:8000") from error
    if parts.scheme not in ("http", "https"):
        raise UsageError(f"'{parts.scheme}' is not spoken here", where=flag, hint="write http:// or https://")
    if not host or any(ord(letter) <= 32 or ord(letter) == 127 for letter in text):
        raise UsageError(f"'{shown}' names no host", where=flag, hint="write http://127.0.0.1:8000")
    if parts.username is not None:
        raise UsageError("a URL with a user name would be written down", where=flag, hint="send it with -H instead")
    if parts.query or parts.fragment:
        raise UsageError(
            "a base URL has no query and no fragment", where=flag, hint="give the base URL, such as http://host/v1"
        )
    if port == 0:
        raise UsageError(f"'{shown}' has the port 0", where=flag, hint="write the port that the server listens on")
    try:
        host = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise UsageError(f"'{shown}' names no host: {error}", where=flag, hint="write http://127.0.0.1:8000") from error
    prefix = quote(parts.path, safe="/%:@!$&'()*+,;=~").rstrip("/")
    prefix = _TRITON.sub("", prefix)
    for suffix in _SUFFIXES:
        prefix = prefix.removesuffix(suffix)
    return Endpoint(parts.scheme, host, port or {"http": 80, "https": 443}[parts.scheme], prefix.rstrip("/"))


def look_up(endpoint: Endpoint) -> list[tuple[socket.AddressFamily, tuple[object, ...]]]:
    """The endpoint's addresses, IPv4 first on loopback names. Raises TargetError when the name is not known."""
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise TargetError(
            f"the host name '{endpoint.host}' cannot be looked up: {error}", where=endpoint.base, hint="check --url"
        ) from error
    addresses: list[tuple[socket.AddressFamily, tuple[object, ...]]] = [(entry[0], entry[4]) for entry in found]
    return sorted(addresses, key=lambda pair: pair[0] != socket.AF_INET) if endpoint.loopback else addresses


def ignored_proxies(endpoint: Endpoint | None = None) -> list[str]:
    """Names of the environment's proxy variables that are set: for this endpoint, or at all. Load never goes through
    them; the manifest says so."""
    names = [name for name in PROXY_VARIABLES if os.environ.get(name)]
    if endpoint is None:
        return names
    if proxy_bypass(endpoint.host):  # NO_PROXY says so too
        return []
    return [name for name in names if name.lower() in (f"{endpoint.scheme}_proxy", "all_proxy")]
