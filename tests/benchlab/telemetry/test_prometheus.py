"""The text format: what is allowed, what is broken, what is hostile."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab.errors import Exit
from benchlab.telemetry.prometheus import ScrapeError, Series, find_duplicates, parse_exposition


def one(line):
    page = parse_exposition(line)
    assert page.problems == []
    (series,) = page.series
    return series


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a 1", Series("a", (), 1.0)),
        ("vllm:a_total 1.5e+09", Series("vllm:a_total", (), 1.5e9)),
        ('a{y="2",x="1"} -3', Series("a", (("x", "1"), ("y", "2")), -3.0)),
        ("a{} 1", Series("a", (), 1.0)),
        ('a { x = "1" , } 1', Series("a", (("x", "1"),), 1.0)),
        (r'a{x="q\"b\\n\n"} 1', Series("a", (("x", 'q"b\\n\n'),), 1.0)),
        ('a{x="} 9 # {"} 1', Series("a", (("x", "} 9 # {"),), 1.0)),
        ('a{x="\u2028\x85"} 1', Series("a", (("x", "\u2028\x85"),), 1.0)),
        ("a 1 1700000000123", Series("a", (), 1.0, 1700000000.123)),
        ("a\t2", Series("a", (), 2.0)),
        ('{"my.metric",x="1"} 4', Series("my.metric", (("x", "1"),), 4.0)),
        ("a +Inf", Series("a", (), math.inf)),
        ("a -inf", Series("a", (), -math.inf)),
        ("a 1\r", Series("a", (), 1.0)),
    ],
)
def test_lines_that_are_right(line, expected):
    assert one(line) == expected


def test_nan_is_nan():
    assert math.isnan(one("a NaN").value)


def test_openmetrics_has_exemplars_and_stamps_in_seconds():
    page = parse_exposition('# TYPE a histogram\na_bucket{le="1"} 3 17.5 # {trace_id="x # y"} 0.4 17.1\n# EOF\n')

    assert page.series == [Series("a_bucket", (("le", "1"),), 3.0, 17.5)]
    assert page.types == {"a": "histogram"}


@pytest.mark.parametrize(
    "line",
    ["a", "a 1_000", "a x", "a 1 2 3", 'a{x="1} 1', 'a{x=1} 1', 'a{x="1",x="2"} 1', '{x="1"} 1', "a 0x10", 'a{"b"} 1',
     "1a 1", "a{x} 1"],
)  # fmt: skip
def test_a_broken_line_is_left_out_and_told(line):
    page = parse_exposition(f"ok 1\n{line}\nfine 2")

    assert [series.name for series in page.series] == ["ok", "fine"]
    assert page.broken_lines == 1 and page.problems[0].startswith("line 2: ")


def test_a_page_of_html_or_json_is_none_and_an_empty_one_is_empty():
    for page in ("<!DOCTYPE html>\n<html>", '{"detail": "Not Found"}'):
        with pytest.raises(ScrapeError, match="no Prometheus metrics page") as caught:
            parse_exposition(page, where="http://h/metrics")
        assert caught.value.exit_code == Exit.UNREACHABLE and caught.value.where == "http://h/metrics"
    assert parse_exposition("\n\n").series == []


def test_size_is_bounded():
    with pytest.raises(ScrapeError, match="larger"):
        parse_exposition(b"x" * 2_000_001, max_bytes=2_000_000)
    many = parse_exposition("\n".join(f"a{n} 1" for n in range(100_050)))
    assert len(many.series) == 100_000 and "left out" in many.problems[-1]
    broken = parse_exposition("ok 1\n" + "?\n" * 1000)
    assert broken.broken_lines == 1000 and len(broken.problems) == 20


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=300), st.text(alphabet='a{}="\\,# \n1.eE+NaInf\t', max_size=200)))
def test_nothing_hostile_raises_past_the_typed_error(page):
    with contextlib.suppress(ScrapeError):
        parse_exposition(page)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text("abz_", min_size=1, max_size=8), st.text(max_size=20), max_size=4))
def test_labels_come_back_as_they_were_escaped(labels):
    def escape(text):
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

    line = "m{" + ",".join(f'{key}="{escape(value)}"' for key, value in labels.items()) + "} 1"
    assert dict(one(line).labels) == labels


def test_c82_the_same_server_twice_is_found():
    page = parse_exposition(
        'n_total{m="x",instance="10.0.0.5:8000"} 200\nn_total{m="x",instance="pod-a:metrics"} 200\n'
        'n_total{m="y",instance="10.0.0.5:8000"} 7\nn_total{m="x",engine="1",instance="10.0.0.5:8000"} 3\n'
    )

    (twin,) = find_duplicates(page.series)
    assert (twin.name, twin.times, twin.differ_in) == ("n_total", 2, ("instance",))
    assert "2 times" in str(twin)


def test_a_series_that_is_there_twice_word_for_word_is_found():
    (twin,) = find_duplicates(parse_exposition('a{x="1"} 2\na{x="1"} 3').series)

    assert twin.differ_in == ()
