"""The exporters by name: a run, told in another tool's file. It must not know what stands in the files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from benchlab.errors import UsageError
from benchlab.metrics.columns import stages_of
from benchlab.metrics.goodput import SloClause
from benchlab.records.manifest import finite
from benchlab.records.store import Run
from benchlab.report.export_action import run_as_action
from benchlab.report.export_guidellm import run_as_guidellm
from benchlab.report.export_vllm import stage_as_vllm
from benchlab.report.view import Summary

Export = Callable[[Run, Summary, Sequence[SloClause], int | None], Any]


def _vllm(run: Run, summary: Summary, slo: Sequence[SloClause], stage: int | None) -> Any:
    found = stages_of(run.requests())
    entries = {int(e.get("stage", i)): e for i, e in enumerate(run.manifest.get("stages") or [])}
    held = sorted(set(found) & set(entries))
    if stage is None and len(held) > 1:
        raise UsageError(
            f"vllm's file holds one run, and this one has {len(held)} stages",
            where="--to vllm",
            hint=f"give --stage, one of {', '.join(map(str, held))}",
        )
    number = held[0] if stage is None and held else stage
    if number not in held or number is None:
        raise UsageError(f"there is no stage {number} with requests", where="--stage", hint=f"there are: {held}")
    percentiles = [float(p) for p in run.manifest.get("percentiles") or (50, 90, 95, 99)]
    verdict = str(summary["verdict"]["state"])
    return stage_as_vllm(
        found[number], entries[number], run.manifest, slo=slo, percentiles=percentiles, verdict=verdict
    )


def _guidellm(run: Run, summary: Summary, slo: Sequence[SloClause], stage: int | None) -> Any:
    found = stages_of(run.requests())
    if stage is not None:
        found = {number: c for number, c in found.items() if number == stage}
    return run_as_guidellm(found, run.manifest, slo=slo, verdict=str(summary["verdict"]["state"]))


def _smaller(run: Run, summary: Summary, slo: Sequence[SloClause], stage: int | None) -> Any:
    return run_as_action(_only(summary, stage), "smaller")


def _bigger(run: Run, summary: Summary, slo: Sequence[SloClause], stage: int | None) -> Any:
    return run_as_action(_only(summary, stage), "bigger")


def _only(summary: Summary, stage: int | None) -> Summary:
    if stage is None:
        return summary
    kept = [each for each in summary["stages"] if each.get("stage") == stage]
    if not kept:
        raise UsageError(f"there is no stage {stage}", where="--stage", hint="`benchlab report` shows the stages")
    return {**summary, "stages": kept}


EXPORTERS: dict[str, Export] = {
    "vllm": _vllm,
    "guidellm": _guidellm,
    "github-action": _smaller,
    "github-action-bigger": _bigger,
}
"""github-action: for `tool: customSmallerIsBetter`; github-action-bigger: for `customBiggerIsBetter`."""


def exported(run: Run, summary: Summary, tool: str, slo: Sequence[SloClause], stage: int | None) -> str:
    """The file's text: JSON with a line break at its end. Raises UsageError for a name or stage that is not there."""
    if tool not in EXPORTERS:
        raise UsageError(f"'{tool}' is no format here", where="--to", hint=f"one of {', '.join(EXPORTERS)}")
    value = finite(EXPORTERS[tool](run, summary, slo, stage))
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
