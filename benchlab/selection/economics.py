"""What a stage costs: dollars and joules, for requests, tokens, good answers and successful tasks.

The one idea: everything is price or energy over what was really done in the measured window, and each figure says what
it divides by. A price that was not given gives no cost, never 0; a share of successes that was not judged gives no cost
of a success. Input and output tokens get prices of their own only where the accelerator's time for each is known; else
one blended price a token is stated as such. It must not know where prices come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchlab.errors import UsageError
from benchlab.selection.figure import number

_HOUR_S = 3600.0
_MILLION = 1e6
_LEAST = 1e-9
"""Once in thirty years."""


def per_million_tokens(price_per_hour: float, tokens_per_s: float) -> float:
    """Dollars for a million tokens at C dollars an hour and R tokens a second: C / (3600 R) x 1e6."""
    return price_per_hour / (_HOUR_S * tokens_per_s) * _MILLION


def per_request(price_per_hour: float, requests_per_s: float, utilisation: float = 1.0) -> float:
    """Dollars for a request when the device is paid by the hour and busy for that share of it (0..1]."""
    return price_per_hour / (_HOUR_S * requests_per_s * utilisation)


def per_success(price_per_hour: float, tasks_per_hour: float, passed: float) -> float:
    """Dollars for a task that succeeded: C / (Q p). passed: the share that did, above 0."""
    return price_per_hour / (tasks_per_hour * passed)


def successes_per_dollar(price_per_hour: float, tasks_per_hour: float, passed: float) -> float:
    """Q p / C."""
    return tasks_per_hour * passed / price_per_hour


def replicas(arrivals_per_s: float, work_s: float, sustainable: float, target_utilisation: float) -> int:
    """How many replicas carry a load: ceil(arrivals x work of a request / (work a replica sustains x target)).

    work_s: seconds of accelerator a request; sustainable: seconds of such work a replica does in a second (1 for one
    device without batching). Raises UsageError where the target leaves nothing.
    """
    if not 0 < target_utilisation <= 1 or sustainable <= 0:
        raise UsageError(
            f"a target utilisation of {target_utilisation:g} of {sustainable:g} is no capacity",
            where="replicas",
            hint="give a share above 0 and at most 1",
        )
    wanted = arrivals_per_s * work_s / (sustainable * target_utilisation)
    return math.ceil(wanted - 1e-9)


@dataclass(frozen=True, slots=True)
class Split:
    """Accelerator seconds of a request by phase, where they are known, and its tokens.

    input_tokens: those whose prompt work was done (not those from the cache).
    """

    prefill_s: float
    decode_s: float
    input_tokens: float
    output_tokens: float

    @property
    def input_s(self) -> float:
        """Accelerator seconds an input token."""
        return self.prefill_s / self.input_tokens

    @property
    def output_s(self) -> float:
        """Accelerator seconds an output token."""
        return self.decode_s / self.output_tokens

    @property
    def input_time_share(self) -> float:
        """The prompt's share of the time."""
        return self.prefill_s / (self.prefill_s + self.decode_s)

    @property
    def input_token_share(self) -> float:
        """The prompt's share of the tokens."""
        return self.input_tokens / (self.input_tokens + self.output_tokens)

    def per_million(self, cost_per_request: float) -> tuple[float, float]:
        """Dollars a million (input, output) tokens when a request costs so much, divided by its time in each phase."""
        whole = self.prefill_s + self.decode_s
        return (
            cost_per_request * self.prefill_s / whole / self.input_tokens * _MILLION,
            cost_per_request * self.decode_s / whole / self.output_tokens * _MILLION,
        )


def economics(
    stage: Mapping[str, Any],
    *,
    price_per_hour: float | None = None,
    utilisation: float = 1.0,
    passed: float | None = None,
    split: Split | None = None,
) -> dict[str, Any]:
    """Costs and energies of a stage as summary.json holds it; None with a reason in `why` where something is missing.

    price_per_hour: of the whole deployment, dollars. utilisation: the share of this stage's load that the deployment
    will really carry over the day. passed: share of ok answers whose task succeeded (graders). split: accelerator
    time by phase. Raises UsageError for a price, utilisation or share that cannot be.
    """
    _check(price_per_hour, utilisation, passed)
    why: dict[str, str] = {}
    found: dict[str, Any] = {"price_per_hour": price_per_hour, "utilisation": utilisation}
    found |= _costs(stage, price_per_hour, utilisation, passed, split, why)
    found |= _energies(stage, why)
    return found | {"why": why}


def _check(price: float | None, utilisation: float, passed: float | None) -> None:
    if price is not None and not (math.isfinite(price) and price > 0):
        raise UsageError(f"a price of {price:g} an hour is none", where="--price-per-hour", hint="write 4.00")
    if not 0 < utilisation <= 1:
        raise UsageError(f"a utilisation of {utilisation:g} is none", where="--utilisation", hint="write 40%")
    if passed is not None and not 0 <= passed <= 1:
        raise UsageError(f"a share of {passed:g} is none", where="passed", hint="a share from 0 to 1")


_COSTS = (
    "per_1k_requests",
    "per_1m_input_tokens",
    "per_1m_output_tokens",
    "per_1m_tokens_blended",
    "per_1m_output_tokens_all_cost",
    "per_1k_good_requests",
    "per_successful_task",
    "successful_tasks_per_dollar",
)


def _costs(
    stage: Mapping[str, Any],
    price: float | None,
    utilisation: float,
    passed: float | None,
    split: Split | None,
    why: dict[str, str],
) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(_COSTS)
    if price is None:
        why["cost"] = "no price was given: --price-per-hour"
        return found
    done, good, out, both = (_rate(stage, key) for key in ("completed_rps", "good_rps", "output_tps", "total_tps"))
    if not done:
        why["cost"] = "nothing was completed"
        return found
    each = per_request(price, done, utilisation)
    found["per_1k_requests"] = 1000 * each
    if out:
        found["per_1m_output_tokens_all_cost"] = per_million_tokens(price, out * utilisation)
    if both:
        found["per_1m_tokens_blended"] = per_million_tokens(price, both * utilisation)
    else:
        why["per_1m_tokens_blended"] = "input tokens are not known"
    if split is not None:
        found["per_1m_input_tokens"], found["per_1m_output_tokens"] = split.per_million(each)
    else:
        why["per_1m_input_tokens"] = why["per_1m_output_tokens"] = (
            "the engine does not tell how its time divides; one blended price a token instead"
        )
    if good:
        found["per_1k_good_requests"] = 1000 * per_request(price, good, utilisation)
    else:
        why["per_1k_good_requests"] = "no --slo was given" if good is None else "no request was good"
    if passed:
        hourly = done * _HOUR_S * utilisation
        found["per_successful_task"] = per_success(price, hourly, passed)
        found["successful_tasks_per_dollar"] = successes_per_dollar(price, hourly, passed)
    elif passed == 0:
        found["successful_tasks_per_dollar"] = 0.0
        why["per_successful_task"] = "no task succeeded"
    else:
        why["per_successful_task"] = why["successful_tasks_per_dollar"] = "answers were not graded"
    return found


def _rate(stage: Mapping[str, Any], key: str) -> float | None:
    """A rate of the stage; one that is too small to divide by is none at all."""
    found = number(stage.get(key))
    return found if found is None or found > _LEAST else 0.0


def _energies(stage: Mapping[str, Any], why: dict[str, str]) -> dict[str, Any]:
    """Joules over what was done in the window, idle share apart."""
    names = ("joules_per_request", "joules_per_output_token", "joules_per_good_token", "idle_share")
    found: dict[str, Any] = dict.fromkeys((*names, "joules_per_output_token_above_idle"))
    found["energy_is_lower_bound"] = False
    energy = stage.get("energy") or {}
    joules, window = number(energy.get("joules")), number(stage.get("window_s"))
    if joules is None or not window or window <= _LEAST:
        why["energy"] = str(energy.get("why") or "no energy was measured")
        return found
    found["energy_is_lower_bound"] = bool(energy.get("lower_bound"))
    done, out, good = (_rate(stage, key) for key in ("completed_rps", "output_tps", "good_tps"))
    idle = number(energy.get("idle_joules"))
    if done:
        found["joules_per_request"] = joules / (done * window)
    if out:
        found["joules_per_output_token"] = joules / (out * window)
    if good:
        found["joules_per_good_token"] = joules / (good * window)
    else:
        why["joules_per_good_token"] = "no --slo was given" if good is None else "no token was good"
    if idle is None:
        why["idle_share"] = "no second without load was sampled"
    elif joules > _LEAST:
        found["idle_share"] = min(1.0, idle / joules)
        if out:
            found["joules_per_output_token_above_idle"] = max(0.0, joules - idle) / (out * window)
    return found
