"""CSV and Markdown (C88): RFC 4180, dot decimals in every locale, the same columns when nothing succeeded."""

from __future__ import annotations

import csv as std_csv
import io
import locale

import pytest

from benchlab.report.text import csv, markdown, requests_csv
from tests.benchlab.report.sample import made_manifest, made_records, made_summary, sweep_summary

MODEL = 'a,b "c"'


def _rows(text: str) -> list[list[str]]:
    return list(std_csv.reader(io.StringIO(text, newline=""), strict=True))


def _summary(**more):
    records, stages = made_records([("open", 4.0)], **more)
    return made_summary(records, stages)


def test_C88_numbers_have_a_dot_and_text_is_quoted():
    summary = _summary()
    summary["stages"][0]["metrics"]["ttft"]["mean"] = 1234.5
    text = csv(summary, made_manifest([], endpoint={"model": MODEL}))
    header, row = _rows(text)
    assert row[header.index("ttft_mean_ms")] == "1234.5"
    assert row[header.index("model")] == MODEL
    assert '"a,b ""c"""' in text
    assert text.endswith("\r\n") and "\n" not in text.replace("\r\n", "")


def test_C88_the_locale_changes_nothing():
    before = csv(_summary())
    try:
        locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
    except locale.Error:
        pytest.skip("no German locale on this host")
    try:
        assert csv(_summary()) == before
    finally:
        locale.setlocale(locale.LC_ALL, "C")


def test_C88_same_columns_when_everything_failed():
    good, bad = _rows(csv(_summary())), _rows(csv(_summary(fail=True)))
    assert good[0] == bad[0]
    assert {len(row) for row in good + bad} == {len(good[0])}
    assert bad[1][bad[0].index("ttft_p99_ms")] == ""
    assert bad[1][bad[0].index("ttft_n")] == "0"


def test_C88_error_text_with_a_line_break_stays_one_field():
    rows = [
        {"request_id": "r1", "error": 'one, "two"\nthree', "lag": 0.5},
        {"request_id": "r2", "error": None, "lag": None},
    ]
    parsed = _rows(requests_csv(rows, ["request_id", "error", "lag"]))
    assert parsed == [["request_id", "error", "lag"], ["r1", 'one, "two"\nthree', "0.5"], ["r2", "", ""]]


def test_a_spreadsheet_does_not_run_a_name_as_a_formula():
    text = csv(_summary(), made_manifest([], endpoint={"model": '=HYPERLINK("http://x")'}))
    header, row = _rows(text)
    assert row[header.index("model")].startswith("'=")


def test_nan_and_infinity_are_empty_fields():
    summary = _summary()
    summary["stages"][0]["output_tps"] = float("nan")
    summary["stages"][0]["load"]["offered_rps"] = float("inf")
    header, row = _rows(csv(summary))
    assert row[header.index("output_tps")] == "" and row[header.index("offered_rps")] == ""


def test_one_row_a_stage_and_the_pick_marked():
    header, *rows = _rows(csv(sweep_summary()[2]))
    assert [row[header.index("selected")] for row in rows] == ["false", "true", "false", "false", "false"]


def test_markdown_does_not_interpret_names():
    summary = _summary() | {"run_id": "a|b`<img src=x>\n# head [x](javascript:1)"}
    text = markdown(summary)
    line = next(line for line in text.splitlines() if line.startswith("Run "))
    assert "\\|" in line and "\\<img" in line and "\\[x\\]\\(" in line and "\\#" in line
