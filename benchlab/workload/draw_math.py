"""Logarithm, exponential and quantiles of distributions, alike to the last bit on every machine.

The one idea: a machine's own exp and log differ from another's in the last place, and vector units differ from scalar
ones; additions, multiplications and divisions of IEEE 754 do not. Everything here is made of these alone, each rounded
by itself. Values are float64, of any shape. It must not know what is drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LN2 = _LN2_HIGH + _LN2_LOW
_HALF_ROOT = 0.7071067811865476


def log(values: Any) -> Any:
    """Natural logarithm of values above zero, within 4e-16 of its size or of 1."""
    fraction, power = np.frexp(np.asarray(values, np.float64))
    low = fraction < _HALF_ROOT
    fraction, power = np.where(low, fraction * 2, fraction), np.where(low, power - 1, power)
    part = (fraction - 1) / (fraction + 1)
    square = part * part
    total = np.full_like(part, 1 / 23)
    for odd in range(21, 0, -2):
        total = total * square + 1 / odd
    return power * _LN2_HIGH + (power * _LN2_LOW + 2 * part * total)


def exp(values: Any) -> Any:
    """Exponential, within 4e-16 of its size; 0 below -700."""
    values = np.asarray(values, np.float64)
    power = np.rint(values / _LN2)
    rest = (values - power * _LN2_HIGH) - power * _LN2_LOW
    total = np.ones_like(rest)
    for step in range(15, 0, -1):
        total = total * rest / step + 1
    return np.where(values < -700, 0.0, np.ldexp(total, np.maximum(power, -1020).astype(np.int32)))


# Rational approximations of the inverse normal distribution, from P. J. Acklam (2003): within 1.2e-9.
_A = (
    -3.969683028665376e01,
    2.209460984245205e02,
    -2.759285104469687e02,
    1.383577518672690e02,
    -3.066479806614716e01,
    2.506628277459239e00,
)
_B = (-5.447609879822406e01, 1.615858368580409e02, -1.556989798598866e02, 6.680131188771972e01, -1.328068155288572e01)
_C = (
    -7.784894002430293e-03,
    -3.223964580411365e-01,
    -2.400758277161838e00,
    -2.549732539343734e00,
    4.374664141464968e00,
    2.938163982698783e00,
)
_D = (7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e00, 3.754408661907416e00)
_TAIL = 0.02425


def _powers(values: Floats, factors: tuple[float, ...]) -> Floats:
    total = np.zeros_like(values)
    for factor in factors:
        total = total * values + factor
    return total


def normal(shares: Any) -> Any:
    """The standard normal value at a share in (0, 1)."""
    shares = np.asarray(shares, np.float64)
    middle = shares - 0.5
    square = middle * middle
    inner = _powers(square, _A) * middle / _powers(square, (*_B, 1.0))
    tail = np.minimum(shares, 1 - shares)
    far = np.sqrt(-2 * log(np.minimum(tail, _TAIL)))
    outer = _powers(far, _C) / _powers(far, (*_D, 1.0))
    return np.where(tail >= _TAIL, inner, np.where(middle < 0, outer, -outer))


def gamma(shares: Any, shape: float) -> Any:
    """The value at a share of a gamma distribution of mean 1 (CV = shape ** -0.5), by its density on a fine grid.

    Within 0.1% where the value is above a millionth of the mean; shape 0.05 to 10,000.
    """
    spread = float(np.sqrt(1 / shape))
    top = float(log(max(4.0, 1 + 12 * spread + 40 / shape)))
    low = -20.0 / min(1.0, shape) if shape < 16 else float(log(max(1e-3, 1 - 9 * spread)))
    at = low + (top - low) / 16384 * np.arange(16385)  # log of value / mean
    exponent = shape * (at - exp(at))
    density = exp(exponent - exponent.max())
    share = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2)))
    return exp(along(shares, share / share[-1], at))


def along(where: Any, known: Any, values: Any) -> Any:
    """Straight lines between known points (`known` rising); beyond the ends, the ends. numpy's interp, unfused."""
    where = np.asarray(where, np.float64)
    right = np.clip(np.searchsorted(known, where, "left"), 1, len(known) - 1)
    low, high = known[right - 1], known[right]
    part = np.clip((where - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    return values[right - 1] + part * (values[right] - values[right - 1])
