"""Arrival laws as the server saw them: Kolmogorov-Smirnov tests, at 5%, of the gaps between the requests in its log.

On a host where others compute requests go out late, and the run's own certificate says by how much: beyond a
millisecond nothing is claimed. Laws with many gaps far below one are not here: there the log is of the server's
accepting, not of the sending.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchlab.campaign.execute import execute
from benchlab.campaign.progress import Progress
from benchlab.campaign.spec import Load, RunSpec
from benchlab.doctor.rig import TruthProcess
from benchlab.loadgen.arrivals import parse_arrival
from benchlab.units import NS_PER_S

COUNT = 400
SEED = 20
"""Its timetables are close to their laws, so that what the test finds is what the sending adds."""
Cdf = Callable[[np.ndarray], np.ndarray]


def weibull(shape: float) -> Cdf:
    return stats.weibull_min(shape, scale=1 / math.gamma(1 + 1 / shape)).cdf


LAWS: dict[str, Cdf] = {
    "poisson": stats.expon().cdf,
    "gamma:0.5": stats.gamma(4, scale=1 / 4).cdf,
    "gamma:1.3": stats.gamma(1 / 1.69, scale=1.69).cdf,
    "weibull:0.8": weibull(0.8),
}


@pytest.mark.slow
@pytest.mark.parametrize("rate", [50.0, 200.0])
@pytest.mark.parametrize("law", LAWS)
def test_gaps_in_the_servers_log_follow_the_law(tmp_path: Path, law: str, rate: float) -> None:
    load = Load("open", rate=rate, arrival=parse_arrival(law))
    with TruthProcess(tmp_path) as server:
        spec = RunSpec(
            (load,), None, url=server.url, isl=8, osl=4, requests=COUNT, arrival_seed=SEED, workers=2,
            out=tmp_path / "run", drain_ns=10 * NS_PER_S, gpu="off", scrape="off", report=False,
        )  # fmt: skip
        outcome = execute(spec, Progress("none"))
        log = server.truth()

    arrived = np.sort([entry.received_ns for name, entry in log.items() if name.startswith("s0-")])
    assert len(arrived) == COUNT
    gaps = np.diff(arrived) * rate / NS_PER_S
    distance = stats.kstest(gaps, LAWS[law]).statistic
    limit = 1.358 / math.sqrt(len(gaps))
    lag_ms = outcome.summary["stages"][0]["client"]["dispatch_lag_ms"]["p99"]
    if distance >= limit and lag_ms > 1:
        pytest.skip(f"this host is busy: requests went out up to {lag_ms:.1f} ms late (p99), and the run says so")
    assert distance < limit
