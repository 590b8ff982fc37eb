"""The loads that every client is put under, and how many requests each client gets of one.

The one idea: a case is what the server does and what the client is asked for; a client that is slower gets fewer
requests, so that each run lasts some seconds whatever it is. It must not know how a client is told.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PROMPT_TOKENS = 32
LONG_PROMPT_TOKENS = 50_000


@dataclass(frozen=True)
class Case:
    """One load.

    kind: closed (level = requests in flight) or constant, poisson (level = requests a second). tokens: output tokens
    of a request. server: flags of the paced server. requests: of a run; slower: clients that get fewer. single: one
    stream at a time, the shapes of streams. wave: all requests are in flight at once, and what counts is the time when
    they all stream.
    """

    name: str
    what: str
    kind: str
    level: int
    tokens: int
    server: tuple[str, ...]
    requests: int
    slower: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int = PROMPT_TOKENS
    tools: tuple[str, ...] = ()
    single: bool = False
    wave: bool = False

    def requests_of(self, tool: str) -> int:
        return self.slower.get(tool, self.requests)


def program(tool: str) -> str:
    """The client behind a name: benchlab has several, for its ways to run."""
    return "benchlab" if tool.startswith("benchlab-") else tool


PEERS = ("vllm", "inference-perf", "aiperf", "genai-bench", "guidellm")
OURS = ("floor", "benchlab")
_OPEN = ("--ttft-ms", "50", "--itl-ms", "5")
_SPREAD = ("--ttft-ms", "1500", "--itl-ms", "10")
_STREAM = ("--ttft-ms", "100", "--itl-ms", "10")


def _open(kind: str, rate: int, seconds: int, tools: tuple[str, ...], slower: dict[str, int] | None = None) -> Case:
    name = f"{kind}-{rate}"
    return Case(
        name, f"{kind} arrivals, {rate}/s, 8 tokens", kind, rate, 8, _OPEN, rate * seconds, slower or {}, tools=tools
    )


def _stream(name: str, what: str, *flags: str) -> Case:
    return Case(name, what, "closed", 1, 50, (*_STREAM, *flags), 6, single=True, tools=("benchlab", *PEERS))


CASES: tuple[Case, ...] = (
    Case(
        "closed-64", "closed loop, 64 in flight, 16 tokens, no pauses", "closed", 64, 16, (), 30_000,
        {"benchlab": 20_000, "benchlab-2": 20_000, "vllm": 4_000, "inference-perf": 1_500, "aiperf": 500,
         "genai-bench": 350, "guidellm": 350},
        tools=(*OURS, "benchlab-2", *PEERS),
    ),
    Case(
        "paced-256", "256 streams of 128 tokens, one each 20 ms: 12,800 events/s due", "closed", 256, 128,
        ("--ttft-ms", "0", "--itl-ms", "20"), 768, tools=(*OURS, *PEERS),
    ),
    _open("constant", 200, 6, (*OURS, "benchlab-precise", *PEERS)),
    _open("constant", 800, 4, (*OURS, "benchlab-precise", *PEERS), {"aiperf": 1500, "guidellm": 800}),
    _open("poisson", 50, 8, OURS),
    _open("poisson", 200, 8, (*OURS, *PEERS), {"aiperf": 1500, "guidellm": 1000}),
    _open("poisson", 800, 5, OURS),
    Case(
        "paced-32", "32 streams of 128 tokens, one each 20 ms: 1,600 events/s due", "closed", 32, 128,
        ("--ttft-ms", "0", "--itl-ms", "20"), 64, tools=(*OURS, "vllm", "inference-perf", "aiperf"),
    ),
    Case(
        "paced-512", "512 streams of 128 tokens, one each 20 ms: 25,600 events/s due", "closed", 512, 128,
        ("--ttft-ms", "0", "--itl-ms", "20"), 1024, tools=(*OURS, "vllm"),
    ),
    Case(
        "prompts-short", "64 in flight out of step, 300 tokens, one each 10 ms, 32 tokens of prompt", "constant", 64,
        300, _SPREAD, 64, tools=("benchlab",), wave=True,
    ),
    Case(
        "prompts-long", "64 in flight out of step, 300 tokens, one each 10 ms, 50,000 tokens of prompt", "constant", 64,
        300, _SPREAD, 64, prompt_tokens=LONG_PROMPT_TOKENS, tools=("benchlab",), wave=True,
    ),
    Case("memory-few", "closed loop, 64 in flight, 128 tokens: few", "closed", 64, 128, (), 1_000, tools=("benchlab",)),
    Case("memory-many", "the same: many", "closed", 64, 128, (), 8_000, tools=("benchlab",)),
    _stream("stream", "a plain stream"),
    _stream("role-early", "a chunk with the role alone at once, before the first token", "--role", "early"),
    _stream("tail", "200 ms between the last token and usage", "--tail-ms", "200"),
    _stream("finish-apart", "an empty finish chunk 50 ms after the last", "--finish", "separate", "--tail-ms", "50"),
    _stream("four-a-chunk", "four tokens a chunk", "--tpc", "4"),
)  # fmt: skip
BY_NAME = {case.name: case for case in CASES}
