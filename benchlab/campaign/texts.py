"""The prompts of a run, made before anything is sent: to the token where a tokenizer is named.

The one idea: counting belongs before the load, whoever counts: a tokenizer's file or the endpoint's own /tokenize. It
must not know when an item is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchlab.campaign.spec import RunSpec
from benchlab.clients.endpoint import Endpoint
from benchlab.errors import TargetError
from benchlab.workload.read import Workload
from benchlab.workload.text import Made, make_texts
from benchlab.workload.tokens import Counter, counter_named, from_endpoint

_ASK_S = 30.0
_HINT = "give the model's tokenizer.json or GGUF file with --tokenizer"


def run_texts(workload: Workload, spec: RunSpec, endpoint: Endpoint, model: str, salt: str | None) -> Made:
    """The workload's items with their texts. Raises UsageError for a tokenizer or a length that is none, TargetError
    for an endpoint that does not count."""
    key = f"{workload.sha256}:{spec.seed}"
    if spec.tokenizer is None:
        return make_texts(workload.items, key=key, salt=salt)
    if spec.tokenizer != "endpoint":
        return _counted(workload, spec, counter_named(spec.tokenizer), key, salt)
    import httpx

    with httpx.Client(trust_env=False, timeout=_ASK_S) as client:
        ask = _asking(client, endpoint.base + "/tokenize", spec.headers, model)
        return _counted(workload, spec, from_endpoint(ask, f"{endpoint.base}/tokenize"), key, salt)


def _counted(workload: Workload, spec: RunSpec, counter: Counter, key: str, salt: str | None) -> Made:
    whole = counter.as_sent(spec.api) if counter.exact else None
    return make_texts(workload.items, key=key, salt=salt, count=counter, whole=whole)


def _asking(client: Any, url: str, headers: dict[str, str], model: str) -> Callable[[dict[str, Any]], Any]:
    import httpx

    def ask(body: dict[str, Any]) -> Any:
        try:
            answer = client.post(url, headers=headers, json={"model": model, **body})
            if answer.status_code != httpx.codes.OK:
                raise TargetError(f"HTTP {answer.status_code}: does not count tokens", where=url, hint=_HINT)
            return answer.json()
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise TargetError(
                f"does not count tokens: {error or type(error).__name__}", where=url, hint=_HINT
            ) from error

    return ask
