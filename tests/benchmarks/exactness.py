"""How exact the client's times are against a server that logs its writes, from a tenth of the ceiling to beyond it.

    python -m tests.benchmarks.exactness [--runs 3] [--seconds 2] [--json FILE]

The worker (as shipped: records, spool and counters on) has the last core, the server the first; in the case `spinning`
another process spins on the worker's core. Medians over the runs of p50 and p99, the largest of all maxima. Bounds for
kernel stamps: first chunk p50 under 0.02 ms and p99 under 0.1 ms, gaps of unmerged chunks p99 under 0.1 ms, the slack
of every merged chunk covers its true time. Exit 1 where one is broken. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchlab.doctor import ceiling, exactness
from benchlab.doctor.exactness import Error
from benchlab.doctor.rig import Rig

KERNEL, CALLBACK = 0, 1
FIRST_P50_MS, FIRST_P99_MS, GAP_P99_MS = 0.02, 0.1, 0.1
SPIN = "while True: pass"


@dataclass(frozen=True)
class Case:
    """share: of one worker's ceiling. bound: whether the bounds on first chunks and gaps are promised for it."""

    name: str
    share: float
    spinning: bool = False


CASES = (
    Case("10%", 0.1),
    Case("30%", 0.3),
    Case("30%, spinning", 0.3, spinning=True),
    Case("60%", 0.6),
    Case("90%", 0.9),
    Case("120%", 1.2),
)


def run_case(rig: Rig, case: Case, top: float, seconds: float, core: int) -> list[Error]:
    """The kernel's and the callback's figures, one after the other."""
    spinner = subprocess.Popen([sys.executable, "-c", SPIN]) if case.spinning else None
    try:
        if spinner is not None:
            os.sched_setaffinity(spinner.pid, {core})
        stages = [exactness.run_rate(rig, case.share * top, seconds, workers=[worker]) for worker in (KERNEL, CALLBACK)]
    finally:
        if spinner is not None:
            spinner.kill()
            spinner.wait()
    return exactness.errors_of(rig, stages)


def one_run(seconds: float) -> tuple[float, list[list[Error]]]:
    """A fresh rig: the ceiling that was measured, and the figures of every case."""
    cores = sorted(os.sched_getaffinity(0))
    with Rig(workers=2, tokens=ceiling.TOKENS, kernel_stamps=lambda worker: worker == KERNEL) as rig:
        os.sched_setaffinity(rig.server.pid, {cores[0]})
        for pid in rig.pool.pids.values():
            os.sched_setaffinity(pid, {cores[-1]})
        ceiling.warm_up(rig)
        top = ceiling.measure_sharp(rig, 1.0, workers=[KERNEL]).per_cpu_s or 0.0
        return top, [run_case(rig, case, top, seconds, cores[-1]) for case in CASES]


def middle(errors: Sequence[Error], part: str, stat: str) -> float | None:
    """Median over the runs; the largest for max."""
    values = [value for error in errors if (value := getattr(getattr(error, part), stat)) is not None]
    return None if not values else max(values) if stat == "max" else statistics.median(values)


def broken(case: Case, errors: Sequence[Error]) -> list[str]:
    """The bounds that these runs of kernel stamps break."""
    found: list[str] = []
    for part, stat, bound in (
        ("first", "p50", FIRST_P50_MS),
        ("first", "p99", FIRST_P99_MS),
        ("gap", "p99", GAP_P99_MS),
    ):
        value = middle(errors, part, stat)
        if value is not None and value >= bound:
            found.append(f"{case.name}: {part} {stat} {value:.3f} ms, bound {bound} ms")
    uncovered = [error.covered_share for error in errors if error.covered_share not in (None, 1.0)]
    if uncovered:
        found.append(f"{case.name}: the slack covers only {min(uncovered):.2%} of the merged chunks")
    early = sum(error.early for error in errors)
    if early:
        found.append(f"{case.name}: {early} stamps lie before their write began")
    return found


def show(value: float | None) -> str:
    return "      —" if value is None else f"{value:7.3f}" if value < 100 else f"{value:7.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if sys.platform != "linux":
        print("Linux only: kernel stamps, core affinity", file=sys.stderr)
        return 2
    runs = [one_run(arguments.seconds) for _ in range(arguments.runs)]
    print(f"ceiling of one worker, token events by CPU second: {', '.join(f'{top:,.0f}' for top, _ in runs)}")
    print(f"load average {os.getloadavg()[0]:.2f}; {arguments.runs} runs of {arguments.seconds:g} s a case\n")
    head = ("first p50", "p99", "max", "gap p50", "p99", "max")
    print(f"{'case':<14} {'stamps':<9}{'events/s':>9} " + "".join(f"{word:>10}" for word in head) + "   merged covered")
    faults: list[str] = []
    for place, case in enumerate(CASES):
        for stamps in ("kernel", "callback"):
            errors = [error for _, cases in runs for error in cases[place] if error.stamps == stamps]
            cells = [middle(errors, part, stat) for part in ("first", "gap") for stat in ("p50", "p99", "max")]
            rate, merged = (statistics.median(getattr(e, key) for e in errors) for key in ("rate", "merged_share"))
            covered = min((e.covered_share for e in errors if e.covered_share is not None), default=None)
            words = "     —" if covered is None else f"{covered:6.1%}"
            figures = "".join(f"{show(cell):>10}" for cell in cells)
            print(f"{case.name:<14} {stamps:<9}{rate:>9,.0f} {figures}   {merged:6.1%} {words}")
            faults += broken(case, errors) if stamps == "kernel" else []
    print()
    print("\n".join(f"BROKEN {fault}" for fault in faults) or "every bound holds")
    if arguments.json:
        document = [
            {"ceiling": top, "cases": {c.name: [asdict(e) for e in es] for c, es in zip(CASES, cases, strict=True)}}
            for top, cases in runs
        ]
        arguments.json.write_text(json.dumps(document, indent=1))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
