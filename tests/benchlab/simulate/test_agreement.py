"""The simulation against the same engine served: same arrivals, same step costs, real time and a real client."""

from __future__ import annotations

import json

import pytest

from benchlab.cli.app import main
from tests.running import paced_engine

COSTS = "step=20ms,decode=1ms,prompt=1us"
LOAD = ("-r", "6", "--duration", "15s", "--warmup", "3s", "-q", "--format", "json")


def figures(path):
    (stage,) = json.loads((path / "summary.json").read_text())["stages"]
    return stage, {name: stage["metrics"][name]["p50"] for name in ("ttft", "tpot", "e2e")}


@pytest.mark.slow
def test_simulated_and_served_agree(tmp_path):
    with paced_engine(COSTS) as url:
        assert main(["run", "-u", url, *LOAD, "-o", str(tmp_path / "served")]) == 0
    assert main(["simulate", "--profile", COSTS, *LOAD, "-o", str(tmp_path / "simulated")]) == 0
    served, real = figures(tmp_path / "served")
    simulated, virtual = figures(tmp_path / "simulated")
    assert served["attempted"] == simulated["attempted"]
    assert served["load"]["offered_rps"] == simulated["load"]["offered_rps"]
    assert served["output_tps"] == pytest.approx(simulated["output_tps"], rel=0.03)
    for name, value in virtual.items():
        # A server and a client on a busy host only ever add to what the engine's steps take.
        assert 0.95 * value <= real[name] <= 1.3 * value + 5, name
