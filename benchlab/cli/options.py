"""Flags to a run's specification: every value is checked here, before anything is started or sent."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchlab.campaign.spec import EngineSpec, RunSpec, parse_warmup
from benchlab.cli.loads import parse_loads, parse_shapes, with_replay, words
from benchlab.clients.apis import APIS, key_headers
from benchlab.clients.base import Timeouts
from benchlab.clients.endpoint import parse_endpoint
from benchlab.clients.transports import TRANSPORTS
from benchlab.doctor.sizing import MAX_WORKERS
from benchlab.errors import NotComparableError, UsageError
from benchlab.launch.launch_file import load_launch_file
from benchlab.metrics.limits import PRESETS
from benchlab.records.manifest import read_json
from benchlab.selection.slo import (
    parse_assertion,
    parse_objective,
    parse_regression,
    parse_slos,
    percentiles_with,
)
from benchlab.units import NS_PER_S, parse_duration_ns, parse_share
from benchlab.workload.find import recipe_in, resolve

_DEFAULT_DURATION_NS = 60 * NS_PER_S


def build(
    flags: Mapping[str, Any], *, sweep: bool, argv: Sequence[str], target: bool = True
) -> tuple[RunSpec, dict[str, Any]]:
    """The specification and the options of judging. Raises UsageError for the first thing that is wrong.

    target: False where nothing is sent to anybody (a simulation), so that neither endpoint nor engine is asked for.
    """
    url, engine = flags["url"], flags["engine"]
    if target and bool(url) == bool(engine):
        raise UsageError(
            "give an endpoint or an engine" + (", not both" if url else ""),
            where="-u/--url, --engine",
            hint="benchlab run -u http://127.0.0.1:8000, or --engine bundled -m smollm2-135m",
        )
    if url:
        parse_endpoint(url)
    duration_ns, requests = _length(flags)
    loads, shapes = parse_loads(flags, sweep=sweep), parse_shapes(flags)
    judging = judging_options(flags)
    percentiles = _percentiles(flags["percentiles"])
    clauses = [*judging["objectives"], *judging["gates"], *judging["max_regression"]]
    spec = RunSpec(
        loads=tuple(loads),
        data=_data(flags),
        recipe=_recipe(flags),
        isl=flags["isl"],
        osl=flags["osl"],
        url=url,
        engine=_engine(flags) if engine else None,
        model=flags["model"],
        api=one_of(flags["api"], APIS, "--api"),
        transport=one_of(flags.get("transport", "auto"), TRANSPORTS, "--transport"),
        duration_ns=duration_ns,
        requests=requests,
        warmup=parse_warmup(flags["warmup"], duration_ns=duration_ns, requests=requests),
        drain_ns=parse_duration_ns(flags["drain"], flag="--drain", allow_zero=True),
        **shapes,
        max_inflight=flags["max_inflight"],
        timeouts=parse_timeouts(flags["timeout"]),
        headers=parse_headers(flags["header"] or [], flags["api"]),
        extra=parse_body(flags["body"]),
        seed=flags["seed"],
        arrival_seed=flags["arrival_seed"],
        cache=one_of(flags["cache"], ("warm", "cold"), "--cache"),
        tokenizer=flags.get("tokenizer"),
        slo=tuple(flags["slo"] or ()),
        slo_target=parse_share(flags["slo_target"], flag="--slo-target") if flags["slo_target"] else None,
        objectives=tuple(flags["objective"] or ()),
        select=one_of(flags["select"], ("point", "proved"), "--select"),
        percentiles=tuple(percentiles_with(percentiles, clauses)),
        preset=one_of(flags.get("preset") or "ci", tuple(PRESETS), "--preset"),
        price_per_hour=parse_price(flags.get("price")),
        workers=_workers(flags["workers"]),
        cluster=_cluster(flags),
        keep_text=flags["keep_text"],
        lenient=flags["lenient"],
        allow_unknown=flags["allow_unknown"],
        block_tokens=flags["block_tokens"],
        time_unit=flags["time_unit"],
        data_format=flags["data_format"],
        lock=flags["lock"],
        out=flags["out"],
        labels=parse_labels(flags["label"] or []),
        gpu=flags["gpu"],
        scrape=flags["scrape"],
        command=tuple(argv),
    )
    return (with_replay(spec, flags) if flags.get("replay") else spec), judging


def parse_price(dollars: float | None, flag: str = "--price-per-hour") -> float | None:
    """A price an hour, or None where none was given. Raises UsageError for what is no price: a free device has none."""
    if dollars is not None and not 0 < dollars < math.inf:
        raise UsageError(f"{dollars:g} is no price an hour", where=flag, hint="write 4.00, or leave it out")
    return dollars


def _data(flags: Mapping[str, Any]) -> Path | None:
    lengths = [name for name in ("isl", "osl") if flags[name] is not None]
    if len(lengths) == 1:
        raise UsageError("a made prompt needs both lengths", where=f"--{lengths[0]}", hint="write --isl 512 --osl 128")
    if lengths and flags["data"]:
        raise UsageError("either a workload or made prompts", where="-d/--data, --isl", hint="give one of them")
    return None if lengths or _recipe(flags) else resolve(flags["data"] or "chat-short")


def _recipe(flags: Mapping[str, Any]) -> str | None:
    return recipe_in(str(flags["data"])) if flags["data"] else None


def judging_options(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Objectives, gates and baseline as `judge` takes them, from the flags of the same names."""
    regressions = [parse_regression(text) for text in flags.get("max_regression") or []]
    baseline = flags.get("baseline")
    if regressions and baseline is None:
        raise UsageError("a regression against what?", where="--max-regression", hint="give --baseline RUN")
    return {
        "slo": parse_slos(flags.get("slo") or []),
        "objectives": [parse_objective(text) for text in flags.get("objective") or []],
        "gates": [parse_assertion(text) for text in flags.get("assertion") or []],
        "max_regression": regressions,
        "baseline": None if baseline is None else _baseline(Path(baseline)),
    }


def _baseline(path: Path) -> dict[str, Any]:
    """The baseline's summary. Raises NotComparableError (exit 6) where there is none."""
    try:
        return read_summary(path)
    except UsageError as error:
        hint = "give the directory of a run that was measured to the end"
        raise NotComparableError(f"there is no baseline: {error.what}", where=error.where, hint=hint) from error


def read_summary(path: Path) -> dict[str, Any]:
    """The summary of a run directory, or of a summary.json. A run without one is judged as it was asked for then."""
    file = path / "summary.json" if path.is_dir() else path
    if path.is_dir() and not file.exists():
        from benchlab.records.store import Run
        from benchlab.selection.judge import judge

        return judge(Run(path))
    summary = read_json(file)
    stages = summary.get("stages")
    whole = isinstance(stages, list) and all(isinstance(stage, dict) for stage in stages)
    if summary.get("schema") != 1 or not whole or not isinstance(summary.get("verdict"), dict):
        raise UsageError("is no summary of a run", where=str(file), hint="give a run directory, or its summary.json")
    return summary


def one_of(value: str, names: Sequence[str], flag: str) -> str:
    """The value, or UsageError with the choices."""
    if value not in names:
        raise UsageError(f"'{value}' is not known here", where=flag, hint=f"one of {', '.join(names)}")
    return value


def _length(flags: Mapping[str, Any]) -> tuple[int | None, int | None]:
    duration, requests = flags["duration"], flags["requests"]
    if requests is not None:
        if duration is not None:
            raise UsageError("a stage is as long as one of them says", where="--duration, -n", hint="give one")
        if requests < 1:
            raise UsageError(f"{requests} requests measure nothing", where="-n/--requests", hint="give 1 or more")
        return None, requests
    if duration is None:
        return (None if flags["arrival"] == "trace" else _DEFAULT_DURATION_NS), None
    return parse_duration_ns(duration, flag="--duration"), None


def _cluster(flags: Mapping[str, Any]) -> str | None:
    text = flags.get("cluster")
    if text is None:
        return None
    if flags["workers"] == "auto":
        hint = "write --workers 2, of each node; `benchlab doctor` there tells what one carries"
        raise UsageError("is sized by this host, and the load comes from others", where="--workers auto", hint=hint)
    from benchlab.loadgen.cluster_ray import check_address

    return check_address(text)


def _workers(text: str) -> int:
    """1 for auto: the command sizes it when everything else is known."""
    if text == "auto":
        return 1
    if not text.isdecimal() or not 1 <= int(text) <= MAX_WORKERS:
        raise UsageError(f"'{text}' is no number of workers", where="--workers", hint=f"1 to {MAX_WORKERS}, or auto")
    return int(text)


def _engine(flags: Mapping[str, Any]) -> EngineSpec:
    load_launch_file(flags["engine"])  # a wrong name or file is told before anything else happens
    if not flags["model"]:
        raise UsageError("which model shall the engine serve?", where="-m/--model", hint="-m smollm2-135m, or a path")
    return EngineSpec(
        launch=flags["engine"],
        model=flags["model"],
        threads=flags["engine_threads"],
        port=flags["port"],
        args=tuple(flags["engine_arg"] or ()),
    )


def parse_headers(texts: Sequence[str], api: str = "chat") -> dict[str, str]:
    """'Name: value' -> headers; the key of the environment (`clients.apis`) becomes one unless one is given."""
    headers: dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.strip() or any(letter in text for letter in "\r\n\0"):
            raise UsageError("a header needs a name and a value", where="-H", hint="write -H 'Name: value'")
        headers[name.strip()] = value.strip()
    return headers | key_headers(api, headers)


def parse_body(text: str | None) -> dict[str, Any]:
    """`--body` as an object. Raises UsageError where it is none."""
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"not JSON: {error}", where="--body", hint="write --body '{\"temperature\": 0}'") from error
    if not isinstance(value, dict):
        raise UsageError("not a JSON object", where="--body", hint="write --body '{\"temperature\": 0}'")
    if value.get("stream") is False:
        raise UsageError("benchlab measures streams", where="--body", hint='leave "stream" out')
    return value


def parse_labels(texts: Sequence[str]) -> dict[str, str]:
    """Words of the form k=v. Raises UsageError for others."""
    labels: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"'{text}' is no label", where="-l/--label", hint="write -l team=search")
        labels[name] = value
    return labels


def _percentiles(text: str) -> list[float]:
    found: list[float] = []
    for word in words(text.replace("p", "")):
        try:
            value = float(word)
        except ValueError:
            value = -1.0
        if not 0 < value < 100:
            raise UsageError(f"'{word}' is no percentile", where="--percentiles", hint="write 50,90,95,99")
        found.append(value)
    return found or [50.0, 90.0, 95.0, 99.0]


def parse_timeouts(text: str) -> Timeouts:
    """'120s' (the whole request), 'none', or 'connect=5s,first=30s,gap=10s,total=120s'."""
    if text == "none":
        return Timeouts(total_ns=None)
    if "=" not in text:
        return Timeouts(total_ns=parse_duration_ns(text, flag="--timeout"))
    names = {"connect": "connect_ns", "first": "first_content_ns", "gap": "gap_ns", "total": "total_ns"}
    given: dict[str, int] = {}
    for word in words(text):
        name, _, value = word.partition("=")
        if name not in names:
            raise UsageError(f"'{name}' is no timeout", where="--timeout", hint=f"one of {', '.join(names)}")
        given[names[name]] = parse_duration_ns(value, flag=f"--timeout {name}")
    return Timeouts(**given)
