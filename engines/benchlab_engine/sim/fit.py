"""A cost model from a journal: least squares, no coefficient below zero, and how well it fits said with it.

The one idea: a step's duration is a constant and four counts times their costs; the journal has all five. What did not
vary in the journal cannot be told from it, and is refused instead of guessed. It must not know which engine wrote it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchlab_engine.errors import USAGE, EngineError
from benchlab_engine.sim.costs import StepCosts, counts_of

REGRESSORS = ("step", "prompt_token", "decode", "reread", "context")
MIN_ROWS = 20
_POOR_R2 = 0.5
_KIND = "benchlab step costs"


@dataclass(frozen=True, slots=True)
class Fit:
    """costs: ns. r2: share of the durations' variance that is explained; None where they do not vary.

    p50_ns, p95_ns: of the absolute residuals. num_rows: steps used. without: regressors left out on purpose.
    """

    costs: StepCosts
    num_rows: int
    r2: float | None
    p50_ns: float
    p95_ns: float
    without: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The fit as its file holds it."""
        return {
            "kind": _KIND,
            "schema": 1,
            "coefficients_ns": {name: getattr(self.costs, name) for name in REGRESSORS},
            "without": list(self.without),
            "rows": self.num_rows,
            "r2": self.r2,
            "residual_ns": {"p50": self.p50_ns, "p95": self.p95_ns},
        }

    def lines(self) -> list[str]:
        """What is printed of it."""
        units = {"step": "a step", "prompt_token": "a prompt token", "decode": "a decode position"}
        units |= {"reread": "a reread prompt position", "context": "a cached position read by a decode"}
        told = [
            f"{name:<13} {'left out' if name in self.without else f'{getattr(self.costs, name):,.1f} ns'} for {words}"
            for name, words in units.items()
        ]
        r2 = "not known: the durations do not vary" if self.r2 is None else f"{self.r2:.4f}"
        residual = f"{self.p50_ns / 1e6:.3f} ms p50, {self.p95_ns / 1e6:.3f} ms p95"
        if self.r2 is not None and self.r2 < _POOR_R2:
            r2 += ": these costs explain little of what the steps took; journal a longer load on a quiet host"
        return [*told, f"rows          {self.num_rows:,}", f"R^2           {r2}", f"residuals     {residual}"]


def fit(rows: Sequence[tuple[tuple[int, int, int, int], float]], without: Sequence[str] = ()) -> Fit:
    """Costs from (counts as `costs.counts_of` gives them, duration in ns) of each step.

    without: regressors not to use, by name. ValueError says why the rows do not tell.
    """
    unknown = [name for name in without if name not in REGRESSORS[1:]]
    if unknown:
        raise ValueError(f"{', '.join(unknown)} cannot be left out; use {', '.join(REGRESSORS[1:])}")
    if len(rows) < MIN_ROWS:
        raise ValueError(f"{len(rows)} steps are too few to fit {len(REGRESSORS)} costs; journal {MIN_ROWS} or more")
    used = [name for name in REGRESSORS if name not in without]
    places = [REGRESSORS.index(name) for name in used]
    table = [[(1, *counts)[place] for place in places] for counts, _ in rows]
    for place, name in enumerate(used[1:], start=1):
        values = {row[place] for row in table}
        if len(values) == 1:
            raise ValueError(
                f"{name} does not vary: it is {values.pop()} in all {len(rows)} steps, so its cost cannot be told; "
                f"journal a mixed load, or leave it out (--without {name})"
            )
    durations = [duration for _, duration in rows]
    found = dict(zip(used, nonnegative_least_squares(table, durations), strict=True))
    costs = StepCosts(**found)
    residuals = sorted(
        abs(duration - sum(a * b for a, b in zip(found.values(), row, strict=True)))
        for row, duration in zip(table, durations, strict=True)
    )
    mean = math.fsum(durations) / len(durations)
    spread = math.fsum((duration - mean) ** 2 for duration in durations)
    r2 = 1 - math.fsum(each * each for each in residuals) / spread if spread else None
    at = [residuals[min(len(residuals) - 1, round(share * (len(residuals) - 1)))] for share in (0.5, 0.95)]
    return Fit(costs, len(rows), r2, at[0], at[1], tuple(without))


def nonnegative_least_squares(table: Sequence[Sequence[float]], wanted: Sequence[float]) -> list[float]:
    """x >= 0 with the least |table x - wanted|. Exact: the best of all sets of columns that may be above zero.

    Fit for a handful of columns only (2^columns small systems are solved).
    """
    width = len(table[0])
    scale = [max(abs(row[c]) for row in table) or 1.0 for c in range(width)]
    columns = [[row[c] / scale[c] for row in table] for c in range(width)]
    gram = [[math.fsum(map(operator.mul, a, b)) for b in columns] for a in columns]
    right = [math.fsum(map(operator.mul, a, wanted)) for a in columns]
    best, best_gain = [0.0] * width, 0.0
    for size in range(1, width + 1):
        for chosen in itertools.combinations(range(width), size):
            solved = _solve([[gram[i][j] for j in chosen] for i in chosen], [right[i] for i in chosen])
            if solved is None or min(solved) < 0:
                continue
            # What the squares lose by this solution: x.b at a stationary point of its own columns.
            gain = math.fsum(x * right[i] for x, i in zip(solved, chosen, strict=True))
            if gain > best_gain * (1 + 1e-12):
                best_gain, best = gain, [0.0] * width
                for x, i in zip(solved, chosen, strict=True):
                    best[i] = x / scale[i]
    return best


def _solve(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Gauss with row pivots; None where the columns say the same thing twice."""
    n = len(right)
    rows = [[*matrix[i], right[i]] for i in range(n)]
    largest = max(abs(value) for row in matrix for value in row) or 1.0
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        if abs(rows[pivot][i]) <= largest * 1e-12:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, n):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i], strict=True)]
    found = [0.0] * n
    for i in reversed(range(n)):
        found[i] = (rows[i][n] - math.fsum(rows[i][j] * found[j] for j in range(i + 1, n))) / rows[i][i]
    return found


# -- files ------------------------------------------------------------------------------------------------------------


def read_fitted(path: str) -> StepCosts:
    """Costs from a file that `fit` wrote, or fitted here and now from a journal. ValueError says what is wrong."""
    if not path:
        raise ValueError("which file? write fitted:FILE, as `python -m benchlab_engine fit JOURNAL -o FILE` makes it")
    text = _text(path)
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        whole = None
    if not isinstance(whole, dict) or whole.get("kind") != _KIND:
        return fit(_rows(text, path)).costs
    found = whole.get("coefficients_ns")
    if whole.get("schema") != 1 or not isinstance(found, dict) or set(found) != set(REGRESSORS):
        raise ValueError(f"{path} is no fit of schema 1; make it again with `python -m benchlab_engine fit`")
    for name, value in found.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise ValueError(f"{path}: {name} is {value!r}, a number of ns of 0 or more is expected")
    return StepCosts(**{name: float(found[name]) for name in REGRESSORS})


def fit_file(path: str, without: Sequence[str] = ()) -> Fit:
    """Fit a journal file: `GET /journal`'s JSON, or one row a line. ValueError says what is wrong."""
    return fit(_rows(_text(path), path), without)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a name with a zero byte
        raise ValueError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _rows(text: str, path: str) -> list[tuple[tuple[int, int, int, int], float]]:
    rows: list[tuple[tuple[int, int, int, int], float]] = []
    for number, row in enumerate(_objects(text, path), start=1):
        try:
            works = [(int(work[1]), int(work[2]), bool(work[3])) for work in row["works"]]
            duration = int(row["end_ns"]) - int(row["start_ns"])
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            raise ValueError(f"{path}: row {number} is no journal row (works, start_ns, end_ns)") from None
        if works and duration > 0 and row.get("error") is None:  # a step that failed did not do its work
            rows.append((counts_of(works), duration))
    return rows


def _objects(text: str, path: str) -> Iterator[dict[str, Any]]:
    """The rows of a journal in any of its forms; the last line may be cut short by a kill."""
    try:
        whole = json.loads(text)
    except RecursionError:
        raise ValueError(f"{path}: is no journal") from None
    except ValueError:
        whole = None
    lines = text.splitlines() if whole is None else []
    values = [whole] if whole is not None else []
    for number, line in enumerate(lines, start=1):
        try:
            values += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError):
            if number == len(lines) and number > 1:
                break
            raise ValueError(f"{path}: line {number} is no JSON; a journal has one row a line") from None
    found = False
    for value in values:
        steps = value.get("steps", [value]) if isinstance(value, dict) else value
        for step in steps if isinstance(steps, list) else []:
            if isinstance(step, dict) and "works" in step:  # a journal may hold rows of other kinds
                found = True
                yield step
    if not found:
        raise ValueError(f"{path}: is no journal: rows with works, start_ns and end_ns are expected")


# -- the command ------------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchlab_engine fit`."""
    parser.add_argument("journal", help="the answer of GET /journal, or a file with one journal row a line")
    parser.add_argument("-o", "--out", default="", help="write the costs there, for --runner paced:fitted:FILE")
    parser.add_argument("--without", default="", help=f"leave out, by comma: {', '.join(REGRESSORS[1:])}")


def run(given: argparse.Namespace) -> str:
    """Fit, write the file if one is named, and give what is to be printed. EngineError says what failed."""
    try:
        found = fit_file(given.journal, [name.strip() for name in given.without.split(",") if name.strip()])
    except ValueError as error:
        raise EngineError(f"fit: {error}", USAGE) from None
    lines = found.lines()
    if given.out:
        try:
            Path(given.out).write_text(json.dumps(found.as_dict(), indent=1) + "\n", encoding="utf-8")
        except (OSError, ValueError) as error:
            raise EngineError(
                f"fit: {given.out}: {getattr(error, 'strerror', None) or error}; give another -o"
            ) from None
        lines.append(f"written       {given.out}: use it as paced:fitted:{given.out}")
    return "\n".join(lines)
