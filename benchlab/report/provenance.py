"""Where the numbers come from: the manifest's facts in a fixed order, then the whole manifest as it stands.

Everything here was written by others (URLs, model names, host names), so it is shown and never interpreted. It must
not know which facts matter to a verdict.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchlab.records.manifest import finite, redact_text
from benchlab.report.figure import data_table
from benchlab.report.html import Html, el, visible

_EVIDENCE = ("manifest.json", "requests.parquet", "telemetry.parquet", "items.parquet", "summary.json", "texts.parquet")
_FACTS: tuple[tuple[str, str], ...] = (
    ("Run", "run_id"),
    ("State", "state"),
    ("Created", "created"),
    ("benchlab", "benchlab"),
    ("Labels", "labels"),
    ("Endpoint", "endpoint.url"),
    ("API", "endpoint.api"),
    ("Model", "endpoint.model"),
    ("Server", "endpoint.server"),
    ("Engine", "engine.name"),
    ("Engine version", "engine.version"),
    ("Engine command", "engine.argv"),
    ("Engine facts", "engine.facts"),
    ("Workload", "workload.path"),
    ("Workload sha256", "workload.sha256"),
    ("Workload items", "workload.items"),
    ("Cache", "workload.cache"),
    ("Sampling", "sampling"),
    ("Seeds", "seeds"),
    ("Timeouts", "timeouts"),
    ("Per-request limits", "slo"),
    ("Objectives", "objectives"),
    ("Client", "client"),
    ("Telemetry", "telemetry"),
    ("Host", "host"),
    ("Git", "git"),
)


def file_hashes(folder: Path) -> list[tuple[str, int, str]]:
    """(name, bytes, sha256) of each evidence file in a run directory; the page itself is none of them."""
    found = []
    for name in _EVIDENCE:
        path = folder / name
        if path.is_file():
            with path.open("rb") as file:
                found.append((name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()))
    return found


def _at(manifest: Mapping[str, Any], path: str) -> Any:
    value: Any = manifest
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return " · ".join(f"{key} {_fact(inner)}" for key, inner in value.items() if inner not in (None, [], {}, ""))
    if isinstance(value, list | tuple):
        return ", ".join(_fact(inner) for inner in value)
    return redact_text(str(value))


def command_of(manifest: Mapping[str, Any]) -> str:
    """The command line that made the run, quoted for a shell; empty when the manifest has none."""
    argv = manifest.get("command")
    return redact_text(shlex.join(map(str, argv))) if isinstance(argv, list | tuple) and argv else ""


def provenance_section(manifest: Mapping[str, Any], files: list[tuple[str, int, str]]) -> Html:
    """Command, facts, hashes of the evidence, the whole manifest."""
    rows = [
        [name, visible(_fact(value), 1200)]
        for name, path in _FACTS
        if (value := _at(manifest, path)) not in (None, "", [], {})
    ]
    command = command_of(manifest)
    text = json.dumps(finite(dict(manifest)), indent=1, ensure_ascii=False, allow_nan=False)
    parts = (
        [el("p", "The command that made this run:"), el("pre", el("code", command), tabindex="0")] if command else []
    )
    parts.append(data_table(["fact", "value"], rows, "Facts of the run", text=(0, 1)))
    if files:
        hashes = [[name, f"{size:,}", el("code", digest)] for name, size, digest in files]
        parts.append(data_table(["file", "bytes", "sha256"], hashes, "Evidence beside this page", text=(0, 2)))
    whole = el("pre", el("code", visible(redact_text(text), 60_000)), tabindex="0")
    return el("div", parts, el("details", el("summary", "The whole manifest"), whole))
