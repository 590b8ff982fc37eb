"""Can these numbers be believed? The measurement's verdict: rules on the client and its records, never on the server.

A server may be as slow or overloaded as it likes: that is a stage's condition. What is judged here is whether every
request is accounted for, went out on time, was stamped well, and whether anything impossible stands in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchlab.metrics.audit import impossible
from benchlab.metrics.certificate import client_rules, merged
from benchlab.metrics.columns import Bools, Columns
from benchlab.metrics.hosts import host_rules
from benchlab.metrics.limits import CI, PUBLISH, Limits
from benchlab.metrics.rule import Rule, State, judged, worst
from benchlab.metrics.window import Window
from benchlab.records.event import Outcome
from benchlab.units import NS_PER_MS, NS_PER_S

__all__ = ["CI", "PUBLISH", "Limits", "Verdict", "merged", "run_rules", "stage_rules", "verdict_of"]

Verdict = Literal["VALID", "WARN", "INVALID"]


def verdict_of(rules: list[Rule]) -> Verdict:
    """VALID, WARN or INVALID from the gravest rule; what was not checked does not count against it."""
    verdicts: dict[State, Verdict] = {"fail": "INVALID", "warn": "WARN"}
    return verdicts.get(worst(rules), "VALID")


def stage_rules(
    c: Columns, w: Window | None, stage: Mapping[str, Any], manifest: Mapping[str, Any], limits: Limits = CI
) -> list[Rule]:
    """The rules of one stage. `stage` is its entry in the manifest."""
    number = int(stage.get("stage", 0))
    inside = w.holds(c.number("intended_ns")) if w is not None else np.ones(c.n, dtype=np.bool_)
    rules = [
        _complete(c, stage, number),
        _on_time(c, w, inside, limits, number),
        *client_rules(c, inside, stage, limits, number),
        _stamps(c, limits, number),
        _wall_clock(stage, number),
        _lengths(c, inside, manifest, limits, number),
        _cold(c, inside, manifest, limits, number),
        _sent_before(c, stage, limits, number),
        _impossible(c, number),
        _client_faults(c, inside, limits, number),
        _cap(c, inside, stage, limits, number),
        _counts(c, limits, number),
        _whole_sessions(c, inside, limits, number),
    ]
    if manifest.get("imported"):
        return [_of_a_foreign_client(rule) for rule in rules]
    return [_of_no_client(rule) for rule in rules] if manifest.get("simulated") else rules


_OF_THE_CLIENT = frozenset(
    ("rate_held", "dispatch_lag_p99_ms", "client_cpu_share", "loop_lag_p99_ms", "merged_chunk_share",
     "client_headroom", "stamp_error_p99_ms", "wall_clock_steps", "client_faults")
)  # fmt: skip


def _of_no_client(rule: Rule) -> Rule:
    """A simulation has no client that could be late or busy: such a rule holds nothing, whatever its figure."""
    if rule.name not in _OF_THE_CLIENT:
        return rule
    return replace(rule, state="not checked", value=None, hint="simulated: no client took part")


_NOT_TOLD = frozenset(("stamp_error_p99_ms", "client_faults", "inflight_cap"))


def _of_a_foreign_client(rule: Rule) -> Rule:
    """What another tool's file says nothing of is not checked, whatever an empty column would give."""
    if rule.name not in _NOT_TOLD:
        return rule
    return replace(rule, state="not checked", value=None, hint="imported: the tool's file does not tell")


def _imported(facts: Any) -> Rule:
    tool = facts.get("tool") if isinstance(facts, Mapping) else None
    hint = "another tool measured this: its client's lateness, CPU and stamps stand in no file"
    return Rule("imported", "warn", str(tool or "yes"), None, hint)


def run_rules(manifest: Mapping[str, Any], telemetry: pa.Table, limits: Limits = CI) -> list[Rule]:
    """The rules of the whole run: the server stayed the same, telemetry has no holes."""
    simulated = manifest.get("simulated")
    marks = [_simulated(simulated)] if simulated else []
    imported = manifest.get("imported")
    marks += [_imported(imported)] if imported else []
    return [*marks, _same_server(manifest), _telemetry(manifest, telemetry, limits), *host_rules(manifest)]


def _simulated(facts: Any) -> Rule:
    profile = facts.get("profile") if isinstance(facts, Mapping) else None
    hint = "nothing was measured: the times come from a cost model; measure with `benchlab sweep`"
    return Rule("simulated", "warn", str(profile or "yes"), None, hint)


def _complete(c: Columns, stage: Mapping[str, Any], number: int) -> Rule:
    planned = stage.get("planned")
    ids = c.table.column("request_id")
    twice = c.n - len(pc.unique(ids))
    nameless = int((c.outcome < 0).sum())
    if twice or nameless:
        hint = f"{twice} request ids stand twice, {nameless} rows have no known outcome: the file is damaged"
        return Rule("complete_records", "fail", twice + nameless, 0, hint, number)
    if planned is None:
        return Rule("complete_records", "pass", c.n, None, "", number)
    # A stage that was cut short is `incomplete` and says so; one that claims to be whole must be.
    cut = stage.get("complete") is False
    bad: State = "warn" if cut and c.n < int(planned) else "fail"
    # Only an open loop is planned to the request: a closed one sends what comes back.
    whole = c.n == int(planned) or (stage.get("kind") == "closed" and c.n > int(planned))
    state: State = "pass" if whole else bad
    lacking = int(planned) - c.n
    words = (
        f"{lacking} of {planned} planned requests have" if lacking > 0 else f"{-lacking} records more than planned have"
    )
    hint = "" if state == "pass" else f"{words} no {'record' if lacking > 0 else 'place in the plan'}"
    return Rule("complete_records", state, c.n, int(planned), hint, number)


def _on_time(c: Columns, w: Window | None, inside: Bools, limits: Limits, number: int) -> Rule:
    """The share of due requests that the client itself did not start inside the stage: its own part of a low rate."""
    due = int(inside.sum())
    if not due:
        return Rule("rate_held", "not checked", None, limits.missed_share, "nothing was due", number)
    if c.untold("dispatched_ns")[inside].all():
        return Rule("rate_held", "not checked", None, limits.missed_share, "the source does not tell", number)
    dispatched = c.number("dispatched_ns")
    # a turn whose session went no further was never due: that is no lateness of the client
    late = (np.isnan(dispatched) | c.is_outcome(Outcome.NOT_SENT)) & ~c.text_is("error_kind", "session")
    if w is not None:
        grace = 2 * limits.lag_ms_fail * NS_PER_MS  # a last arrival just before w1 may be just after
        late |= dispatched >= w.w1_ns + grace
    hint = "the client could not keep the rate: --workers, a faster client host, or a higher --max-inflight"
    return judged(
        "rate_held",
        int((inside & late).sum()) / due,
        limits.missed_share,
        hint,
        fail=limits.missed_share_fail,
        stage=number,
    )


def _stamps(c: Columns, limits: Limits, number: int) -> Rule:
    found = merged(c)
    if found is None:
        return Rule("merged_chunk_share", "not checked", None, limits.merged_share, "no text came", number)
    share, width = found
    hint = (
        f"{share:.0%} of text events shared a read (up to {width:.3g} ms early): gaps, ITL and TPOT of those are not "
        "sharp; look for a buffering proxy, or a busy client"
    )
    return judged("merged_chunk_share", share, limits.merged_share, hint, stage=number)


def _wall_clock(stage: Mapping[str, Any], number: int) -> Rule:
    """Kernel stamps are wall times carried over: where that clock stepped, up to half a second of them is off."""
    workers = stage.get("workers") or []
    told = [steps for w in workers if (steps := w.get("clock_steps_ns")) is not None]
    if not told:
        return Rule("wall_clock_steps", "not checked", None, 0, "the client did not say", number)
    num_steps = sum(map(len, told))
    hint = "stamps of up to 0.5 s before each step are off: repeat the stage, with the host's clock left alone"
    return Rule("wall_clock_steps", "warn" if num_steps else "pass", num_steps, 0, hint if num_steps else "", number)


def _lengths(c: Columns, inside: Bools, manifest: Mapping[str, Any], limits: Limits, number: int) -> Rule:
    """Realised over requested output tokens; too few counts only where the length was forced."""
    asked, got = c.number("requested_tokens"), c.number("output_tokens")
    known = (
        inside & c.is_outcome(Outcome.OK) & ~np.isnan(asked) & ~np.isnan(got) & ~c.text_is("tokens_source", "chunks")
    )
    if not known.any():
        return Rule(
            "output_lengths", "not checked", None, limits.length_band, "no length was asked, or none told", number
        )
    sampling = manifest.get("sampling") or {}
    forced = bool(sampling.get("ignore_eos")) or sampling.get("min_tokens") is not None
    ratio = got[known] / np.maximum(asked[known], 1)
    off = ratio - 1
    worst_off = float(np.abs(off).max()) if forced else float(max(0.0, off.max()))
    mean_off = float(abs(off.mean())) if forced else worst_off
    place = int(np.argmax(np.abs(off) if forced else off))
    hint = f"{got[known][place]:.0f} of {asked[known][place]:.0f} tokens in the worst request: not the length asked for"
    value = max(mean_off, worst_off)
    return judged("output_lengths", value, limits.length_band, hint, stage=number)


def _cold(c: Columns, inside: Bools, manifest: Mapping[str, Any], limits: Limits, number: int) -> Rule:
    declared = (manifest.get("workload") or {}).get("cache")
    cached, prompt = c.number("cached_tokens"), c.number("prompt_tokens")
    known = inside & ~np.isnan(cached) & (prompt > 0)
    share = float(cached[known].sum() / prompt[known].sum()) if known.any() else None
    if declared != "cold":
        return Rule("cold_cache_hits", "not checked", share, None, "the workload is not declared cold", number)
    # A chat template and prefixes that the workload shares on purpose hit as well, and cannot be told apart from here:
    # so this warns, and never fails a run.
    hint = (
        "part of the prompts came from the prefix cache: the chat template, prefixes that the workload shares, or an "
        "engine that was warm (restart it, or declare --cache warm)"
    )
    return judged("cold_cache_hits", share, limits.cached_share, hint, stage=number)


def _sent_before(c: Columns, stage: Mapping[str, Any], limits: Limits, number: int) -> Rule:
    """Prompts that went out a second time, the workload being shorter than the run: the commonest false cache hit."""
    repeated = stage.get("repeated")
    if repeated is None or not c.n:
        return Rule(
            "prompts_sent_before", "not checked", None, limits.cached_share, "the manifest does not say", number
        )
    hint = (
        f"{int(repeated)} prompts had been sent before in this run, and a prefix cache answers those too fast: "
        "a longer workload (`benchlab workload make`), or --cache cold"
    )
    return judged("prompts_sent_before", int(repeated) / c.n, limits.cached_share, hint, stage=number)


def _impossible(c: Columns, number: int) -> Rule:
    faults = impossible(c)
    total = sum(faults.values())
    hint = "; ".join(f"{many} x {what}" for what, many in faults.items())
    return Rule("impossible_numbers", "fail" if total else "pass", total, 0, hint, number)


def _client_faults(c: Columns, inside: Bools, limits: Limits, number: int) -> Rule:
    due = int(inside.sum())
    share = float((inside & c.text_is("error_kind", "client")).sum()) / due if due else None
    hint = "the client ran out of descriptors or ports: raise `ulimit -n`, keep connections alive, or lower the load"
    return judged("client_faults", share, 0.0, hint, fail=limits.client_fault_share, stage=number)


def _cap(c: Columns, inside: Bools, stage: Mapping[str, Any], limits: Limits, number: int) -> Rule:
    if stage.get("kind") == "closed":
        return Rule("inflight_cap", "not checked", None, limits.held_share, "a closed loop is its own cap", number)
    due = int(inside.sum())
    held = inside & (np.nan_to_num(c.number("held_ns")) > NS_PER_MS)
    share = float(held.sum()) / due if due else None
    hint = (
        "--max-inflight governed the load, not the rate: open-loop figures do not hold; raise it, or use --concurrency"
    )
    return judged("inflight_cap", share, limits.held_share, hint, fail=limits.held_share_fail, stage=number)


def _counts(c: Columns, limits: Limits, number: int) -> Rule:
    """A server that counts fewer tokens than it sent chunks of text counts something else."""
    counted = c.text_is("tokens_source", "usage") & c.is_outcome(Outcome.OK)
    if not counted.any():
        return Rule("token_counts", "not checked", None, limits.token_count_share, "the server sends no count", number)
    share = float((counted & (c.number("output_tokens") < c.visible_count)).sum()) / float(counted.sum())
    return judged(
        "token_counts",
        share,
        limits.token_count_share,
        "usage tells fewer tokens than chunks of text came",
        stage=number,
    )


def _whole_sessions(c: Columns, inside: Bools, limits: Limits, number: int) -> Rule:
    """Turns that were never sent because one before them failed: the load was lighter than the one asked for."""
    if c.table.column("session_id").null_count == c.n and not c.text_is("error_kind", "session").any():
        return Rule("whole_sessions", "not checked", None, limits.cut_turns_share, "no sessions", number)
    due = int(inside.sum())
    lost = inside & c.text_is("error_kind", "session")
    share = float(lost.sum()) / due if due else None
    hint = (
        f"{int(lost.sum())} turns were never sent, since a turn before them failed: the server had less to do than a "
        "healthy one would have had, and the stage compares with no other"
    )
    return judged("whole_sessions", share, limits.cut_turns_share, hint, stage=number)


def _same_server(manifest: Mapping[str, Any]) -> Rule:
    endpoint = manifest.get("endpoint") or {}
    before, after = endpoint.get("models_at_start"), endpoint.get("models_at_end")
    if not before or not after:
        return Rule("same_server", "not checked", None, None, "the endpoint does not list its models at both ends")
    same = sorted(map(str, before)) == sorted(map(str, after))
    names = ", ".join(sorted(map(str, after)))
    return Rule("same_server", "pass" if same else "fail", names, None, "" if same else "another model at the end")


def _telemetry(manifest: Mapping[str, Any], telemetry: pa.Table, limits: Limits) -> Rule:
    told = manifest.get("telemetry") or {}
    period = (told.get("period_ns") or 0) / NS_PER_S
    limit = max(limits.telemetry_gap_s, 4 * period)
    if telemetry.num_rows == 0:
        return Rule("telemetry_gap_s", "not checked", None, limit, "no telemetry was taken")
    spans = [
        (entry["start_ns"], entry["drain_end_ns"])
        for entry in manifest.get("stages") or []
        if entry.get("start_ns") is not None and entry.get("drain_end_ns") is not None
    ]
    widest = 0.0
    for source in pc.unique(telemetry.column("source")).to_pylist():
        mine = telemetry.filter(pc.equal(telemetry.column("source"), source))
        when = np.unique(np.asarray(mine.column("t_ns").to_numpy()))
        # Between stages nobody is measured: only what a gap takes from a stage counts.
        for begin, end in spans:
            edges = np.clip(np.concatenate([[begin], when, [end]]), begin, end)
            widest = max(widest, float(np.diff(edges).max()) / NS_PER_S)
    gaps = told.get("gaps") or []
    hint = "telemetry has holes: its figures for those stages are partial"
    rule = judged("telemetry_gap_s", widest, limit, hint, fail=limit if limits.gaps_fail else None)
    if gaps and rule.state == "pass":
        return Rule("telemetry_gap_s", "warn", widest, limit, f"{len(gaps)} gaps noted while sampling")
    return rule
