"""`benchlab import` and `benchlab export`: other tools' results in, and our runs in other tools' files out."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from benchlab.cli import output
from benchlab.errors import Exit

_IMPORT = """Make a run directory of another tool's result file.

Whose file it is, is told by its keys. Single requests are needed, no summary:

vllm: the JSON of `vllm bench serve --save-result --save-detailed` ·
sglang: the JSONL of `--output-details` ·
guidellm: the JSON report ·
aiperf: profile_export.jsonl, or profile_export_raw.jsonl ·
inference-perf: per_request_lifecycle_metrics.json ·
genai-bench: the JSON of one scenario and concurrency ·
evalscope: benchmark_data.db

What a file does not tell is a gap with its reason; `benchlab report RUN --dialects` gives its tool's own numbers.
"""
_EXPORT = """Write a stored run as another tool's result file, in that tool's own definitions.

vllm: one stage as the JSON of `vllm bench serve` · guidellm: the run as guidellm's JSON report ·
github-action: for github-action-benchmark's customSmallerIsBetter · github-action-bigger: for customBiggerIsBetter
"""


def import_result(
    file: Annotated[Path, typer.Argument(help="The tool's result file.")],
    tool: Annotated[str | None, typer.Option("--from", help="Whose it is, where its keys leave a doubt.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The new run directory.")] = None,
    label: Annotated[list[str] | None, typer.Option("-l", "--label", help="k=v; repeat.")] = None,
    form: Annotated[str, typer.Option("--format", help="table | json | md | csv")] = "table",
) -> int:
    from benchlab.cli.options import parse_labels
    from benchlab.records.import_base import write_run
    from benchlab.records.import_tools import read_result
    from benchlab.records.manifest import write_json
    from benchlab.records.store import Run
    from benchlab.report.export import write_report
    from benchlab.selection.judge import judge

    output.check_format(form)
    labels = parse_labels(label or [])
    found = read_result(file, tool)
    path = write_run(found, file, out, wall_ns=time.time_ns(), labels=labels)
    run = Run(path)
    summary = judge(run)
    write_json(path / "summary.json", summary)
    page = path / "report.html"
    write_report(run, summary, page)
    facts = run.manifest["imported"]
    print(f"imported {run.requests().num_rows} requests of {found.tool} into {path}", file=sys.stderr)
    for note in facts["notes"]:
        print(f"  note: {note}", file=sys.stderr)
    if facts["untold"]:
        print(f"  not told: {', '.join(facts['untold'])}", file=sys.stderr)
    print(f"  in the tool's own words: benchlab report {path} --dialects", file=sys.stderr)
    output.print_summary(summary, form, run=path, report=page)
    return output.finish(summary)


def export_run(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    tool: Annotated[str, typer.Option("--to", help="vllm | guidellm | github-action | github-action-bigger")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The file; default: stdout.")] = None,
    stage: Annotated[int | None, typer.Option("--stage", help="Only this stage (its number).")] = None,
    slo: Annotated[list[str] | None, typer.Option("--slo", help="Judge with these limits instead.")] = None,
) -> int:
    from benchlab.records.store import Run
    from benchlab.report.export import write_page
    from benchlab.report.export_tools import exported
    from benchlab.selection.judge import judge
    from benchlab.selection.slo import parse_slos

    stored = Run(run)
    summary = judge(stored, slo=parse_slos(slo) if slo else None)
    texts = [str(text) for text in summary["slo"]["clauses"]]
    text = exported(stored, summary, tool, parse_slos(texts) if texts else (), stage)
    if tool.startswith("github-action") and summary["verdict"]["state"] == "INVALID":
        # Its charts keep every value as a past to compare with: none that cannot be believed goes there.
        print("nothing was written: the measurement is INVALID", file=sys.stderr)
        return output.finish(summary)
    if out is None:
        with output.reader_may_leave():
            print(text, end="")
    else:
        write_page(text, out)
        print(f"wrote {out}", file=sys.stderr)
    return output.finish(summary) if summary["verdict"]["state"] == "INVALID" else int(Exit.OK)


def add(app: typer.Typer) -> None:
    """Register both commands."""
    app.command("import", help=_IMPORT)(import_result)
    app.command("export", help=_EXPORT)(export_run)
