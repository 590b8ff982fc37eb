"""Everything that others wrote is hostile: put it into every string field, and nothing may change but the text."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from benchlab.records.store import Run, write_manifest
from benchlab.report.html import Html, el, esc, json_block, visible
from benchlab.report.page import build
from tests.benchlab.report.parsing import parse
from tests.benchlab.report.sample import SWEEP, made_manifest, made_records, made_run, made_selection, made_summary

HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<!--<script>",
    "]]></title></svg><svg onload=alert(1)>",
    "\u2028\u2029\u202eevil\u2066\x00\x1b[31m\ud800",
    "&lt;b&gt;&#x3c;i&#x3e;",
    "javascript:alert(1)",
    "`${alert(1)}`",
    "</style><link rel=stylesheet href=//x>",
]
_KEEP = {"kind", "condition", "state", "mode", "unit", "schema"}
"""Words of the schema: another one is another page, which is no injection. They are tried one by one below."""


def _poisoned(value, poison, key=""):
    if isinstance(value, str):
        return value if key in _KEEP or key == "objectives" else value + poison
    if isinstance(value, dict):
        return {k: _poisoned(v, poison, k) for k, v in value.items()}
    return [_poisoned(v, poison, key) for v in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    records, stages = made_records(SWEEP[:3], seconds=10)
    summary = made_selection(made_summary(records, stages, slo={"clauses": ["ttft=500ms"], "target": 0.9}))
    return records, stages, summary, tmp_path_factory.mktemp("hostile"), {}


def _page(made, poison):
    records, stages, summary, folder, built = made
    if poison in built:
        return built[poison]
    text = poison.encode("utf-8", "replace").decode()
    bad = [replace(r, request_id=r.request_id + text, error=(r.error or "") + text, item_id=text) for r in records]
    run = made_run(folder / f"run-{len(built)}", bad, made_manifest(stages))
    run.manifest = _poisoned(run.manifest, poison)
    built[poison] = build(run, _poisoned(summary, poison))
    return built[poison]


@pytest.mark.parametrize("poison", HOSTILE)
def test_no_element_and_no_attribute_is_injected(made, poison):
    clean, dirty = parse(_page(made, "")), parse(_page(made, poison))
    assert dirty.shape() == clean.shape()
    assert dirty.unbalanced == clean.unbalanced == []
    assert len(dirty.raw["script"]) == 2
    assert not any(name.startswith("on") for _, attrs in dirty.elements for name in attrs)


@pytest.mark.parametrize("poison", HOSTILE)
def test_the_embedded_json_holds_the_text_and_nothing_acts(made, poison):
    page = _page(made, poison)
    block = parse(page).raw["script"][0]
    rows = json.loads(block, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))["rows"]
    assert rows and all(len(row) == 11 for row in rows)
    assert not re.search(r"[<>&\u2028\u2029]", block)
    page.encode("utf-8")  # no lone surrogate is left
    assert not re.search("[\x00-\x08\x1b\u202a-\u202e\u2066-\u2069]", page)


@pytest.mark.parametrize("word", ["condition", "state", "kind", "unit", "mode"])
def test_words_of_the_schema_are_not_trusted_either(made, word):
    records, stages, summary, folder, _ = made

    def twist(value, key=""):
        if isinstance(value, dict):
            return {k: twist(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [twist(v) for v in value]
        return HOSTILE[1] if key == word else value

    run = made_run(folder / word, records, made_manifest(stages))
    page = parse(build(run, twist(summary)))
    assert not any(tag == "img" for tag, _ in page.elements)
    assert page.unbalanced == []


def test_manifest_from_disk_with_a_lone_surrogate(tmp_path):
    records, stages = made_records([("open", 2.0)], seconds=5)
    run = made_run(tmp_path / "r", records, made_manifest(stages))
    text = (run.path / "manifest.json").read_text(encoding="utf-8").replace("smollm2", "\\ud800</title>")
    (run.path / "manifest.json").write_text(text, encoding="utf-8")
    build(Run(run.path), made_summary(records, stages)).encode("utf-8")
    write_manifest(run.path, run.manifest)


def test_C86_embedded_json_has_no_nan_and_no_infinity():
    text = json_block({"a": float("nan"), "b": [float("inf"), 1.5], "c": "</script>\u2028"})
    assert json.loads(text, parse_constant=pytest.fail) == {"a": None, "b": [None, 1.5], "c": "</script>\u2028"}
    assert "<" not in text and "\u2028" not in text


def test_escape_is_the_default_and_html_is_kept():
    assert el("p", "<b>", Html("<i></i>"), title='"x"') == '<p title="&quot;x&quot;">&lt;b&gt;<i></i></p>'
    assert el("p", None, [["a", None], "<"]) == "<p>a&lt;</p>"
    assert el("input", disabled=True, value=None) == "<input disabled>"
    assert esc(esc("<")) == "&lt;"


def test_long_text_is_cut_and_says_so():
    assert visible("x" * 30, 10).endswith("(20 more characters)")
