"""The page as a parser sees it: first screen without a script, nothing from the network, each kind of run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from benchlab.records.store import Run
from benchlab.report.export import write_report
from benchlab.report.page import build
from benchlab.report.points import points_of, thin
from benchlab.report.requests_table import CAP, chosen
from benchlab.selection.judge import judge
from benchlab.units import format_number
from tests.benchlab.report.parsing import parse
from tests.benchlab.report.sample import SWEEP, made_manifest, made_records, made_run, made_selection, made_summary

PLANS = {
    "sweep": dict(plan=SWEEP),
    "single": dict(plan=[("open", 4.0)]),
    "nothing-succeeded": dict(plan=[("open", 4.0)], fail=True),
    "closed-only": dict(plan=[("closed", 2.0), ("closed", 4.0)]),
    "mixed": dict(plan=[("open", 2.0), ("closed", 4.0)]),
}


@pytest.fixture(scope="module", params=PLANS)
def built(request, tmp_path_factory):
    """(name, run, summary, html) of each kind of run."""
    records, stages = made_records(seconds=15, **PLANS[request.param])
    summary = made_summary(records, stages)
    if request.param == "sweep":
        summary = made_selection(summary)
    run = made_run(tmp_path_factory.mktemp(request.param), records, made_manifest(stages))
    return request.param, run, summary, build(run, summary)


def test_first_screen_says_it_without_a_script(built):
    name, _, summary, html = built
    page = parse(html)
    words = page.words
    order = ["VALID WITH WARNINGS", "attempted requests", "Latency under load", "Outcomes", "Validity", "Provenance"]
    if name == "sweep":
        order[1] = "Meets TTFT p90 ≤ 400 ms up to"
    if name == "nothing-succeeded":
        order[1] = "attempted requests succeeded"
    after = words.replace("\u00a0", " ").split("benchlab report", 1)[1]
    place = 0
    for text in order:  # the verdict comes first, then the sentence, then the figures
        place = after.index(text, place)
    charts = [attrs for tag, attrs in page.elements if tag == "svg" and attrs.get("role") == "img"]
    assert len(charts) >= (4 if name != "nothing-succeeded" else 2) and all(attrs["aria-label"] for attrs in charts)
    assert summary["run_id"] in words


def test_nothing_can_come_from_or_go_to_the_network(built):
    page = parse(built[3])
    for tag, attrs in page.elements:
        for name in ("src", "href", "action", "poster", "data", "srcset", "formaction"):
            assert attrs.get(name, "#").startswith("#"), f"<{tag} {name}={attrs[name]!r}>"
    assert not re.search(r"url\(\s*['\"]?(?!#)|@import", page.raw["style"][0])
    assert "fetch(" not in page.raw["script"][1] and "innerHTML" not in page.raw["script"][1]


def test_policy_allows_this_style_and_this_script_only(built):
    page = parse(built[3])
    policy = next(a["content"] for t, a in page.elements if t == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    for source in (page.raw["style"][0], page.raw["script"][1]):
        assert base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() in policy
    assert not any("style" in attrs for _, attrs in page.elements), "an inline style would be refused"


def test_markup_is_sound(built):
    page = parse(built[3])
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert page.unbalanced == [] and len(ids) == len(set(ids))
    for tag, attrs in page.elements:
        assert attrs.get("href", "#")[1:] in ("", *ids)
        assert tag != "th" or "scope" in attrs
    assert not re.search(r"\b(NaN|nan|Infinity|None(?! of))\b", " ".join(page.text)), "missing is a dash"
    for _, attrs in page.elements:
        assert "nan" not in attrs.get("d", "").lower() and "inf" not in attrs.get("d", "").lower()


def test_figures_have_a_heading_a_reading_and_a_table(built):
    html = built[3]
    for figure in re.findall(r"<figure.*?</figure>", html, re.S):
        assert "<h3>" in figure and 'class="reading"' in figure
        assert "<details>" in figure and "<table>" in figure
    assert html.count('class="wide"') == html.count('class="narrow"')


def test_closed_loop_stages_stand_on_an_axis_of_their_own(built):
    name, _, _, html = built
    page = parse(html)
    ids = {attrs.get("id") for tag, attrs in page.elements if tag == "figure"}
    assert ("latency-closed" in ids) == (name == "closed-only")
    assert ("latency-open" in ids) == (name == "sweep")
    assert any(str(key).startswith("spread") for key in ids) == (name in ("single", "mixed"))


@pytest.mark.parametrize("built", ["sweep"], indirect=True)
def test_numbers_on_the_page_are_the_summarys(built):
    """The tile shows the summary's own figure, to the digits it is shown with."""
    _, _, summary, html = built
    picked = summary["stages"][summary["selection"]["selected_stage"]]
    shown = format_number(picked["metrics"]["ttft"]["p90"])
    assert f'<p class="value">{shown}<span class="unit"> ms' in html
    assert f"selected {picked['load']['offered_rps']:g} /s" in html
    assert "objective p90 ≤ 400 ms" in html and "overloaded" in html


def test_a_real_summary_of_a_stored_run(tmp_path):
    records, stages = made_records(SWEEP[:3], seconds=15)
    slo = {"clauses": ["ttft<=500ms", "tpot<=60ms"], "target": 0.9}
    objectives = ["ttft.p90<=400ms", "tpot.p50<=60ms"]
    run = made_run(tmp_path / "run", records, made_manifest(stages, slo=slo, objectives=objectives))
    summary = judge(Run(run.path))
    write_report(run, summary, tmp_path / "new" / "report.html")
    page = parse((tmp_path / "new" / "report.html").read_text(encoding="utf-8"))
    ids = {attrs.get("id") for _, attrs in page.elements}
    assert {"attainment", "latency-open", "percentiles-ttft-open", "timeline", "dispatch-lag"} <= ids
    digest = hashlib.sha256((run.path / "requests.parquet").read_bytes()).hexdigest()
    assert digest in page.words, "the evidence is named by its hash"


def test_C89_a_model_with_a_slash_and_a_folder_that_is_missing(tmp_path):
    records, stages = made_records([("open", 2.0)], seconds=5)
    run = made_run(tmp_path / "run", records, made_manifest(stages, endpoint={"model": "org/tiny-v1"}))
    write_report(run, made_summary(records, stages), tmp_path / "missing" / "dir" / "r.html")
    assert "org/tiny-v1" in parse((tmp_path / "missing" / "dir" / "r.html").read_text(encoding="utf-8")).words


def test_C101_everything_failed_is_a_full_report(tmp_path):
    records, stages = made_records([("open", 2.0)], seconds=5, fail=True)
    run = made_run(tmp_path / "run", records, made_manifest(stages))
    words = parse(build(run, judge(run))).words
    for text in ("None of the", "refused: capacity (503, 529)", "there is no latency to show"):
        assert text in words


def test_the_room_loads_no_http_library_and_nothing_heavy_at_its_door():
    code = (
        "import sys, benchlab.report; heavy = {'numpy', 'pyarrow', 'rich'} & sys.modules.keys();"
        "assert not heavy, heavy;"
        "import benchlab.report.export, benchlab.report.page, benchlab.report.text, benchlab.report.junit;"
        "found = {'httpx', 'aiohttp', 'requests', 'plotly', 'pandas', 'benchlab.clients'} & sys.modules.keys();"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_run_without_requests_still_has_a_page(tmp_path):
    run = made_run(tmp_path / "empty", [], made_manifest([]))
    html = build(run, judge(run))
    assert "INVALID" in parse(html).words


def test_size_for_five_hundred_and_for_many_requests(tmp_path):
    records, stages = made_records([("open", 30.0)], seconds=100)
    run = made_run(tmp_path / "many", records, made_manifest(stages))
    html = build(run, made_summary(records, stages))
    assert len(records) > CAP and len(html.encode()) < 2_500_000
    rows = json.loads(parse(html).raw["script"][0])["rows"]
    assert len(rows) == CAP and "of them" in html


def test_sample_keeps_failures_and_the_slowest(tmp_path):
    records, stages = made_records([("open", 40.0)], seconds=80)
    run = made_run(tmp_path / "s", records, made_manifest(stages))
    points = points_of(run.requests(), run.manifest)
    kept = set(chosen(points))
    failed = np.flatnonzero(~points.ok)
    assert len(kept) == CAP and set(failed[: CAP // 2].tolist()) <= kept
    assert int(np.nanargmax(points.values["e2e"])) in kept


def test_thin_keeps_the_highest_and_the_order():
    score = np.array([1.0, 9.0, np.nan, 3.0, 8.0, 2.0, 7.0, 0.0])
    kept = thin(score, 4)
    assert len(kept) == 4 and 1 in kept and list(kept) == sorted(kept)
    assert list(thin(score, 8)) == list(range(8))


@pytest.mark.parametrize("nonsense", [None, "text", {}])
def test_a_manifest_or_summary_that_is_not_as_agreed_still_gives_a_page(tmp_path, nonsense):
    """A report is made at the end of a run that cost time: what it cannot read it leaves out."""
    records, stages = made_records([("open", 3.0)], seconds=4)
    run = made_run(tmp_path / "run", records, made_manifest(stages))
    summary, manifest = made_summary(records, stages), dict(run.manifest)
    for key in ("verdict", "stages", "slo", "selection", "objectives"):
        build(run, summary | {key: nonsense})
    for key in ("stages", "endpoint", "engine", "workload", "command", "telemetry"):
        run.manifest = manifest | {key: nonsense}
        build(run, summary)
    run.manifest = manifest | {"stages": [nonsense]}
    build(run, summary)
