"""Seven tools' definitions, as data: which instants, which count, which span, which percentile rule.

The one idea: one entry a tool, every line of which can be held against that tool's own output (and is, in the tests,
for those that run here). It must not compute anything itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from benchlab.metrics.columns import Bools, Floats
from benchlab.metrics.dialects_read import Drawn, Sight, floor_index, inverse_cdf, linear
from benchlab.records.event import Outcome
from benchlab.units import NS_PER_MS

Draw = Callable[[Sight], Drawn]
Rule = Callable[[Floats, Floats | None, float], float]


@dataclass(frozen=True, slots=True)
class Quantity:
    """key: our name of it. word: the tool's. needs: what the records must tell. draw: None where the tool has none."""

    key: str
    word: str
    draw: Draw | None
    needs: tuple[str, ...]
    differs: str


@dataclass(frozen=True, slots=True)
class Goodput:
    """How a tool counts good requests. of: our per-request limit -> the quantity it is held against.

    missing: a limit without a value passes, fails, or sets the request apart. denominator: of the share; None: none.
    """

    word: str
    share_word: str
    missing: Literal["passes", "fails", "apart"]
    denominator: Callable[[Sight], Bools] | None
    differs: str
    of: Mapping[str, str] = field(default_factory=lambda: {"ttft": "ttft", "tpot": "tpot", "e2e": "e2e"})


@dataclass(frozen=True, slots=True)
class Dialect:
    """A tool. checked: against which version's own output. open_ended: requests that a rate leaves out."""

    name: str
    checked: str
    sentence: str
    quantities: tuple[Quantity, ...]
    quantile: Rule
    span: Callable[[Sight], float | None]
    span_differs: str
    rate_word: str
    tokens_word: str
    good: Goodput | None = None
    open_ended: int = 0
    span_needs: tuple[str, ...] = ("sent_ns.absolute",)


# -- the pieces


def _from(begin: Callable[[Sight], Floats], until: Callable[[Sight], Floats]) -> Draw:
    """until minus begin, ms, one a request."""
    return lambda s: Drawn((until(s) - begin(s)) / NS_PER_MS, each_request=True)


def _per_token(begin: Callable[[Sight], Floats], until: Callable[[Sight], Floats], less: int = 1) -> Draw:
    """(until - begin) / (n - less), ms, one a request that has so many tokens."""

    def draw(s: Sight) -> Drawn:
        divisor = s.tokens - less
        took = (until(s) - begin(s)) / NS_PER_MS
        return Drawn(np.where(divisor > 0, took / np.where(divisor > 0, divisor, 1), np.nan), each_request=True)

    return draw


def _weighted(draw: Draw, less: int) -> Draw:
    """The same, each request with its tokens (less so many) as weight."""
    return lambda s: Drawn(draw(s).values, s.tokens - less, each_request=True)


def _where_several(draw: Draw) -> Draw:
    """The same, only of requests with more than one token."""
    return lambda s: Drawn(np.where(s.event_tokens() > 1, draw(s).values, np.nan), each_request=True)


def _long_enough(draw: Draw) -> Draw:
    """The same, without requests whose output took less than a millisecond."""
    took = _from(Sight.first_text, Sight.end)
    return lambda s: Drawn(np.where(took(s).values >= 1, draw(s).values, np.nan), each_request=True)


def _attempted(s: Sight) -> Bools:
    return s.among


def _not_cancelled(s: Sight) -> Bools:
    return np.asarray(s.among & ~s.c.is_outcome(Outcome.CANCELLED, Outcome.UNFINISHED, Outcome.NOT_SENT))


_FIRST = ("sent_ns", "chunk_ns")
_TEXT = (*_FIRST, "chunk_kind")
_LAST = (*_TEXT, "chunk_ns.last")
_COUNTED = (*_LAST, "output_tokens")
_ALL = (*_LAST, "chunk_ns.between")
_CHOICES = (*_ALL, "chunk_kind.silent")
_SAME = ""
_WHOLE_RUN = (
    "divided by the whole run, from the first send to the last answer's end, drain included; ours by the window"
)

VLLM = Dialect(
    "vllm",
    "vllm bench serve 0.32.0",
    "Every event with `choices` is a token event, be it a role, an empty delta or the finish reason.",
    (
        Quantity("ttft", "TTFT", _from(Sight.sent, Sight.first_choice), (*_TEXT, "chunk_kind.silent"),
                 "to the first event with `choices`: a role-only event stops the clock before there is text"),
        Quantity("itl", "ITL", Sight.choice_gaps, _CHOICES,
                 "gaps between events with `choices`: role event to first text, and last text to finish event, too"),
        Quantity("tpot", "TPOT", _per_token(Sight.first_choice, Sight.last_choice), (*_CHOICES, "output_tokens"),
                 "from its own TTFT to the last event with `choices`, divided by n - 1"),
        Quantity("e2e", "E2EL", _from(Sight.sent, Sight.last_choice), _CHOICES,
                 "to the last event with `choices` (the finish event); ours to the last text"),
    ),
    linear,
    Sight.sent_to_end,
    _WHOLE_RUN,
    "Request throughput",
    "Output token throughput",
    Goodput("Request goodput", "—", "passes", None,
            "good answers over the whole run's time; failures are in no denominator; one token alone passes on TPOT"),
)  # fmt: skip

AIPERF = Dialect(
    "aiperf",
    "aiperf 0.13.0",
    "Text of any kind counts, reasoning too; its ITL is a mean of each request, and gaps are called ICL.",
    (
        Quantity("ttft", "Time to First Token", _from(Sight.sent, Sight.first_text), _TEXT, _SAME),
        Quantity("itl", "Inter Token Latency", _per_token(Sight.first_text, Sight.last_text), _COUNTED,
                 "one mean a request, (e2e - TTFT) / (n - 1): a stall vanishes in it; ours pools every gap"),
        Quantity("tpot", "Inter Token Latency", _per_token(Sight.first_text, Sight.last_text), _COUNTED,
                 "the same number as its ITL; divides by n - 1 even where the first chunk held several tokens"),
        Quantity("icl", "Inter Chunk Latency", Sight.text_gaps, _ALL, "what we call ITL"),
        Quantity("e2e", "Request Latency", _from(Sight.sent, Sight.last_text), _LAST, _SAME),
    ),
    linear,
    Sight.sent_to_text,
    "divided by its profiling phase, about from the first send to the last text; ours by the window",
    "Request Throughput",
    "Output Token Throughput",
    Goodput("Goodput", "Good Request Fraction", "fails", _attempted,
            "good answers over first send to last text; a limit without a value counts as missed",
            {"ttft": "ttft", "itl": "itl", "tpot": "itl", "e2e": "e2e"}),
)  # fmt: skip

GUIDELLM = Dialect(
    "guidellm",
    "guidellm 0.8.1",
    "TPOT holds the wait for the first token; percentiles are nearest ranks, of ITL and TPOT weighted by tokens.",
    (
        Quantity("ttft", "TTFT", _from(Sight.sent, Sight.first_text), _TEXT,
                 "a nearest-rank percentile; ours interpolates"),
        Quantity("itl", "ITL", _weighted(_per_token(Sight.first_text, Sight.last_text), 1), (*_LAST, "output_tokens"),
                 "one mean a request, weighted by its tokens: a stall vanishes in it; ours pools every gap"),
        Quantity("tpot", "TPOT", _weighted(_per_token(Sight.sent, Sight.last_text, 0), 0), (*_LAST, "output_tokens"),
                 "the whole time to the last text divided by n: the wait for the first token is in it"),
        Quantity("e2e", "Request latency", _from(Sight.sent, Sight.end), ("sent_ns", "end_ns"),
                 "to the end of the stream; ours to the last text"),
    ),
    inverse_cdf,
    Sight.measured,
    "divided by the measured span; requests that only overlap it are kept",
    "Requests per second",
    "Output tokens per second",
    Goodput("Goodput", "SLO attainment", "apart", _not_cancelled,
            "its `tpot` limit is held against its ITL; answers of one token are set apart, cancelled ones too",
            {"ttft": "ttft", "tpot": "itl", "e2e": "e2e"}),
)  # fmt: skip

INFERENCE_PERF = Dialect(
    "inference-perf",
    "inference-perf 0.7.0",
    "All tokens of a chunk came at its time, with gaps of zero between them; it counts with its own tokenizer.",
    (
        Quantity("ttft", "time_to_first_token", _where_several(_from(Sight.sent, Sight.first_answer)),
                 (*_TEXT, "chunk_kind.answer"), "only of answers with more than one token; reasoning does not count"),
        Quantity("itl", "inter_token_latency", Sight.token_gaps, (*_ALL, "chunk_kind.answer", "output_tokens"),
                 "gaps between tokens: zero inside a chunk, so its percentiles fall where chunks hold several"),
        Quantity("tpot", "time_per_output_token",
                 _where_several(_per_token(Sight.first_answer, Sight.last_answer)),
                 (*_LAST, "chunk_kind.answer", "output_tokens"),
                 "divides by n - 1 even where the first chunk held several tokens"),
        Quantity("ntpot", "normalized_time_per_output_token", _per_token(Sight.sent, Sight.end, 0),
                 ("sent_ns", "end_ns", "output_tokens"), "end to end divided by n: no number of ours"),
        Quantity("e2e", "request_latency", _from(Sight.sent, Sight.end), ("sent_ns", "end_ns"),
                 "to the end of the stream, `[DONE]` included; ours to the last text"),
    ),
    linear,
    Sight.sent_to_end,
    "divided by the time from the first send to the last answer's end; ours by the window",
    "requests_per_sec",
    "output_tokens_per_sec",
    Goodput("request_goodput", "goodput_percentage", "fails", lambda s: s.ok,
            "the share is of answers that succeeded: failures are in no denominator"),
)  # fmt: skip

GENAI_BENCH = Dialect(
    "genai-bench",
    "genai-bench 0.0.5",
    "Two instants a request, first text and end of stream: no gaps, and the end includes usage and `[DONE]`.",
    (
        Quantity("ttft", "ttft", _from(Sight.sent, Sight.first_text), _TEXT, _SAME),
        Quantity("itl", "—", None, (), "has none: it keeps no time between the first text and the end"),
        Quantity("tpot", "tpot", _long_enough(_per_token(Sight.first_text, Sight.end)),
                 (*_TEXT, "end_ns", "output_tokens"),
                 "to the end of the stream: the wait for usage and `[DONE]` is spread over the tokens"),
        Quantity("e2e", "e2e_latency", _from(Sight.sent, Sight.end), ("sent_ns", "end_ns"),
                 "to the end of the stream; ours to the last text"),
    ),
    linear,
    Sight.sent_to_end,
    _WHOLE_RUN,
    "requests_per_second",
    "mean_output_throughput_tokens_per_s",
)  # fmt: skip

SGLANG = Dialect(
    "sglang",
    "sglang.benchmark.serving 0.5.23",
    "Gaps between chunks with text; the end is `[DONE]`, so TPOT holds the wait for usage and `[DONE]`.",
    (
        Quantity("ttft", "TTFT", _from(Sight.sent, Sight.first_text), _TEXT, _SAME),
        Quantity("itl", "ITL", Sight.text_gaps, _ALL,
                 "the same pooled gaps; with its own backend it divides a gap by the tokens of its chunk"),
        Quantity("tpot", "TPOT", _per_token(Sight.first_text, Sight.end), (*_TEXT, "end_ns", "output_tokens"),
                 "to `[DONE]`, divided by n - 1"),
        Quantity("e2e", "E2E Latency", _from(Sight.sent, Sight.end), ("sent_ns", "end_ns"),
                 "to `[DONE]`; ours to the last text"),
    ),
    linear,
    Sight.sent_to_end,
    _WHOLE_RUN,
    "Request throughput",
    "Output token throughput",
    Goodput("Request goodput", "SLO attainment", "passes", _attempted,
            "good answers over the whole run's time; an answer of one token passes on TPOT"),
)  # fmt: skip

MLPERF = Dialect(
    "mlperf",
    "loadgen's results.cc; not run here",
    "Every latency counts from the scheduled time; a percentile is one order statistic; failures do not exist.",
    (
        Quantity("ttft", "First token latency", _from(Sight.due, Sight.first_text), ("intended_ns", *_TEXT),
                 "from the scheduled time: it is our `response_ttft`"),
        Quantity("itl", "—", None, (), "has none"),
        Quantity("tpot", "Time per output token", _per_token(Sight.first_text, Sight.end),
                 (*_TEXT, "end_ns", "output_tokens"), "to the answer's end, divided by n - 1"),
        Quantity("e2e", "Latency", _from(Sight.due, Sight.end), ("intended_ns", "end_ns"),
                 "from the scheduled time to the answer's end"),
    ),
    floor_index,
    Sight.due_to_end,
    "one request less, over the time from the first scheduled to the last answer's end",
    "Completed samples per second",
    "Completed tokens per second",
    open_ended=1,
    span_needs=("sent_ns.absolute", "intended_ns"),
)  # fmt: skip

DIALECTS: tuple[Dialect, ...] = (VLLM, AIPERF, GUIDELLM, INFERENCE_PERF, GENAI_BENCH, SGLANG, MLPERF)
"""In the order of the tables."""
