"""Durations on the engine's clock: worked example 2, no clock offset in any number, and reasons where it is silent."""

from __future__ import annotations

import pyarrow as pa
import pytest

from benchlab.metrics.columns import columns_of
from benchlab.metrics.engine import NOT_REACHED, NOT_TOLD, with_engine
from benchlab.metrics.summary import summarise
from benchlab.metrics.table import BY_NAME, measure
from benchlab.records.event import Outcome
from benchlab.records.schema import ENGINE
from benchlab.records.store import write_parquet
from tests.made_runs import MadeStage, failed, made_run, open_run, stream, table_of

MS = 1_000_000
BOOTED_LONG_AGO = 2**60 + 7


def engine_row(name: str, *, accepted: int | None = 0, at: int = BOOTED_LONG_AGO, **ms: object) -> dict[str, object]:
    """A row of engine.parquet; instants in ms since `at`, on a clock that floats cannot hold."""

    def instant(value):
        return None if value is None else at + value * MS

    row: dict[str, object] = {"request_id": name, "accepted_ns": instant(accepted)}
    for key, value in ms.items():
        row[f"{key}_ns"] = [instant(v) for v in value] if isinstance(value, list) else instant(value)
    return row


def joined(records, rows):
    return columns_of(with_engine(table_of(records), pa.Table.from_pylist(rows, schema=ENGINE)))


def values(c, name: str) -> list[float]:
    return [float(v) for v in measure(BY_NAME[name], c, c.is_outcome(Outcome.OK)).values]


EXAMPLE = {
    "queued": 1,
    "prefill_start": 18,
    "prefill_end": 43,
    "token_ready": [43, 60, 94],
    "token_written": [43, 61, 94],
    "released": 108,
}


def test_worked_example_2_the_intervals_of_one_request():
    """Queue 0-18, prefill 18-43, transit of the first text 43-51, decode 43-94, cleanup 94-108."""
    record = stream(5.0, [5.051, 5.070, 5.100], request_id="a")
    c = joined([record], [engine_row("a", **EXAMPLE)])

    assert values(c, "queue") == [18.0]
    assert values(c, "prefill") == [25.0]
    assert values(c, "decode") == [51.0]
    assert values(c, "cleanup") == [14.0]
    assert values(c, "ttft") == [pytest.approx(51.0)]
    assert values(c, "transport") == [pytest.approx(8.0)]
    assert values(c, "preemptions") == [0.0]


@pytest.mark.parametrize("offset", [0, 10**15, 2**61])
def test_no_offset_between_the_clocks_enters_any_number(offset):
    records = [stream(float(i), [i + 0.060, i + 0.090], request_id=f"r{i}") for i in range(3)]
    rows = [engine_row(f"r{i}", at=offset, **EXAMPLE) for i in (2, 0, 1)]
    c = joined(records, rows)

    assert values(c, "queue") == [18.0] * 3
    assert values(c, "transport") == [pytest.approx(17.0)] * 3


def test_where_the_engine_is_silent_there_is_a_gap_with_the_reason():
    records = [stream(0.0, [0.1], request_id="a"), stream(1.0, [1.1], request_id="b")]
    plain = columns_of(table_of(records))
    for name in ("queue", "prefill", "decode", "cleanup", "transport", "preemptions"):
        found = measure(BY_NAME[name], plain, plain.is_outcome(Outcome.OK))
        assert found.gap is not None and found.gap.reason == NOT_TOLD

    half = joined(records, [engine_row("b", prefill_start=2, preempted=[4, 9])])
    among = half.is_outcome(Outcome.OK)
    assert measure(BY_NAME["queue"], half, among).left_out == {NOT_TOLD: 1}
    assert measure(BY_NAME["prefill"], half, among).left_out == {NOT_TOLD: 1, NOT_REACHED: 1}
    assert values(half, "queue") == [2.0] and values(half, "preemptions") == [2.0]


def test_an_unknown_beginning_gives_no_number():
    c = joined([stream(0.0, [0.1], request_id="a")], [engine_row("a", accepted=None, prefill_start=5)])
    assert values(c, "queue") == []


def test_a_run_with_engine_times_has_them_in_its_summary(tmp_path):
    records = [stream(float(i), [i + 0.060, i + 0.090], request_id=f"r{i}") for i in range(6)]
    lost = failed(6.0, outcome=Outcome.UNFINISHED, request_id="lost")
    path = made_run(tmp_path / "run", [MadeStage([*records, lost], 0.0, 10.0, offered_rps=0.7, cut=20.0)])
    without = summarise(open_run(tmp_path / "plain", [MadeStage(records, 0.0, 10.0)]))
    assert without["stages"][0]["metrics"]["queue"]["gap"] == NOT_TOLD

    rows = [engine_row(f"r{i}", **EXAMPLE) for i in range(6)]
    write_parquet(path / "engine.parquet", pa.Table.from_pylist(rows, schema=ENGINE))
    from benchlab.records.store import Run

    block = summarise(Run(path))["stages"][0]["metrics"]["queue"]
    assert block["n"] == 6 and block["p50"] == 18.0 and block["gap"] is None
    assert block["censored"] == 1  # who never came out of the queue counts as the longest
