"""`/timeline` asked for, told from everything that is not one, and never a reason for a run to fail."""

from __future__ import annotations

import http.server
import json
import threading
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest

from benchlab.telemetry.timeline import fetch_timeline

ROW = {"request_id": "s0-1", "accepted": 7_000_000_100, "token_ready": [7_000_000_300], "tenant": "x", "new_field": {}}


@contextmanager
def serving(body, status: int = 200):
    """A server whose page is `body`, or what `body(since)` makes."""
    asked: list[int] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            since = int(parse_qs(urlsplit(self.path).query)["since"][0])
            asked.append(since)
            page = body(since) if callable(body) else body
            self.send_response(status)
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_only_what_came_since_the_run_began_is_asked_for():
    def page(since: int) -> bytes:
        rows = [ROW] if since <= ROW["accepted"] else []
        return json.dumps({"now_ns": 9_000_000_000, "wall_ns": 1, "requests": rows}).encode()

    ticks = iter([50_000_000_000, 50_000_004_000])
    with serving(page) as (url, asked):
        told = fetch_timeline(url, began_ns=47_500_000_000, now=lambda: next(ticks))

    assert told.why == "" and told.error_ns == 2_000
    assert (told.engine_ns, told.ours_ns) == (9_000_000_000, 50_000_002_000)
    assert told.rows["s0-1"].accepted == ROW["accepted"] and told.rows["s0-1"].token_ready == ROW["token_ready"]
    assert asked[0] == 2**63 - 1
    # the engine's clock at our beginning, less a second and the reading's error
    assert asked[1] == 9_000_000_000 - 2_500_002_000 - 2_000 - 1_000_000_000


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"not found", 404, "answered 404"),
        (b"<html>hello</html>", 200, "another form"),
        (b"", 200, "another form"),
        (b'{"now_ns": -1, "requests": []}', 200, "another form"),
        (b'{"now_ns": 1, "requests": [{"request_id": "a", "accepted": "soon"}]}', 200, "another form"),
        (b'{"now_ns": 1, "requests": [{"request_id": "a", "accepted": 1e99}]}', 200, "another form"),
        (b'{"now_ns": 5, "requests": []}', 200, "holds no request"),
    ],
)
def test_what_is_no_timeline_is_said(body, status, said):
    with serving(body, status) as (url, _):
        told = fetch_timeline(url, began_ns=0)
    assert told.rows == {} and said in told.why


def test_nobody_there_and_headers_that_cannot_be_sent():
    with serving(b"") as (url, _):
        told = fetch_timeline(url, headers={"a": "secret\nc"}, began_ns=0)
        assert "header" in told.why and "secret" not in told.why
    assert "was not had" in fetch_timeline(url, began_ns=0).why
