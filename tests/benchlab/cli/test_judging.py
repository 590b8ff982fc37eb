"""Presets, steady windows and prices on stored runs, as a user asks for them."""

from __future__ import annotations

import json

import pytest

from benchlab.cli.app import main
from tests.made_runs import MadeStage, made_run, steady


@pytest.fixture
def path(tmp_path):
    ramp = [0.06 - 0.0004 * i if i < 100 else 0.02 for i in range(500)]
    records = [
        steady(i / 5, ttft=0.1, gap=gap + 0.0001 * (i % 7), tokens=10, request_id=str(i)) for i, gap in enumerate(ramp)
    ]
    return str(made_run(tmp_path / "run", [MadeStage(records, 0.0, 100.0, offered_rps=5.0, cut=110.0)]))


def test_validate_by_preset(path, capsys):
    assert main(["validate", path, "--format", "json"]) == 0
    everyday = json.loads(capsys.readouterr().out)
    assert (everyday["preset"], everyday["state"]) == ("ci", "VALID")
    assert set(everyday["claims"]) == {"latency", "capacity", "energy", "comparison"}

    assert main(["validate", path, "--preset", "publish"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("WARN") and "run 8 min 20 s longer: --duration 600s" in told
    assert "claims (publish): latency with reservations (" in told
    assert main(["validate", path, "--preset", "paper"]) == 2
    assert "one of ci, publish" in capsys.readouterr().err


def test_report_of_the_steady_span_and_its_cost(path, tmp_path, capsys):
    page = str(tmp_path / "page.html")
    assert main(["report", path, "--format", "json", "--html", page]) == 0
    told = json.loads(capsys.readouterr().out)
    more = ["--window", "auto", "--price-per-hour", "3.6", "--utilisation", "50%"]
    assert main(["report", path, "--format", "json", "--html", page, *more]) == 0
    auto = json.loads(capsys.readouterr().out)
    assert (told["window"], auto["window"]) == ("told", "auto")
    assert auto["stages"][0]["window_s"] < 95 < told["stages"][0]["window_s"]
    assert auto["stages"][0]["metrics"]["tpot"]["max"] < told["stages"][0]["metrics"]["tpot"]["max"]
    assert told["stages"][0]["economics"]["per_1k_requests"] is None
    assert auto["stages"][0]["economics"]["per_1k_requests"] == pytest.approx(0.4, rel=0.05)

    assert main(["report", path, "--html", page, "--price-per-hour", "3.6", "--objective", "ttft.p99<=200ms"]) == 0
    text = capsys.readouterr().out
    assert "cost       $0.2" in text and "($3.60 an hour)" in text
    assert "proof      ttft.p99<=200ms is proved by 500 independent samples" in text
    assert "claims: latency with reservations" in text


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--price-per-hour", "0"], "no price"),
        (["--price-per-hour", "-4"], "no price"),
        (["--price-per-hour", "nan"], "no price"),
        (["--utilisation", "0%"], "utilisation"),
        (["--window", "best"], "one of told, auto"),
    ],
)
def test_what_cannot_be_is_refused(path, capsys, flags, said):
    assert main(["report", path, *flags]) == 2
    assert said in capsys.readouterr().err
