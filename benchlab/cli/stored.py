"""Commands on stored runs: report, show, compare, gate, validate, recover. They send nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from benchlab.cli import output
from benchlab.errors import Exit, UsageError

RunPath = Annotated[Path, typer.Argument(help="A run directory.")]
Format = Annotated[str, typer.Option("--format", help="table | json | md | csv")]
Short = Annotated[str, typer.Option("--format", help="table | json")]


def report(
    run: RunPath,
    form: Format = "table",
    html: Annotated[Path | None, typer.Option("--html", help="Where the page goes (default: in the run).")] = None,
    slo: Annotated[list[str] | None, typer.Option("--slo", help="Judge with these limits instead.")] = None,
    objective: Annotated[list[str] | None, typer.Option("--objective", help="Select with these instead.")] = None,
    window: Annotated[
        str, typer.Option("--window", help="told: as it was asked for | auto: the steady span.")
    ] = "told",
    preset: Annotated[str | None, typer.Option("--preset", help="ci | publish (default: the run's own).")] = None,
    price: Annotated[float | None, typer.Option("--price-per-hour", help="Dollars: adds costs.")] = None,
    utilisation: Annotated[
        str, typer.Option("--utilisation", help="Share of this load that is carried over the day, for costs.")
    ] = "100%",
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Every stage in full.")] = False,
    dialects: Annotated[
        bool, typer.Option("--dialects", help="As seven other tools define their numbers, beside ours.")
    ] = False,
) -> int:
    """The table and the HTML page again, from the stored evidence."""
    from benchlab.cli.options import one_of, parse_price
    from benchlab.metrics.limits import PRESETS
    from benchlab.records.store import Run
    from benchlab.report.export import write_report
    from benchlab.selection.judge import judge
    from benchlab.selection.slo import parse_objective, parse_slos
    from benchlab.units import parse_share

    output.check_format(form)
    stored = Run(run)
    summary = judge(
        stored,
        slo=parse_slos(slo) if slo else None,
        objectives=[parse_objective(text) for text in objective] if objective else None,
        mode="proved" if stored.manifest.get("select") == "proved" else "point",
        window="auto" if one_of(window, ("told", "auto"), "--window") == "auto" else "told",
        limits=None if preset is None else PRESETS[one_of(preset, tuple(PRESETS), "--preset")],
        price_per_hour=parse_price(price),
        utilisation=parse_share(utilisation, flag="--utilisation"),
    )
    if dialects:
        from benchlab.cli.dialects import report_dialects

        clauses = [str(text) for text in summary["slo"]["clauses"]]
        return report_dialects(stored, summary, list(parse_slos(clauses)) if clauses else [], form, html)
    page = html or stored.path / "report.html"
    write_report(stored, summary, page)
    output.print_summary(summary, form, run=stored.path, report=page, detail=verbose)
    return output.finish(summary)


def validate(
    run: RunPath,
    form: Short = "table",
    preset: Annotated[str | None, typer.Option("--preset", help="ci | publish (default: the run's own).")] = None,
) -> int:
    """Every rule of the measurement's verdict, with its value, its limit and what would help; then what it supports."""
    from benchlab.cli.options import one_of
    from benchlab.metrics.limits import PRESETS
    from benchlab.records.store import Run
    from benchlab.report.support import claim_hints, claims_line
    from benchlab.selection.judge import judge

    output.check_format(form, ("table", "json"))
    limits = None if preset is None else PRESETS[one_of(preset, tuple(PRESETS), "--preset")]
    summary = judge(Run(run), limits=limits)
    verdict = summary["verdict"] | {"preset": summary["preset"], "claims": summary["claims"]}
    with output.reader_may_leave():
        if form == "json":
            print(json.dumps(verdict, indent=1, ensure_ascii=False, allow_nan=False))
        else:
            print(f"{verdict['state']}  {summary['run_id']}")
            for rule in verdict["rules"]:
                value = "" if rule.get("value") is None else f"  {rule['value']}"
                limit = "" if rule.get("limit") is None else f"  (limit {rule['limit']})"
                print(f"  {rule['state']:<12} {rule['name']}{value}{limit}")
                if rule.get("hint") and rule["state"] in ("fail", "warn", "not checked"):
                    print(f"               {rule['hint']}")
            print(f"claims ({summary['preset']}): {claims_line(summary)}")
            for hint in claim_hints(summary):
                print(f"  {hint}")
    return output.finish(summary)


def gate(
    run: RunPath,
    assertion: Annotated[list[str] | None, typer.Option("--assert", "--threshold", help="'tpot.p95<40ms'.")] = None,
    max_regression: Annotated[list[str] | None, typer.Option("--max-regression", help="tpot.p95=5%; repeat.")] = None,
    baseline: Annotated[Path | None, typer.Option("--baseline", help="Run directory or summary.json.")] = None,
    form: Short = "table",
) -> int:
    """Apply assertions and regression limits to stored data; the exit code is the answer (99: breached)."""
    from benchlab.cli.options import judging_options
    from benchlab.records.store import Run
    from benchlab.selection.judge import judge

    output.check_format(form, ("table", "json"))
    options = judging_options({"assertion": assertion, "max_regression": max_regression, "baseline": baseline})
    if not options["gates"] and not options["max_regression"]:
        raise UsageError("no gate was given", where="benchlab gate", hint="write --assert 'tpot.p95<40ms'")
    options = {name: options[name] for name in ("gates", "max_regression", "baseline")}
    summary = judge(Run(run), **options)
    with output.reader_may_leave():
        if form == "json":
            whole = {"verdict": summary["verdict"], "gates": summary["gates"]}
            print(json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False))
        else:
            print(f"{summary['verdict']['state']}  {summary['run_id']}")
            for row in summary["gates"]:
                why = f"  {row['why']}" if row["why"] else ""
                print(f"  {'pass' if row['passed'] else 'FAIL'}  {row['name']}{why}")
    return output.finish(summary)


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Two or more run directories; the first is the base.")],
    form: Format = "table",
) -> int:
    """Stored runs side by side: what differs between them first, then figures with a word only where it is known."""
    from benchlab.cli.options import read_summary
    from benchlab.selection.compare import compare as compare_summaries

    output.check_format(form)
    if len(runs) < 2:
        raise UsageError("one run alone has nothing beside it", where="benchlab compare", hint="give two runs or more")
    result = compare_summaries([read_summary(path) for path in runs])
    with output.reader_may_leave():
        if form == "json":
            print(json.dumps(result.as_dict(), indent=1, ensure_ascii=False, allow_nan=False))
        else:
            from benchlab.report.comparison import comparison_text

            print(comparison_text(result, form), end="")
    if not result.comparable:
        return output.say_exit(
            Exit.NOT_COMPARABLE, "the runs did not do the same thing: " + ", ".join(result.differences)
        )
    return 0


def show(
    run: RunPath,
    stage: Annotated[int | None, typer.Option("--stage", help="Only this stage (its number).")] = None,
    metric: Annotated[str, typer.Option("--metric", help="Order by this time, slowest first.")] = "ttft",
    top: Annotated[int, typer.Option("-n", "--top", min=1, max=10000, help="So many requests.")] = 20,
    outcome: Annotated[str | None, typer.Option("--outcome", help="Only requests that ended so.")] = None,
    form: Annotated[str, typer.Option("--format", help="table | json | csv")] = "table",
) -> int:
    """The requests behind a number: the slowest, or those of one outcome."""
    from benchlab.records.schema import records_from
    from benchlab.records.store import Run
    from benchlab.report.rows import request_rows, rows_text

    output.check_format(form, ("table", "json", "csv"))
    records = [record for record in records_from(Run(run).requests()) if stage in (None, record.stage)]
    rows = request_rows(records, metric=metric, outcome=outcome)[:top]
    if form == "json":
        print(json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        print(rows_text(rows, csv=form == "csv"), end="")
    return 0


def recover(
    run: Annotated[Path, typer.Argument(help="The directory of a run that was killed.")], form: Format = "table"
) -> int:
    """Make a run directory of a killed run's spool; at most its last second of records is missing."""
    from benchlab.campaign.finish import recover as recover_run

    output.check_format(form)
    summary: dict[str, Any] = recover_run(run)
    print(f"recovered {sum(sum(s['outcomes'].values()) for s in summary['stages'])} requests", file=sys.stderr)
    output.print_summary(summary, form, run=run, report=run / "report.html")
    return output.finish(summary)


def add(app: typer.Typer) -> None:
    """Register the commands."""
    for function in (report, show, compare, gate, validate, recover):
        app.command(function.__name__)(function)
