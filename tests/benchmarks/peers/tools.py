"""How each client is told to put a load on: its command line, and the environment that it wants.

The one idea: the same load in each client's own words, its defaults kept wherever the load does not speak of them. It
must not know what comes of it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.benchmarks.peers.cases import Case

HERE = Path(__file__).parent
_MANY = 1000
ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def environment(tool: str) -> dict[str, str]:
    """aiperf cannot read a tokenizer from a folder when it is told to stay offline."""
    return {key: value for key, value in ENVIRONMENT.items() if tool != "aiperf" or key not in _OFFLINE}


def cores(tool: str, last: int) -> list[int]:
    """The cores that the client may use: the one that the server does not have; both for two workers."""
    return [0, last] if tool == "benchlab-2" else [last]


def command(tool: str, case: Case, *, seed: int, peers: Path, out: Path, url: str) -> list[str] | None:
    """The client's command line; results go into the folder `out`. seed: of arrivals, for the two that are compared
    with each other. None where the client has no such load."""
    requests = str(case.requests_of(tool))
    if tool.startswith("benchlab"):
        return [*_benchlab(tool, case, requests, out, url), "--arrival-seed", str(seed)]
    if tool == "floor":
        return [*_floor(case, requests, peers, out, url), "--seed", str(seed)]
    return {
        "vllm": _vllm,
        "aiperf": _aiperf,
        "inference-perf": _inference_perf,
        "genai-bench": _genai_bench,
        "guidellm": _guidellm,
    }[tool](case, requests, peers, out, url)


def _benchlab(tool: str, case: Case, requests: str, out: Path, url: str) -> list[str]:
    load = ["-c", str(case.level)] if case.kind == "closed" else ["-r", str(case.level), "--arrival", case.kind]
    more = {"benchlab-2": ["--workers", "2"], "benchlab-precise": ["--pacing", "precise"]}.get(tool, [])
    return [
        sys.executable, "-m", "benchlab.cli.app", "run", "-u", url, "--isl", str(case.prompt_tokens),
        "--osl", str(case.tokens), *load, *more, "-n", requests, "--warmup", "none", "--format", "json",
        "-o", str(out / "run"),
    ]  # fmt: skip


def _floor(case: Case, requests: str, peers: Path, out: Path, url: str) -> list[str]:
    return [
        str(peers / "floor/bin/python"), str(HERE / "floor.py"), "--url", url, "--mode", case.kind,
        "--level", str(case.level), "--requests", requests, "--tokens", str(case.tokens),
        "--prompt-tokens", str(case.prompt_tokens), "--out", str(out / "rows.json"),
    ]  # fmt: skip


def _vllm(case: Case, requests: str, peers: Path, out: Path, url: str) -> list[str]:
    closed = ["--request-rate", "inf", "--max-concurrency", str(case.level)]
    open_ = ["--request-rate", str(case.level), *(["--burstiness", "inf"] if case.kind == "constant" else [])]
    return [
        str(peers / "vllm/bin/python"), str(HERE / "vllm_client.py"), str(peers / "vllm/client"),
        "--backend", "openai-chat", "--base-url", url, "--endpoint", "/v1/chat/completions", "--model", "paced",
        "--tokenizer", str(peers / "tokenizer"), "--dataset-name", "random",
        "--random-input-len", str(case.prompt_tokens), "--random-output-len", str(case.tokens),
        "--num-prompts", requests, "--ignore-eos", "--save-result", "--save-detailed", "--result-dir", str(out),
        "--result-filename", "out.json", "--percentile-metrics", "ttft,tpot,itl,e2el",
        "--metric-percentiles", "50,99", "--ready-check-timeout-sec", "0", "--disable-tqdm", "--num-warmups", "0",
        *(closed if case.kind == "closed" else open_),
    ]  # fmt: skip


def _aiperf(case: Case, requests: str, peers: Path, out: Path, url: str) -> list[str]:
    open_ = ["--request-rate", str(case.level), "--arrival-pattern", case.kind]
    return [
        str(peers / "aiperf/bin/aiperf"), "profile", "--model", "paced", "--url", url, "--endpoint-type", "chat",
        "--streaming", "--tokenizer", str(peers / "tokenizer"), "--isl", str(case.prompt_tokens),
        "--osl", str(case.tokens), "--extra-inputs", "ignore_eos:true", "--request-count", requests,
        "--num-dataset-entries", "200", "--ui", "none", "--output-artifact-dir", str(out),
        "--no-server-metrics", "--no-gpu-telemetry",
        *(["--concurrency", str(case.level)] if case.kind == "closed" else open_),
    ]  # fmt: skip


def _inference_perf(case: Case, requests: str, peers: Path, out: Path, url: str) -> list[str]:
    stage = {"num_requests": int(requests), "concurrency_level": case.level}
    kind = "concurrent"
    if case.kind != "closed":
        kind, stage = case.kind, {"rate": case.level, "duration": int(requests) // case.level}
    load: dict[str, object] = {"type": kind, "stages": [stage]}
    if case.kind != "closed" or case.level > 100:
        load["worker_max_concurrency"] = _MANY
    prompts = {
        "num_groups": 8, "num_prompts_per_group": 32, "system_prompt_len": 4,
        "question_len": case.prompt_tokens - 4, "output_len": case.tokens,
    }  # fmt: skip
    rows = {"request": False, "response": False, "response_chunks": False}
    settings = {
        "load": load,
        "api": {"type": "chat", "streaming": True},
        "server": {"type": "vllm", "model_name": "paced", "base_url": url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(peers / "tokenizer")},
        "data": {"type": "shared_prefix", "shared_prefix": prompts},
        "report": {
            "request_lifecycle": {"summary": True, "per_stage": True, "per_request": True, "per_request_fields": rows}
        },
        "storage": {"local_storage": {"path": str(out / "report")}},
    }
    (out / "config.yml").write_text(json.dumps(settings, indent=1))
    return [str(peers / "inference-perf/bin/inference-perf"), "-c", str(out / "config.yml")]


def _genai_bench(case: Case, requests: str, peers: Path, out: Path, url: str) -> list[str] | None:
    if case.kind != "closed":
        return None
    return [
        str(peers / "genai-bench/bin/genai-bench"), "benchmark", "--api-backend", "openai", "--api-base", url,
        "--api-key", "x", "--api-model-name", "paced", "--model-tokenizer", str(peers / "tokenizer"),
        "--task", "text-to-text", "--traffic-scenario", f"D({case.prompt_tokens},{case.tokens})",
        "--num-concurrency", str(case.level), "--max-requests-per-run", requests, "--max-time-per-run", "1",
        "--experiment-base-dir", str(out), "--experiment-folder-name", "exp", "--metrics-time-unit", "ms",
        "--log-dir", str(out),
    ]  # fmt: skip


def _guidellm(case: Case, requests: str, peers: Path, out: Path, url: str) -> list[str]:
    closed = case.kind == "closed"
    profile = f"kind=concurrent,streams={case.level}" if closed else f"kind={case.kind},rate={case.level}"
    return [
        str(peers / "guidellm/bin/guidellm"), "run",
        "--backend", f"kind=openai_http,target={url},model=paced,request_format=/v1/chat/completions",
        "--profile", profile, "--constraint", f"kind=max_requests,count={requests}",
        "--data", f"kind=synthetic_text,prompt_tokens={case.prompt_tokens},output_tokens={case.tokens}",
        "--tokenizer", f"kind=huggingface_auto,model={peers / 'tokenizer'}",
        "--output", f"kind=json,path={out}/out.json", "--disable-console-interactive",
    ]  # fmt: skip
