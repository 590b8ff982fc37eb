"""How far from its instant a request is sent, `--pacing normal` and `precise` in turn, against the doctor's server.

    python tests/benchmarks/pacing.py [--rates 50,200,800] [--pairs 3] [--seconds 5]

Each line is the median over the pairs of one run: deviations of dispatch and of sending from the due instant (ms), the
coefficient of variation of the gaps between sends (0 is right, for the timetable is even), and the CPU a request.
There are no thresholds: on a busy host the host is measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from benchlab.doctor.rig import Rig, Stage
from benchlab.loadgen.job import StageJob


class PacedRig(Rig):
    """A rig whose stages are paced as `precise` says."""

    precise = False

    def _run(self, job: Callable[[int, dict[str, Any]], StageJob], seconds: float) -> Stage:
        return super()._run(lambda w, plain: msgspec.structs.replace(job(w, plain), precise=self.precise), seconds)


def figures(rig: PacedRig, rate: float, seconds: float, precise: bool) -> dict[str, float]:
    """One stage of even arrivals, and how it went."""
    rig.precise = precise
    stage = rig.open(rate, seconds)
    records = sorted(rig.records([stage]).values(), key=lambda record: record.intended_ns)
    intended = np.asarray([record.intended_ns for record in records], dtype=np.float64)
    dispatched = np.asarray([record.dispatched_ns for record in records], dtype=np.float64)
    sent = np.asarray([record.sent_ns for record in records], dtype=np.float64)
    lag, off, gaps = (dispatched - intended) / 1e6, (sent - intended) / 1e6, np.diff(sent)
    cpu_s = sum(report.cpu_s for report in stage.reports)
    return {
        "dispatch p50": float(np.median(lag)),
        "dispatch p99": float(np.percentile(lag, 99)),
        "sent p50": float(np.median(off)),
        "sent p99": float(np.percentile(off, 99)),
        "CV of gaps": float(gaps.std() / gaps.mean()),
        "CPU ms a request": cpu_s * 1e3 / len(records),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", default="50,200,800")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    asked = parser.parse_args()
    with PacedRig(workers=1, tokens=4) as rig:
        rig.open(50, 1.0)
        for rate in map(float, asked.rates.split(",")):
            found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
            for pair in range(asked.pairs):
                for precise in (False, True) if pair % 2 == 0 else (True, False):
                    found[precise].append(figures(rig, rate, asked.seconds, precise))
            for precise, runs in found.items():
                medians = {name: float(np.median([run[name] for run in runs])) for name in runs[0]}
                words = "  ".join(f"{name} {value:.3f}" for name, value in medians.items())
                print(f"{rate:5g}/s {'precise' if precise else 'normal ':7}  {words}")


if __name__ == "__main__":
    main()
