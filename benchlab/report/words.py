"""The words of the report in one table: names of metrics, outcomes, conditions and states, and the glossary.

Only constants: a translation, or a clearer word, is a change of this file. It must not know where a number comes from.
"""

from __future__ import annotations

METRIC_NAMES = {
    "ttft": "TTFT",
    "response_ttft": "Response TTFT",
    "itl": "Gap between chunks",
    "tpot": "TPOT",
    "e2e": "End to end",
    "response_e2e": "Response end to end",
    "ttfa": "Time to first answer",
    "stall": "Worst gap",
    "dispatch_lag": "Dispatch lag",
    "stream_speed": "Stream speed",
    "held": "Held by the cap",
    "connect": "Connecting",
    "headers": "Response headers",
    "stream_end": "End of message",
    "output_tokens": "Output tokens",
    "prompt_tokens": "Prompt tokens",
    "cached_tokens": "Cached tokens",
    "tokens_per_chunk": "Tokens per chunk",
    "queue": "Server queue",
    "prefill": "Prefill",
    "decode": "Decode",
    "transport": "Transport",
    "cleanup": "Engine clean-up",
    "preemptions": "Preemptions",
    "stalls_100ms": "Gaps over 100 ms",
    "stalls_500ms": "Gaps over 500 ms",
    "stalls_1s": "Gaps over 1 s",
    "session_time": "Whole session",
    "session_wait": "Waiting of a session",
    "session_turns": "Turns of a session",
}
"""In the order of the tables; a metric that is not named here follows under its own name."""

METRIC_LONG = {
    "ttft": "TTFT: time to first text, from send",
    "tpot": "TPOT: time per output token after the first",
    "e2e": "End to end: from send to last text",
    "itl": "Gap between chunks, pooled over all requests",
}

OUTCOMES = {
    "good": "ok, every limit met",
    "ok": "ok",
    "cancelled": "cancelled on purpose",
    "unfinished": "unfinished at end of drain",
    "incomplete": "incomplete stream",
    "error_stream": "error inside a stream",
    "timeout": "timed out",
    "limited": "refused: quota (429)",
    "shed": "refused: capacity (503, 529)",
    "error_http": "HTTP error",
    "error_connect": "no connection",
    "error_protocol": "not parsable",
    "not_sent": "not sent by the client",
}
"""In the order in which they are stacked."""

CONDITIONS = {
    "stable": ("●", "stable", "the server kept up with what was offered"),
    "overloaded": ("▲", "overloaded", "the queue or the latency kept growing, or completions fell behind arrivals"),
    "errored": ("✕", "errored", "failures or refusals above the limit"),
    "incomplete": ("◌", "incomplete", "records or time are missing"),
    "short": ("○", "short", "too few samples for what would be claimed"),
}

STATES = {
    "fail": ("✕", "fail"),
    "warn": ("▲", "warn"),
    "not checked": ("–", "not checked"),
    "pass": ("✓", "pass"),
}
"""Rule states, worst first, each with its glyph; the word is always shown beside it."""

VERDICTS = {
    "VALID": ("✓", "VALID", "The measurement can be believed: every rule that was checked holds."),
    "WARN": (
        "▲",
        "VALID WITH WARNINGS",
        "The measurement can be believed with the reservations listed under Validity.",
    ),
    "INVALID": ("✕", "INVALID", "The numbers of this run must not be used for a claim; Validity says why."),
}

GLOSSARY: tuple[tuple[str, str, str], ...] = (
    (
        "TTFT",
        "First visible text − first byte of the request handed to the socket. A role-only chunk, an empty delta or a "
        "keep-alive comment is not text. Response TTFT starts at the intended time instead.",
        "Several tools stop at the first event of any kind, which can be an empty role chunk; some start the clock "
        "when the request leaves a client-side queue, so waiting in that queue disappears.",
    ),
    (
        "TPOT",
        "(last text − first text) / (output tokens − tokens of the first chunk), one value a request. Requests with "
        "one token have none and are counted as left out.",
        "Often called ITL elsewhere. Some tools divide by all output tokens, or include the first token.",
    ),
    (
        "Gap between chunks (ITL)",
        "Time between successive visible chunks, pooled over every gap of every request. A chunk may carry several "
        "tokens, so this is not time per token unless each chunk carries one.",
        "Many tools label the same quantity inter-token latency whatever the chunks hold; others average per request "
        "first, which hides stalls.",
    ),
    (
        "End to end",
        "Last visible text − first byte sent. Response end to end starts at the intended time.",
        "Some tools end at the closing of the connection.",
    ),
    (
        "Worst gap (stall)",
        "The longest gap between chunks within one request: what a reader feels as a freeze.",
        "Seldom reported.",
    ),
    (
        "Dispatch lag",
        "When the client began to act on a request − when the schedule wanted it. It is the client's own lateness.",
        "Not recorded by tools that derive the next send from the last completion.",
    ),
    (
        "Offered, achieved, completed rate",
        "Intended arrivals, requests sent, and answers finished inside the window, each divided by the window. They "
        "are never substituted for one another.",
        "Tables elsewhere often print the requested rate as if it had been achieved.",
    ),
    (
        "Attempted",
        "Every request that the schedule intended inside the measured window. All shares have this denominator.",
        "Latency and goodput elsewhere are often computed over successes alone, so that a server that refuses work "
        "looks faster.",
    ),
    (
        "Goodput and attainment",
        "A good request is ok and meets every limit given with --slo. Goodput is good requests per second; attainment "
        "is good / attempted.",
        "Some tools divide by successful requests.",
    ),
    (
        "Output tokens/s",
        "Tokens that arrived inside the window / window. Input and total rates are kept apart.",
        "Total (input + output) rates are sometimes printed under the same name.",
    ),
    (
        "Interval and indicative",
        "95 % interval from order statistics, free of any assumed distribution. Where the sample is too small for the "
        "interval to be bounded, the figure is marked indicative (~): it is shown, and proves nothing.",
        "Most tools print a p99 from any number of requests.",
    ),
    (
        "Verdict and condition",
        "The verdict says whether the measurement can be believed. A stage's condition says how the server did: a "
        "sweep is meant to reach overload, and an overloaded stage does not make the measurement invalid.",
        "Usually not told apart.",
    ),
)
"""Term, our definition, how other tools differ."""
