"""The HTML page: one file that opens from disk, with no network, and whose first screen needs no script.

It puts sections and figures in order and wraps them in a document whose content policy allows this page's own style
and script, by hash, and nothing else: even markup that slipped in could load and run nothing. It must not compute.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from benchlab.records.store import Run
from benchlab.report.figure import Figure, render
from benchlab.report.figures import latency_figure, spread_figure
from benchlab.report.figures_outcome import attainment_figure, outcomes_figure
from benchlab.report.figures_raw import lag_figure, percentile_figure
from benchlab.report.html import Html, el, join
from benchlab.report.objectives import Objective, objectives_of
from benchlab.report.patterns import pattern_defs
from benchlab.report.points import points_of
from benchlab.report.provenance import file_hashes, provenance_section
from benchlab.report.requests_table import requests_section
from benchlab.report.sections import (
    glossary_section,
    masthead,
    selection_section,
    stage_tables,
    tiles,
    validity_section,
)
from benchlab.report.timeline import timeline_figure
from benchlab.report.view import Stage, Summary, reference_of, rules_of, selected_of, simulated_of, slo_of, stages_of

_LATENCIES = ("ttft", "tpot", "e2e")
_NO_LATENCY = "No request ended well with text, so there is no latency to show."
_SCRIPT_OFF = "Sorting and filtering the requests needs JavaScript; everything else on this page works without it."


def _asset(name: str) -> Html:
    return Html(resources.files("benchlab.report").joinpath("assets", name).read_text(encoding="utf-8"))


def _sha256(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def load_figures(summary: Summary, stages: list[Stage], objectives: list[Objective]) -> list[Figure]:
    """The figures of the first screen, from the summary alone."""
    picked = selected_of(summary, stages)
    found = []
    for kind in ("open", "closed"):
        group = [stage for stage in stages if stage.kind == kind]
        if not any(metric.n for stage in group for name, metric in stage.metrics.items() if name in _LATENCIES):
            continue  # no axis without a single point on it
        if len(group) > 1:
            found.append(latency_figure(stages, objectives, picked, kind))
        elif group:
            found.append(spread_figure(group[0], objectives))
    clauses, target = slo_of(summary)
    if clauses and sum(stage.kind == "open" and stage.attainment is not None for stage in stages) > 1:
        found.append(attainment_figure(stages, target))
    return found


def _section(key: str, title: str, *body: Html | list[Html] | None) -> Html:
    return el("section", el("h2", title), *body, id=key)


def build(run: Run, summary: Summary) -> Html:
    """The whole document."""
    stages, objectives = stages_of(summary), objectives_of(summary)
    picked, table = selected_of(summary, stages), run.requests()
    points = points_of(table, run.manifest)
    lag_rule = next((r for r in rules_of(summary.get("verdict")) if "lag" in r.name and "loop" not in r.name), None)
    load = load_figures(summary, stages, objectives)
    centre = picked or reference_of(summary, stages)
    tails = [
        percentile_figure(points, group, centre, objectives, metric)
        for group in ([s for s in stages if s.kind == kind] for kind in ("open", "closed"))
        for metric in ("ttft", "tpot", "e2e")
    ]
    lag = lag_figure(points, lag_rule, _milliseconds(lag_rule.limit if lag_rule else ""), stages)
    selection = selection_section(summary, stages, objectives)
    sections = [
        ("load", "Latency under load", [render(figure) for figure in load] or [el("p", _NO_LATENCY, class_="reading")]),
        (
            "outcomes",
            "Outcomes",
            [render(outcomes_figure(stages, by_limit=bool(slo_of(summary)[0])))] if stages else [],
        ),
        ("selection", "Selection", [selection] if selection is not None else []),
        ("stages", "Stages", [stage_tables(summary, stages, objectives)] if stages else []),
        ("tail", "The tail", [render(figure) for figure in tails if figure is not None]),
        (
            "timeline-section",
            "Timeline",
            [render(timeline_figure(points, run.telemetry(), stages))] if table.num_rows else [],
        ),
        ("validity", "Validity", [validity_section(summary, stages), *([render(lag)] if lag is not None else [])]),
        ("requests", "Requests", [requests_section(table, points, stages)]),
        ("provenance", "Provenance", [provenance_section(run.manifest, file_hashes(run.path))]),
        ("glossary", "Glossary", [glossary_section()]),
    ]
    shown = [(key, title, body) for key, title, body in sections if body]
    main = el(
        "main",
        masthead(summary, run.manifest),
        tiles(summary, stages, objectives),
        [_section(key, title, body) for key, title, body in shown],
        el(
            "footer",
            el("p", "Percentiles by linear interpolation between order statistics, from all samples, never averaged."),
        ),
    )
    mark = "" if simulated_of(summary) is None else "SIMULATED "
    return document(f"benchlab: {mark}{run.run_id}", [(key, title) for key, title, _ in shown], main)


def _milliseconds(text: str) -> float | None:
    try:
        return float(text.split(maxsplit=1)[0].replace(",", ""))
    except (ValueError, IndexError):
        return None


def document(title: str, parts: Sequence[tuple[str, str]], main: Html) -> Html:
    """The page around `main`: policy, style, navigation, script."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src {_sha256(style)}; script-src {_sha256(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        el("style", style),
    )
    links = [el("a", name, href=f"#{key}") for key, name in parts]
    bar = el(
        "nav",
        el("a", "Summary", href="#summary"),
        links,
        el("button", "Theme: system", type="button", id="theme", class_="needs-script"),
        aria_label="Sections of this page",
    )
    skip = el("a", "Skip to the result", href="#summary", class_="skip")
    body = el(
        "body",
        skip,
        bar,
        pattern_defs(),
        main,
        el("noscript", el("p", _SCRIPT_OFF, class_="note")),
        el("script", script),
    )
    return join([Html("<!doctype html>\n"), el("html", head, body, lang="en"), Html("\n")])
