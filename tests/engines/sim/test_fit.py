"""Costs from journals: known costs come back, and what a journal cannot tell is refused."""

from __future__ import annotations

import json
import random
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab_engine.__main__ import main
from benchlab_engine.core.journal import Journal
from benchlab_engine.core.loop import Engine
from benchlab_engine.core.plan import Sampling
from benchlab_engine.core.request import RequestSpec
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig
from benchlab_engine.sim.costs import StepCosts, parse_profile
from benchlab_engine.sim.fit import fit, fit_file, nonnegative_least_squares
from benchlab_engine.sim.runner import PacedRunner

COSTS = StepCosts(step=1_000_000, prompt_token=30_000, decode=200_000, reread=500, context=40)


def journal_of(costs, noise=0.0, seed=0):
    """Rows of an engine that served a mixed load at these costs."""
    chance, now = random.Random(seed), [0]

    def pace(ns):
        now[0] += round(ns * (1 + noise * chance.uniform(-1, 1)))

    config = SchedulerConfig(max_seqs=8, max_batched_tokens=64, num_blocks=4096, prefix_cache=False)
    engine = Engine(Scheduler(config), PacedRunner(costs, range(100), pace), lambda: now[0], Journal())
    for n in range(40):
        prompt = tuple(range(n, n + chance.randint(10, 300)))
        engine.scheduler.submit(RequestSpec(f"r{n}", prompt, chance.randint(1, 40), Sampling(seed=n)), now[0])
        for _ in range(chance.randint(1, 20)):
            engine.step()
    while engine.scheduler.requests:
        engine.step()
    return [asdict(row) for row in engine.journal.rows]


@pytest.fixture(scope="module")
def rows():
    return journal_of(COSTS)


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


FORMS = {
    "the answer of GET /journal": lambda rows: json.dumps({"steps": rows}),
    "a row a line": lines,
    "a list": json.dumps,
    "a row a line, the last one cut": lambda rows: lines(rows) + '{"number": 99, "wor',
    "rows of other kinds between": lambda rows: '{"kind": "header"}\n' + lines(rows),
}


@pytest.mark.parametrize("form", FORMS)
def test_known_costs_come_back_from_every_form(rows, form, tmp_path):
    file = tmp_path / "journal"
    file.write_text(FORMS[form](rows))
    found = fit_file(str(file))
    assert found.r2 == pytest.approx(1)
    assert found.p95_ns < 2  # durations are whole nanoseconds
    for name in ("step", "prompt_token", "decode", "reread", "context"):
        assert getattr(found.costs, name) == pytest.approx(getattr(COSTS, name), rel=1e-3), name


def test_steps_that_failed_are_left_out(rows, tmp_path):
    file = tmp_path / "journal"
    failed = [row | {"end_ns": row["start_ns"] + 10**9, "error": "RuntimeError: out of memory"} for row in rows[::3]]
    file.write_text(lines(failed) + lines(row | {"error": None} for row in rows))
    found = fit_file(str(file))
    assert found.num_rows == len(rows)
    assert found.r2 == pytest.approx(1)


def test_noise_is_told_by_the_residuals(tmp_path):
    file = tmp_path / "journal"
    file.write_text(lines(journal_of(COSTS, noise=0.2)))
    found = fit_file(str(file))
    assert 0.5 < found.r2 < 0.999
    assert 0 < found.p50_ns < found.p95_ns
    assert found.costs.step == pytest.approx(COSTS.step, rel=0.3)
    assert "quiet host" not in "\n".join(found.lines())
    chance = random.Random(1)
    poor = [(tuple(chance.randint(0, 9) for _ in range(4)), chance.uniform(1e6, 9e6)) for _ in range(200)]
    assert "journal a longer load on a quiet host" in "\n".join(fit(poor).lines())


def test_the_command_writes_what_the_profile_reads(rows, tmp_path, capsys):
    journal, out = tmp_path / "journal.jsonl", tmp_path / "a=b.json"
    journal.write_text(lines(rows))
    assert main(["fit", str(journal), "-o", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "R^2           1.0000" in shown
    assert "decode position" in shown
    profile = parse_profile(f"fitted:{out},accept=0.5")
    assert profile.decode == pytest.approx(200_000, rel=1e-3)
    assert profile.accept == 0.5
    assert parse_profile(f"fitted:{journal}").step == pytest.approx(1_000_000, rel=1e-3)


def test_too_few_rows_are_refused(rows, tmp_path):
    (tmp_path / "j").write_text(lines(rows[:19]))
    with pytest.raises(ValueError, match="19 steps are too few"):
        fit_file(str(tmp_path / "j"))


def test_what_did_not_vary_is_refused_by_name_and_may_be_left_out(rows, tmp_path):
    whole = [row for row in rows if not row["num_reread"]]
    (tmp_path / "j").write_text(lines(whole))
    with pytest.raises(ValueError, match=r"reread does not vary: it is 0 in all .* .--without reread"):
        fit_file(str(tmp_path / "j"))
    found = fit_file(str(tmp_path / "j"), ["reread"])
    assert found.costs.reread == 0
    assert "reread        left out" in "\n".join(found.lines())
    with pytest.raises(ValueError, match="cannot be left out"):
        fit_file(str(tmp_path / "j"), ["step"])


BAD = {
    "empty": ("", "no journal"),
    "no json": ("hello\nworld\n", "line 1 is no JSON"),
    "another object": ('{"a": 1}', "no journal"),
    "a number": ("7", "no journal"),
    "no works": ('{"steps": [{"works": 5, "start_ns": 0, "end_ns": 1}]}', "row 1 is no journal row"),
    "no time": ('{"works": [["a", 0, 1, true, true]], "start_ns": null, "end_ns": 1}', "row 1 is no journal row"),
    "deep": ("[" * 100_000, "no journal"),
    "another schema": ('{"kind": "benchlab step costs", "schema": 2}', "schema 1"),
    "a negative cost": (
        json.dumps(
            {
                "kind": "benchlab step costs",
                "schema": 1,
                "coefficients_ns": {"step": -1, "prompt_token": 0, "decode": 0, "reread": 0, "context": 0},
            }
        ),
        "0 or more",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_journal_is_told(name, tmp_path, capsys):
    text, says = BAD[name]
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(ValueError, match=says):
        parse_profile(f"fitted:{file}")
    if "schema" not in text:
        assert main(["fit", str(file)]) == 2
        assert says in capsys.readouterr().err


def test_an_out_file_that_cannot_be_written_is_told(rows, tmp_path, capsys):
    (tmp_path / "j").write_text(lines(rows))
    assert main(["fit", str(tmp_path / "j"), "-o", str(tmp_path / "no" / "such")]) == 3
    assert "give another -o" in capsys.readouterr().err


def test_durations_that_do_not_vary_have_no_r2():
    rows = [((n % 7, n % 5, n % 3, n % 11), 1e6) for n in range(60)]
    found = fit(rows)
    assert found.r2 is None
    assert found.costs.step == pytest.approx(1e6)
    assert "not known" in "\n".join(found.lines())


columns = st.lists(st.lists(st.floats(0, 100), min_size=3, max_size=3), min_size=4, max_size=12)


@settings(max_examples=60)
@given(columns, st.data())
def test_no_better_point_is_near(table, data):
    """Least squares over x >= 0 is convex: a small step in any allowed direction must not help."""
    wanted = data.draw(st.lists(st.floats(-100, 100), min_size=len(table), max_size=len(table)))
    found = nonnegative_least_squares(table, wanted)
    assert min(found) >= 0

    def squares(x):
        return sum(
            (sum(a * b for a, b in zip(row, x, strict=True)) - w) ** 2 for row, w in zip(table, wanted, strict=True)
        )

    here = squares(found)
    slack = 1e-6 * (1 + sum(w * w for w in wanted))
    for place in range(3):
        for step in (-1e-3, 1e-3, 0.1):
            moved = [max(0.0, x + step * (1 + x)) if at == place else x for at, x in enumerate(found)]
            assert here <= squares(moved) + slack
