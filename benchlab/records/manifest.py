"""`manifest.json`: everything that must be known beside the records to judge a run, or to repeat it.

It is a plain JSON object, written when the run begins and again when it ends. The judging side reads only these
keys (all `_ns` from t0 of the host that made the requests):

    schema 1 · run_id · created (ISO 8601 UTC) · benchlab (version) · command (argv, secrets removed) · labels {k: v}
    t0 {monotonic_ns, wall_ns} · state: running | complete | interrupted | aborted | recovered · reason
    endpoint {url, api, model, models_at_start, models_at_end, server}
    engine {name, argv, version, ready_s, facts, log} or null (attached)
    workload {path, sha256, items, read, dropped {reason: n}, cache: cold | warm | unknown, tokenizer, time_unit,
              inversions, facts {arrivals, input_tokens, output_tokens, prefix, sessions},
              lock {fingerprint, items {count, sha256}, arrivals, seeds, tokenizer, sampling, chat_template}}
    items (number in items.parquet)
    simulated {profile, seed, max_wait_ns, the core's settings} where nothing was measured, else absent
    imported {tool, version, file, sha256, untold {field: what}, notes} where another tool measured, else absent; its
             stages have tool_span_s, what that tool divided its rates by
    seeds {arrival, content} · sampling {...} · timeouts {connect_ns, first_content_ns, gap_ns, total_ns}
    client {transport, loop, python, platform, stamp_source, cpus, proxies_ignored [names], ...}
    stages [{stage, name, kind: open | closed, offered_rps, concurrency, arrival, warmup, planned,
             shape {ramp, trace {scale, clip_s, loop, spread_s}, think, sessions {in_workload, planned, asked_per_s},
                    abandon [...], replay, stage_limit_s, abort_after_s: what has no part in it is null},
             aborted (by which rule, where one ended it), start_ns, w0_ns, w1_ns, drain_end_ns, complete, why,
             workers [{worker, cpu_s, wall_s, events_sending (all three of the sending phase), loop_lag_ms {p50, p99,
                       max}, events, merged_chunks, connections, retries, offset_error_ns, clock_steps_ns,
                       cap {max_inflight, held}, peak_inflight, sessions, backoff {times, ns}}]}]
    slo {clauses [...], target} · objectives [...] · percentiles [...] · preset: ci | publish · price_per_hour or null
    telemetry {sources [...], notes [...], period_ns, gaps [...]}
    engine_times {rows, of (requests that were sent), others (rows of other requests of the same id), engine_ns and t_ns
                  (the engine's clock and ours at one instant), error_ns, why}; absent where the engine was not asked
    hosts [{name, node, address, workers [...], python, benchlab, t0 {monotonic_ns, wall_ns} of that host,
            clock [{at_ns, offset_ns, error_ns, trips}], lost {at_ns, why, sending, requests} or null, ...}], only of a
            run whose load came from several hosts
    host {name, cpu, cores, memory_bytes, kernel, ...} · git {commit, dirty} or null
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from benchlab.errors import StorageError, UsageError

Manifest = dict[str, Any]

_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password|credential", re.IGNORECASE)
_FLAG_WORDS = "auth|authorization|bearer|key|apikey|token|secret|cookies?|password|passwd|credentials?"
_SECRET_FLAG = re.compile(rf"(^|[-_])({_FLAG_WORDS})($|[-_])", re.IGNORECASE)
"""Whole words of a flag or variable: `--api-key` and `HF_TOKEN` are meant, `--max-tokens` and `--tokenizer` are not."""
_SECRET_VALUE = re.compile(r"\b(sk[-_]|hf_|gsk_|ghp_|nvapi-|xai-|AIza|Bearer\s+)[^\s\"',}]+", re.IGNORECASE)
_SECRET_PAIR = re.compile(
    r"((?:api[-_]?key|access[-_]?token|auth[-_]?token|authorization|client[-_]?secret|secret|password|passwd)"
    r"[\"']?\s*[:=]\s*[\"']?)((?:Bearer|Basic)\s+)?[^\s\"'&,}]+",
    re.IGNORECASE,
)
_USERINFO = re.compile(r"(?<=://)[^/\s]*@")
_BARE_USERINFO = re.compile(r"(?<![^\s=])[^\s/:@=]+:[^\s/]+@(?=[^\s/@])")
"""`user:password@host`, an URL whose scheme was left out."""


_DAMAGED = "the file is damaged, or not benchlab's: take it from where the run was made"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of a run directory. Raises UsageError naming the file when it is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            "no such file", where=str(path), hint="give a run directory (`runs/...`), or `benchlab recover` it first"
        ) from None
    except (OSError, UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
        raise UsageError(f"cannot be read as JSON: {error}", where=str(path), hint=_DAMAGED) from error
    if not isinstance(value, dict):
        raise UsageError("holds no JSON object", where=str(path), hint=_DAMAGED)
    return value


_SHAPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("t0", "endpoint", "engine", "workload", "seeds", "sampling", "client", "slo"), dict),
    **dict.fromkeys(("labels", "timeouts", "telemetry", "host", "git"), dict),
    **dict.fromkeys(("stages", "objectives", "percentiles", "command"), list),
    **dict.fromkeys(("run_id", "created", "benchlab", "state", "reason", "select"), str),
}


def read_manifest(path: Path) -> Manifest:
    """`manifest.json` of a run, its outer shape checked. Raises UsageError naming the file and the key."""
    manifest = read_json(path)
    faults = [
        f"'{key}' is no {'list' if kind is list else 'object' if kind is dict else 'text'}"
        for key, kind in _SHAPES.items()
        if manifest.get(key) is not None and not isinstance(manifest[key], kind)
    ]
    if manifest.get("schema") != 1:
        faults.append(f"schema is {manifest.get('schema')!r}, this benchlab reads 1")
    stages = manifest.get("stages")
    if stages is None:
        faults.append("'stages' is missing")
    elif isinstance(stages, list):
        for number, entry in enumerate(stages):
            if not isinstance(entry, dict) or type(entry.get("stage")) is not int:
                faults.append(f"stages[{number}] is no stage")
            else:
                wrong = [key for key, ns in entry.items() if key.endswith("_ns") and type(ns) not in (int, type(None))]
                faults += [f"stages[{number}].{key} is no whole number" for key in wrong]
    if faults:
        raise UsageError("is no manifest of a run: " + "; ".join(faults[:3]), where=str(path), hint=_DAMAGED)
    return manifest


def finite(value: Any) -> Any:
    """The same value with NaN and Infinity replaced by None, all the way down: JSON knows neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object whole or not at all. Raises StorageError."""
    text = json.dumps(finite(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, text.encode())


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all (a temporary file beside it, then a rename). Raises StorageError."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(f"cannot be written: {error.strerror or error}", where=str(path)) from error


def redact_text(text: str) -> str:
    """The text with what looks like a key, and user names in URLs, replaced by ***."""
    text = _BARE_USERINFO.sub("***@", _USERINFO.sub("***@", text))
    text = _SECRET_PAIR.sub(lambda found: found.group(1) + (found.group(2) or "") + "***", text)
    return _SECRET_VALUE.sub(lambda found: found.group(1) + "***", text)


def redact_headers(headers: dict[str, str]) -> dict[str, str]:
    """Header names with their values, those that may hold a secret replaced by ***."""
    return {name: "***" if _SECRET_HEADER.search(name) else redact_text(value) for name, value in headers.items()}


def redact_argv(argv: list[str]) -> list[str]:
    """A command line without secrets: values of `-H`, `--api-key`-like flags and anything that looks like a key."""
    clean: list[str] = []
    hide_next = False
    for word in argv:
        flag, equals, value = word.partition("=")
        if hide_next:
            name, colon, _ = word.partition(":")
            clean.append(f"{name}: ***" if colon else "***")
            hide_next = False
        elif word.startswith("-H") and len(word) > 2 and not word.startswith("-H="):  # glued: -HName:value
            name, colon, _ = word.partition(":")
            clean.append(f"{name}: ***" if colon else "-H***")
        elif equals and not flag.startswith("-") and _SECRET_FLAG.search(flag) and flag.isidentifier():
            clean.append(f"{flag}=***")  # an environment assignment
        elif flag in ("-H", "--header") or (flag.startswith("--") and _SECRET_FLAG.search(flag)):
            hide_next = not equals
            name, colon, _ = value.partition(":")
            clean.append(flag + equals + ((f"{name}: ***" if colon else "***") if equals else ""))
        else:
            clean.append(redact_text(word))
    return clean
