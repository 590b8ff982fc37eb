"""`benchlab run` and `benchlab sweep`: stages of load against one endpoint, then judgement. They share every flag."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from benchlab.cli import output

_HELP = {
    "run": """Measure one endpoint under one or more stages of load.

    With a URL alone: the shipped workload chat-short, closed loops of 1, 4 and 16 users, 60 s each.
    """,
    "sweep": """Measure an endpoint over several loads, then select the highest that meets the objectives.

    benchlab sweep -u http://127.0.0.1:8000 -r 1,2,4 --objective 'ttft.p90<=500ms' --objective 'tpot.p90<=60ms'
    """,
}
_TARGET, _LOAD, _JUDGE, _OUT = "Target", "Load", "Judging", "Output"

Text = str | None


def measure(
    ctx: typer.Context,
    url: Annotated[Text, typer.Option("-u", "--url", "--base-url", "--target", help="A running endpoint.", rich_help_panel=_TARGET)] = None,
    engine: Annotated[Text, typer.Option("--engine", help="Start this engine instead: a shipped name or FILE.toml.", rich_help_panel=_TARGET)] = None,
    model: Annotated[Text, typer.Option("-m", "--model", help="Model name (default: from /v1/models); with --engine, what to serve.", rich_help_panel=_TARGET)] = None,
    engine_arg: Annotated[list[str] | None, typer.Option("--engine-arg", help="An argument more for the engine's command; repeat.", rich_help_panel=_TARGET)] = None,
    engine_threads: Annotated[int | None, typer.Option("--engine-threads", min=1, help="Threads of the engine.", rich_help_panel=_TARGET)] = None,
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="Port of the engine (default: a free one).", rich_help_panel=_TARGET)] = None,
    api: Annotated[str, typer.Option("--api", help="chat | completions | messages (Anthropic) | tgi | triton", rich_help_panel=_TARGET)] = "chat",
    transport: Annotated[str, typer.Option("--transport", help="auto | native (kernel stamps) | aiohttp.", rich_help_panel=_TARGET)] = "auto",
    header: Annotated[list[str] | None, typer.Option("-H", "--header", help="'Name: value'; repeat. Never written down.", rich_help_panel=_TARGET)] = None,
    body: Annotated[Text, typer.Option("--body", "--extra-body", help="JSON object merged into each request.", rich_help_panel=_TARGET)] = None,
    data: Annotated[Text, typer.Option("-d", "--data", "--dataset", help="Workload file, a shipped one by name (default: chat-short), or recipe:NAME[:ITEMS].", rich_help_panel=_LOAD)] = None,
    isl: Annotated[int | None, typer.Option("--isl", "--input-len", min=1, help="Made prompts of so many tokens (with --osl), instead of --data.", rich_help_panel=_LOAD)] = None,
    osl: Annotated[int | None, typer.Option("--osl", "--output-len", min=1, help="Output tokens asked of each made prompt.", rich_help_panel=_LOAD)] = None,
    lenient: Annotated[bool, typer.Option("--lenient", help="Leave broken workload lines out, counted.", rich_help_panel=_LOAD)] = False,
    allow_unknown: Annotated[bool, typer.Option("--allow-unknown", help="Accept unknown fields in workload lines.", rich_help_panel=_LOAD)] = False,
    block_tokens: Annotated[int | None, typer.Option("--block-tokens", min=1, help="Tokens of a prefix block, for traces that do not say.", rich_help_panel=_LOAD)] = None,
    time_unit: Annotated[Text, typer.Option("--time-unit", help="s | ms | us | ns, for traces that do not say.", rich_help_panel=_LOAD)] = None,
    data_format: Annotated[Text, typer.Option("--data-format", "--from", help="Format of the data by name, where its keys leave it in doubt.", rich_help_panel=_LOAD)] = None,
    lock: Annotated[Path | None, typer.Option("--lock", help="Lock file of the workload; exit 6 where it differs.", rich_help_panel=_LOAD)] = None,
    rate: Annotated[Text, typer.Option("-r", "--rate", "--request-rate", help="Open loop: requests (sessions, where the workload has them) per second: 2,4,8 or 1..32:x2 or 2..10:+2.", rich_help_panel=_LOAD)] = None,
    concurrency: Annotated[Text, typer.Option("-c", "--concurrency", "--max-concurrency", help="Closed loop: users: 1,4,16 or 1..32:x2.", rich_help_panel=_LOAD)] = None,
    arrival: Annotated[str, typer.Option("--arrival", help="constant | poisson | gamma:CV | weibull:SHAPE | mmpp:KEY=VALUE,... (bursts; keys and defaults high=3x share=0.2 stay=5s) | trace", rich_help_panel=_LOAD)] = "poisson",
    burstiness: Annotated[Text, typer.Option("--burstiness", help="As --arrival gamma with CV 1/sqrt(B): 1 is Poisson, below it bursty.", rich_help_panel=_LOAD)] = None,
    ramp: Annotated[list[str] | None, typer.Option("--ramp", help="Open loop, rate changing in a stage: linear:2..20, exp:2..20, step:2,5,10, sine:2..20@30s; repeat.", rich_help_panel=_LOAD)] = None,
    trace_scale: Annotated[float | None, typer.Option("--trace-scale", help="Multiply the times of a trace: 0.5 is twice as fast.", rich_help_panel=_LOAD)] = None,
    trace_clip: Annotated[Text, typer.Option("--trace-clip", help="Only what arrives in this span of a trace: 10s..70s.", rich_help_panel=_LOAD)] = None,
    trace_loop: Annotated[int | None, typer.Option("--trace-loop", min=1, help="Play a trace so many times over.", rich_help_panel=_LOAD)] = None,
    trace_spread: Annotated[Text, typer.Option("--trace-spread", help="Spread arrivals within ticks of this length, for traces in whole seconds: 1s.", rich_help_panel=_LOAD)] = None,
    replay: Annotated[Path | None, typer.Option("--replay", help="Requests and arrival times of a stored run, again.", rich_help_panel=_LOAD)] = None,
    duration: Annotated[Text, typer.Option("--duration", help="Measured time of a stage, e.g. 60s (the default).", rich_help_panel=_LOAD)] = None,
    requests: Annotated[int | None, typer.Option("-n", "--requests", "--num-prompts", "--request-count", help="Measured requests of a stage, instead of a time.", rich_help_panel=_LOAD)] = None,
    warmup: Annotated[str, typer.Option("--warmup", help="10s | 20req | auto | none, cut from the front of each stage.", rich_help_panel=_LOAD)] = "auto",
    drain: Annotated[str, typer.Option("--drain", help="Time for what is in flight to finish.", rich_help_panel=_LOAD)] = "30s",
    think: Annotated[Text, typer.Option("--think", help="Pause of a user after an answer: 2s | exp:2s | uniform:1s..3s | lognormal:2s,0.5; before a turn of a session, its own wait_s comes first.", rich_help_panel=_LOAD)] = None,
    max_inflight: Annotated[int | None, typer.Option("--max-inflight", min=1, help="Cap on requests in flight, over all workers; the waiting is shown.", rich_help_panel=_LOAD)] = None,
    abandon: Annotated[list[str] | None, typer.Option("--abandon", help="Give requests up on purpose: after=2s:share=10% or tokens=20:share=5%; repeat.", rich_help_panel=_LOAD)] = None,
    pacing: Annotated[str, typer.Option("--pacing", help="normal | precise (spins up to 0.4 ms before each send).", rich_help_panel=_LOAD)] = "normal",
    stage_limit: Annotated[Text, typer.Option("--stage-limit", help="Longest a stage may send; none (default: 1h with -n and --timeout none, else none).", rich_help_panel=_LOAD)] = None,
    abort_after: Annotated[str, typer.Option("--abort-after", help="End the run when every request has failed for so long (exit 7); none.", rich_help_panel=_LOAD)] = "30s",
    source_address: Annotated[Text, typer.Option("--source-address", help="Local addresses to connect from in turn, with commas.", rich_help_panel=_LOAD)] = None,
    timeout: Annotated[str, typer.Option("--timeout", help="Whole request, or connect=5s,first=30s,gap=10s,total=120s; none.", rich_help_panel=_LOAD)] = "120s",
    seed: Annotated[int, typer.Option("--seed", help="Seed of made prompts.", rich_help_panel=_LOAD)] = 0,
    arrival_seed: Annotated[int, typer.Option("--arrival-seed", help="Seed of arrival times.", rich_help_panel=_LOAD)] = 0,
    cache: Annotated[str, typer.Option("--cache", help="warm: prompts as they are | cold: a salt per run.", rich_help_panel=_LOAD)] = "warm",
    tokenizer: Annotated[Text, typer.Option("--tokenizer", help="Makes prompts exact to the token: tokenizer.json, its folder, a GGUF file, endpoint (its /tokenize), or estimate:4.", rich_help_panel=_LOAD)] = None,
    workers: Annotated[str, typer.Option("--workers", help="Load generator processes; auto: by what `doctor` finds this host can carry.", rich_help_panel=_LOAD)] = "1",
    cluster: Annotated[Text, typer.Option("--cluster", help="Load from the nodes of a Ray cluster, --workers on each: auto | ray://HOST:PORT.", rich_help_panel=_LOAD)] = None,
    slo: Annotated[list[str] | None, typer.Option("--slo", "--goodput", help="Limit on each request: ttft=500ms; repeat.", rich_help_panel=_JUDGE)] = None,
    slo_target: Annotated[Text, typer.Option("--slo-target", help="Share of requests that must meet every --slo, e.g. 95%.", rich_help_panel=_JUDGE)] = None,
    objective: Annotated[list[str] | None, typer.Option("--objective", help="Qualifies a stage: 'ttft.p90<=400ms'; repeat.", rich_help_panel=_JUDGE)] = None,
    select: Annotated[str, typer.Option("--select", help="point: figures | proved: bounds of their intervals.", rich_help_panel=_JUDGE)] = "point",
    percentiles: Annotated[str, typer.Option("--percentiles", help="Percentiles to report.", rich_help_panel=_JUDGE)] = "50,90,95,99",
    assertion: Annotated[list[str] | None, typer.Option("--assert", "--threshold", help="Gate: 'tpot.p95<40ms'; exit 99 if breached.", rich_help_panel=_JUDGE)] = None,
    max_regression: Annotated[list[str] | None, typer.Option("--max-regression", help="Gate: tpot.p95=5% against --baseline.", rich_help_panel=_JUDGE)] = None,
    baseline: Annotated[Path | None, typer.Option("--baseline", help="Run directory to compare with.", rich_help_panel=_JUDGE)] = None,
    preset: Annotated[str, typer.Option("--preset", help="What the verdict asks for: ci (every day) | publish (stricter, 600 s a stage).", rich_help_panel=_JUDGE)] = "ci",
    price: Annotated[float | None, typer.Option("--price-per-hour", help="Dollars an hour of the whole deployment: adds costs.", rich_help_panel=_JUDGE)] = None,
    gpu: Annotated[str, typer.Option("--gpu", help="auto | off | 0,1 (devices where the endpoint runs).", rich_help_panel=_OUT)] = "auto",
    scrape: Annotated[str, typer.Option("--scrape", help="auto | off | URL of the engine's Prometheus metrics.", rich_help_panel=_OUT)] = "auto",
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Run directory (default: runs/<time>-<name>-<id>).", rich_help_panel=_OUT)] = None,
    label: Annotated[list[str] | None, typer.Option("-l", "--label", help="k=v kept in the manifest; repeat.", rich_help_panel=_OUT)] = None,
    keep_text: Annotated[bool, typer.Option("--keep-text", help="Store the answers (off: they may be private).", rich_help_panel=_OUT)] = False,
    form: Annotated[str, typer.Option("--format", help="table | json | md | csv", rich_help_panel=_OUT)] = "table",
    progress: Annotated[str, typer.Option("--progress", help="auto | live | plain | json | none", rich_help_panel=_OUT)] = "auto",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.", rich_help_panel=_OUT)] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Every stage in full.", rich_help_panel=_OUT)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the stages and send nothing.", rich_help_panel=_OUT)] = False,
) -> int:  # fmt: skip
    from benchlab.cli import options

    form = output.check_format(form)
    spec, judging = options.build(ctx.params, sweep=ctx.info_name == "sweep", argv=["benchlab", *sys.argv[1:]])
    if dry_run:
        return _dry_run(spec)
    from benchlab.campaign.execute import execute
    from benchlab.campaign.progress import Progress, choose_mode

    mode = choose_mode(
        options.one_of(progress, ("auto", "live", "plain", "json", "none"), "--progress"),
        quiet=quiet,
        terminal=sys.stderr.isatty(),
        ci=bool(os.environ.get("CI")),
    )
    said = Progress(mode)
    try:
        if workers == "auto":
            from benchlab.doctor.sizing import size

            spec = size(spec, said.say)
        outcome = execute(spec, said, judging)
    finally:
        said.close()
    output.print_summary(outcome.summary, form, run=outcome.path, report=outcome.path / "report.html", detail=verbose)
    extra = [code for code in (outcome.interrupted, outcome.error and outcome.error.exit_code) if code]
    if outcome.error is not None:
        print(f"error: {outcome.error}", file=sys.stderr)
    why = "interrupted; what was measured is kept" if outcome.interrupted else str(outcome.error or "")
    return output.finish(outcome.summary, extra=extra, why=why.splitlines()[0] if why else "")


def _dry_run(spec: Any) -> int:
    from benchlab.campaign.load_workload import load_workload
    from benchlab.campaign.stages import plan_stages

    workload = load_workload(spec)
    total_ns = 0
    print(f"{'stage':>5}  {'load':<10} {'requests':>8}  {'seconds':>8}")
    for stage in plan_stages(spec, workload.items):
        total_ns += stage.until_ns or 0
        number = "—" if stage.planned is None else f"{stage.planned}"
        seconds = "—" if stage.until_ns is None else f"{stage.until_ns / 1e9:.0f}"
        print(f"{stage.index:>5}  {stage.load.name:<10} {number:>8}  {seconds:>8}")
    print(
        f"workload {workload.path}: {len(workload.items)} items; at least {total_ns / 1e9:.0f} s of load, drains apart"
    )
    return 0


def add(app: typer.Typer) -> None:
    """Register `run` and `sweep`."""
    for name, text in _HELP.items():
        app.command(name, help=text)(measure)
