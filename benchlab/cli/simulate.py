"""`benchlab simulate`: a sweep in virtual time. Flags are those of `run`, and those of the simulated engine.

Flags that `run` has too are taken from it, so that the two cannot drift apart.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from benchlab.cli import output
from benchlab.cli.measure import _dry_run, measure
from benchlab.errors import Exit

_HELP = """Simulate loads on the bundled engine's own scheduler, in virtual time, and judge them like a sweep.

Nothing is measured: step times come from a cost model, the client is ideal, and every output says so.
The same seeds give the same records, byte for byte.

    benchlab simulate -d chat-short -r 1,2,4 --profile roofline:h100:llama-3-8b --objective 'ttft.p90<=500ms'
"""

_ENGINE = "Simulated engine"


def _option(kind: Any, name: str, text: str, default: Any, **limits: Any) -> inspect.Parameter:
    """An engine flag, by the name that `benchlab engine serve` has for it."""
    field = name.removeprefix("--").split("/")[0].replace("-", "_")
    flag = typer.Option(name, help=text, rich_help_panel=_ENGINE, **limits)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(field, keyword, default=default, annotation=Annotated[kind, flag])


_OWN = (
    _option(str, "--profile", "Cost of a step: teaching, roofline:GPU:MODEL, fitted:FILE, ...", "teaching"),
    _option(int, "--max-seqs", "Requests that run at once.", 16, min=1),
    _option(int, "--max-batched-tokens", "Tokens of one step.", 512, min=1),
    _option(int, "--max-prefill-tokens", "Of those, of prompts; 0: no own limit.", 0, min=0),
    _option(int, "--block-size", "Tokens of one KV block.", 16, min=1),
    _option(int, "--kv-blocks", "KV blocks; 0: what a roofline's device holds, else 8192.", 0, min=0),
    _option(Literal["continuous", "static", "dynamic"], "--policy", "How batches are made.", "continuous"),
    _option(bool, "--prefix-cache/--no-prefix-cache", "Share the blocks of equal prefixes.", True),
    _option(int, "--queue-limit", "Requests that may wait beyond those that run.", 256, min=0),
    _option(str | None, "--max-wait", "Refuse a request that has waited so long, such as 2s.", None),
    _option(int, "--max-model-len", "Tokens of prompt and output together.", 32_768, min=2),
    _option(int, "--growth-reserve", "KV blocks that an admission leaves free for growth.", 0, min=0),
    _option(str, "--priority-age", "So much waiting is worth one step of priority; 0s: never.", "1s"),
    _option(bool, "--fair-share/--no-fair-share", "The tenant with the fewest tokens goes first.", False),
    _option(str, "--speculate", "none | ngram:K | runner:K (a draft); with accept=0.7 in the profile.", "none"),
    _option(str | None, "--journal", "Write every request and step there, JSON lines.", None),
)
_SHARED = (
    "data", "isl", "osl", "lenient", "allow_unknown", "block_tokens", "time_unit", "rate", "concurrency", "arrival",
    "burstiness", "ramp", "trace_scale", "trace_clip", "trace_loop", "trace_spread",
    "duration", "requests", "warmup", "drain", "think", "max_inflight", "timeout", "seed", "arrival_seed", "cache",
    "slo", "slo_target", "objective", "select", "percentiles", "assertion", "max_regression", "baseline", "out",
    "label", "form", "progress", "quiet", "verbose", "dry_run",
)  # fmt: skip


def simulate(ctx: typer.Context, **flags: Any) -> int:
    """The command: flags to a specification, a simulated run, its summary."""
    from benchlab.campaign.progress import Progress, choose_mode
    from benchlab.campaign.simulated import simulate as run
    from benchlab.cli import options
    from benchlab.simulate.settings import EngineSettings, parse_speculate
    from benchlab.units import parse_duration_ns

    form = output.check_format(flags["form"])
    # What `run` asks and a simulation has no use for stays as it is when nobody asks.
    unasked = {name: each.default for name, each in inspect.signature(measure).parameters.items() if name != "ctx"}
    spec, judging = options.build(unasked | flags, sweep=True, argv=["benchlab", *sys.argv[1:]], target=False)
    names = ("max_seqs", "max_batched_tokens", "max_prefill_tokens", "block_size", "policy", "prefix_cache")
    core = {name: flags[name] for name in (*names, "queue_limit", "max_model_len", "growth_reserve", "fair_share")}
    core["age_ns"] = parse_duration_ns(flags["priority_age"], flag="--priority-age", allow_zero=True)
    core |= parse_speculate(flags["speculate"])
    wait = flags["max_wait"]
    settings = EngineSettings(
        profile=flags["profile"],
        core=core | {"num_blocks": flags["kv_blocks"]},
        max_wait_ns=0 if wait is None else parse_duration_ns(wait, flag="--max-wait", allow_zero=True),
        seed=flags["seed"],
    )
    settings.build()
    if flags["dry_run"]:
        return _dry_run(spec)
    mode = choose_mode(
        options.one_of(flags["progress"], ("auto", "live", "plain", "json", "none"), "--progress"),
        quiet=flags["quiet"],
        terminal=sys.stderr.isatty(),
        ci=bool(os.environ.get("CI")),
    )
    said = Progress(mode)
    try:
        with _journal(flags["journal"]) as journal, _terminable():
            outcome = run(spec, settings, said, judging, journal)
    except KeyboardInterrupt as error:
        code = Exit.TERMINATED if isinstance(error, _Terminated) else Exit.INTERRUPTED
        return output.say_exit(code, "interrupted; nothing is kept, for the same seeds make it again")
    finally:
        said.close()
    report = outcome.path / "report.html"
    output.print_summary(outcome.summary, form, run=outcome.path, report=report, detail=flags["verbose"])
    return output.finish(outcome.summary)


class _Terminated(KeyboardInterrupt):
    """SIGTERM came."""


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends what is inside like Ctrl-C, so that it can clear up."""

    def end(number: int, frame: object) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _journal(path: str | None) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """Takes the engine's journal entries to a file, one a line. A simulation that does not come to its end leaves none,
    so that the same command can make it again."""
    from benchlab.errors import StorageError, UsageError

    if path is None:
        yield None
        return
    try:
        file = Path(path).open("x", encoding="utf-8")  # noqa: SIM115  closed below
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot be made: {why}", where=f"--journal {path}", hint="name a new file") from error
    try:
        with file:
            yield lambda entry: print(json.dumps(entry, separators=(",", ":")), file=file)
    except BaseException as error:
        Path(path).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            raise StorageError(f"cannot be written: {error.strerror}", where=path, hint="free some space") from error
        raise


def add(app: typer.Typer) -> None:
    """Register `simulate`."""
    theirs = inspect.signature(measure, eval_str=True).parameters
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [theirs[name].replace(kind=keyword) for name in _SHARED]
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)

    def command(ctx: typer.Context, **flags: Any) -> int:
        return simulate(ctx, **flags)

    parameters = [context, *_OWN, *shared]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    app.command("simulate", help=_HELP)(command)
