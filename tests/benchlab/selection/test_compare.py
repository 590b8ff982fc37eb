"""Runs side by side: a word only where intervals justify it, and what was done differently comes first."""

from __future__ import annotations

import json

import pytest

from benchlab.errors import UsageError
from benchlab.selection.compare import compare
from benchlab.selection.judge import judge
from tests.made_runs import MadeStage, open_run, poisson, steady


def judged(path, ttft: float, *, seed: int, n_rate: float = 20.0, **manifest):
    records = [
        steady(at, ttft=ttft * (1 + 0.1 * (i % 7)), gap=0.01, tokens=8, request_id=str(i))
        for i, at in enumerate(poisson(n_rate, 0.0, 30.0, seed=seed))
    ]
    return judge(open_run(path, [MadeStage(records, 0, 30, offered_rps=n_rate, cut=40)], **manifest))


def row(found, metric, statistic=None):
    return next(r for r in found.rows if (r.metric, r.statistic) == (metric, statistic))


def test_slower_is_worse_and_equal_is_not_known(tmp_path):
    base, same, slow = (
        judged(tmp_path / name, ttft, seed=seed) for name, ttft, seed in (("a", 0.1, 1), ("b", 0.1, 2), ("c", 0.2, 3))
    )
    found = compare([base, same, slow])

    assert found.comparable and found.differences == {}
    assert row(found, "ttft", "p50").words == ("not known", "worse")
    assert row(found, "ttft", "p50").change[1] == pytest.approx(1.0)
    assert row(compare([slow, base]), "ttft", "p50").words == ("better",)
    assert row(found, "completed_rps").words == ("not known", "not known")  # rates have no interval yet
    json.dumps(found.as_dict(), allow_nan=False)


def test_different_work_gets_no_word_and_is_named_first(tmp_path):
    base = judged(tmp_path / "a", 0.1, seed=1)
    other = judged(tmp_path / "b", 0.3, seed=1, workload={"sha256": "f" * 64, "cache": "unknown"})
    found = compare([base, other])

    assert not found.comparable and list(found.differences) == ["workload_sha256"]
    assert all(word == "not known" for each in found.rows for word in each.words)
    assert row(found, "ttft", "p50").change == (pytest.approx(2.0),)


def test_the_lock_of_the_workload_binds_and_its_file_does_not(tmp_path):
    def run(name, sha, **lock):
        locked = {"items": {"count": 5, "sha256": "1" * 64}, "arrivals": None, "seeds": {"content": 0}, **lock}
        workload = {"sha256": sha * 64, "cache": "unknown", "lock": locked}
        return judged(tmp_path / name, 0.1, seed=1, workload=workload)

    base = run("a", "a")
    assert compare([base, run("b", "b")]).comparable  # the same items from another file
    reseeded = compare([base, run("c", "a", seeds={"content": 1})])
    assert reseeded.comparable and list(reseeded.differences) == ["seeds"]
    for name, lock in (
        ("d", {"items": {"count": 5, "sha256": "2" * 64}}),
        ("e", {"arrivals": "x"}),
        ("f", {"tokenizer": "t"}),
    ):
        assert not compare([base, run(name, "a", **lock)]).comparable


def test_another_engine_is_a_difference_that_may_be_compared(tmp_path):
    base = judged(tmp_path / "a", 0.1, seed=1, engine={"name": "one"})
    other = judged(tmp_path / "b", 0.3, seed=1, engine={"name": "two"})
    found = compare([base, other])

    assert found.comparable and found.differences == {"engine": ("one", "two")}
    assert row(found, "ttft", "p50").words == ("worse",)


def test_a_load_that_one_run_lacks_stays_a_gap(tmp_path):
    found = compare([judged(tmp_path / "a", 0.1, seed=1), judged(tmp_path / "b", 0.1, seed=1, n_rate=10.0)])

    assert {each.load for each in found.rows} == {"20/s", "10/s"}
    assert row(found, "ttft", "p50").values[1].value is None
    assert row(found, "ttft", "p50").change == (None,) and row(found, "ttft", "p50").words == ("not known",)


def test_one_run_cannot_be_compared():
    with pytest.raises(UsageError):
        compare([{}])
