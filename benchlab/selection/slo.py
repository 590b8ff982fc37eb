"""What the user asks for, parsed: `--slo ttft=500ms`, `--objective 'ttft.p99<=400ms'`, `--assert`, `--max-regression`.

Times need a unit, because the same key means ms in one tool and s in another. An unknown name is an error that lists
the known ones: a mistyped limit that is silently ignored passes everything.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from benchlab.errors import UsageError
from benchlab.metrics.goodput import SloClause
from benchlab.metrics.table import BY_NAME, Metric
from benchlab.units import NS_PER_MS, parse_duration_ns, parse_rate, parse_share

Operator = Literal["<=", "<", ">=", ">"]

ALIASES = {
    "time_to_first_token": "ttft",
    "time_to_first_output_token": "ttfa",
    "ttfot": "ttfa",
    "inter_token_latency": "itl",
    "inter_chunk_latency": "itl",
    "time_per_output_token": "tpot",
    "normalized_time_per_output_token": "tpot",
    "request_latency": "e2e",
    "e2el": "e2e",
    "e2e_latency": "e2e",
    "end_to_end_latency": "e2e",
    "schedule_lag": "dispatch_lag",
    "schedule_delay": "dispatch_lag",
    "output_token_throughput": "output_tps",
    "output_throughput": "output_tps",
    "total_token_throughput": "total_tps",
    "request_throughput": "completed_rps",
    "goodput": "good_rps",
    "request_goodput": "good_rps",
    "output_token_throughput_per_user": "stream_speed",
    "output_sequence_length": "output_tokens",
    "input_sequence_length": "prompt_tokens",
    "error_rate": "failed_share",
}
"""Peers' names for our metrics."""

PER_REQUEST_ALIASES = {"inter_token_latency": "tpot", "itl": ""}
"""Where a limit on each request is meant: the peers' inter-token latency of one request is a mean, our tpot."""

_CLAUSE = re.compile(r"^\s*([A-Za-z0-9_]+)(?:\.([A-Za-z0-9_.]+))?\s*(<=|>=|<|>)\s*(\S.*?)\s*$")
_PAIR = re.compile(r"^\s*([A-Za-z0-9_]+)(?:\.([A-Za-z0-9_.]+))?\s*(?:=|:|<=)\s*(\S.*?)\s*$")
_PERCENTILE = re.compile(r"^p(\d{1,2}(?:\.\d+)?)$")
_PLAIN = ("mean", "min", "max")


@dataclass(frozen=True, slots=True)
class Clause:
    """A limit on a figure of a run: metric and statistic (None for rates and shares), operator, limit, the user's text.

    limit: in the metric's own unit (ms, 1/s, tokens/s, share).
    """

    metric: str
    statistic: str | None
    operator: Operator
    limit: float
    text: str

    @property
    def key(self) -> str:
        """'ttft.p99' or 'completed_rps'."""
        return self.metric if self.statistic is None else f"{self.metric}.{self.statistic}"

    def holds(self, value: float) -> bool:
        """Whether a value keeps the limit."""
        return {
            "<=": value <= self.limit,
            "<": value < self.limit,
            ">=": value >= self.limit,
            ">": value > self.limit,
        }[self.operator]

    @property
    def upper(self) -> bool:
        """True for a limit from above."""
        return self.operator in ("<=", "<")


@dataclass(frozen=True, slots=True)
class Regression:
    """How much worse a figure may be than the baseline's: a share (0.05 for 5%), worse as the metric's row tells."""

    metric: str
    statistic: str | None
    share: float
    text: str

    @property
    def key(self) -> str:
        return self.metric if self.statistic is None else f"{self.metric}.{self.statistic}"


def _metric(name: str, flag: str, aliases: dict[str, str] | None = None) -> Metric:
    wanted = (aliases or {}).get(name.lower()) or ALIASES.get(name.lower(), name.lower())
    if wanted not in BY_NAME:
        near = difflib.get_close_matches(name.lower(), [*BY_NAME, *ALIASES], n=1, cutoff=0.5)
        did = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"'{name}' is no metric", where=flag, hint=f"{did}known: {', '.join(BY_NAME)}")
    return BY_NAME[wanted]


def _statistic(metric: Metric, name: str | None, flag: str) -> str | None:
    if metric.scope == "run":
        if name is not None:
            raise UsageError(
                f"'{metric.name}' is one number, it has no {name}", where=flag, hint=f"write {metric.name}"
            )
        return None
    known = "p50, p90, p95, p99 (any percentile from p1 to p99.9), mean, min, max"
    if name is None:
        raise UsageError(
            f"'{metric.name}' is a distribution: which figure of it?",
            where=flag,
            hint=f"write {metric.name}.p95; known: {known}",
        )
    word = "p50" if name.lower() == "median" else {"avg": "mean", "average": "mean"}.get(name.lower(), name.lower())
    found = _PERCENTILE.match(word)
    if word not in _PLAIN and (found is None or not 0 < float(found.group(1)) < 100):
        near = difflib.get_close_matches(word, ["p50", "p90", "p95", "p99", *_PLAIN], n=1, cutoff=0.3)
        did = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"'{name}' is no statistic", where=flag, hint=f"{did}known: {known}")
    return f"p{float(found.group(1)):g}" if found is not None else word


def _limit(metric: Metric, text: str, flag: str) -> float:
    if metric.unit == "ms":
        return parse_duration_ns(text, flag=flag, allow_zero=True) / NS_PER_MS
    if metric.unit == "share":
        return parse_share(text, flag=flag)
    plain = re.sub(r"\s*(tok/s|tokens/s|req/s|requests/s|rps|tps)$", "/s", text)
    if metric.unit in ("1/s", "tokens/s"):
        return 0.0 if re.fullmatch(r"0+(\.0*)?(/s)?", plain) else parse_rate(plain, flag=flag)
    try:
        return float(re.sub(r"\s*(tokens|tok|requests)$", "", text))
    except ValueError:
        raise UsageError(f"'{text}' is not a number of {metric.unit}", where=flag) from None


def parse_slo(text: str, *, flag: str = "--slo") -> SloClause:
    """'ttft=500ms' -> a limit on each request. Several may stand in one text, apart by spaces: use `parse_slos`."""
    found = _PAIR.match(text)
    if found is None:
        raise UsageError(f"'{text}' is not a limit on a request", where=flag, hint="write ttft=500ms")
    name, statistic, value = found.groups()
    metric = _metric(name, flag, {k: v for k, v in PER_REQUEST_ALIASES.items() if v})
    if statistic is not None:
        raise UsageError(
            f"'{text}' speaks of a distribution, a limit on each request has no statistic",
            where=flag,
            hint=f"write --objective '{metric.name}.{statistic}<={value}'",
        )
    if metric.scope != "request":
        other = (
            "limit each request with tpot=… (its mean gap) or stall=… (its worst)"
            if metric.name == "itl"
            else "use --objective"
        )
        raise UsageError(f"'{metric.name}' is not a number of one request", where=flag, hint=other)
    if metric.better == "neither":
        raise UsageError(f"'{metric.name}' is neither good nor bad", where=flag, hint="limit ttft, tpot, e2e or stall")
    return SloClause(metric.name, _limit(metric, value, flag), f"{metric.name}={value}")


def parse_slos(texts: Iterable[str], *, flag: str = "--slo") -> tuple[SloClause, ...]:
    """Every `--slo`; one argument may hold several, apart by spaces or commas, as peers write them."""
    return tuple(parse_slo(part, flag=flag) for text in texts for part in re.split(r"[\s,]+(?=[A-Za-z])", text.strip()))


def parse_clause(text: str, *, flag: str) -> Clause:
    """'ttft.p99<=400ms' or 'completed_rps>=10' -> a limit on a figure of a run."""
    found = _CLAUSE.match(text)
    if found is None:
        raise UsageError(
            f"'{text}' is not a condition", where=flag, hint="write 'ttft.p99<=400ms' or 'completed_rps>=10'"
        )
    name, statistic, operator, value = found.groups()
    metric = _metric(name, flag)
    return Clause(metric.name, _statistic(metric, statistic, flag), operator, _limit(metric, value, flag), text.strip())  # type: ignore[arg-type]


def parse_objective(text: str) -> Clause:
    """A clause of `--objective`: qualifies a stage and drives selection."""
    return parse_clause(text, flag="--objective")


def parse_assertion(text: str) -> Clause:
    """A clause of `--assert`: sets the exit code and changes no number."""
    return parse_clause(text, flag="--assert")


def parse_regression(text: str, *, flag: str = "--max-regression") -> Regression:
    """'tpot.p95=5%' -> the figure may be at most 5% worse than the baseline's."""
    found = _PAIR.match(text)
    if found is None:
        raise UsageError(f"'{text}' is not a regression limit", where=flag, hint="write tpot.p95=5%")
    name, statistic, value = found.groups()
    metric = _metric(name, flag)
    if metric.better == "neither":
        raise UsageError(f"'{metric.name}' has no better or worse", where=flag, hint="use --assert")
    if "%" not in value:
        raise UsageError(f"'{value}' has no unit", where=flag, hint=f"write {value}%")
    return Regression(metric.name, _statistic(metric, statistic, flag), parse_share(value, flag=flag), text.strip())


def percentiles_with(percentiles: Iterable[float], clauses: Iterable[Clause | Regression]) -> tuple[float, ...]:
    """The percentiles to compute: those asked for and those that a clause needs, rising."""
    needed = {float(clause.statistic[1:]) for clause in clauses if clause.statistic and clause.statistic[0] == "p"}
    return tuple(sorted({*map(float, percentiles), *needed}))
