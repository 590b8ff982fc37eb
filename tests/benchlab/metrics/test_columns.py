"""Requests as arrays: equal to the records they come from, whatever an older or foreign file lacks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from benchlab.metrics.columns import columns_of, stages_of
from benchlab.records.event import Kind, Outcome
from benchlab.records.schema import REQUESTS
from tests.made_runs import columns_from, failed, made_sweep, ns, open_run, stream, table_of


def test_what_is_derived_equals_the_records_own():
    records = [
        stream(0.0, [0.1, 0.2, 0.3], kinds=[Kind.ROLE, Kind.REASONING, Kind.CONTENT], request_id="a"),
        failed(1.0, outcome=Outcome.TIMEOUT, request_id="b"),
        stream(2.0, [2.5], kinds=[Kind.TOOL_CALL], request_id="c"),
    ]
    c = columns_from(records)

    for i, record in enumerate(records):
        seen = record.visible_ns()
        assert c.visible_count[i] == len(seen)
        if seen:
            assert (c.first_content_ns[i], c.last_content_ns[i]) == (seen[0], seen[-1])
        else:
            assert np.isnan(c.first_content_ns[i]) and np.isnan(c.last_content_ns[i])
    assert c.first_answer_ns[0] == ns(0.3) and np.isnan(c.first_answer_ns[2])
    assert list(c.is_outcome(Outcome.TIMEOUT)) == [False, True, False]


def test_a_run_read_in_many_pieces_is_the_same(tmp_path):
    run = open_run(tmp_path / "run", made_sweep()[:2])
    table = run.requests()
    pieces = pa.concat_tables([table.slice(i, 7) for i in range(0, table.num_rows, 7)])
    whole, parts = columns_of(table), columns_of(pieces)

    assert np.array_equal(whole.chunk_ns, parts.chunk_ns) and np.array_equal(whole.offsets, parts.offsets)
    assert np.array_equal(whole.kind, parts.kind) and np.array_equal(whole.outcome, parts.outcome)
    assert np.array_equal(whole.first_content_ns, parts.first_content_ns)
    assert sorted(stages_of(table)) == [0, 1]


def test_a_source_that_tells_times_alone():
    table = table_of([stream(0.0, [0.1, 0.2], request_id="a"), stream(0.0, [], request_id="b")])
    for name in ("chunk_slack_ns", "chunk_tokens", "chunk_kind", "unknown"):
        place = table.column_names.index(name)
        table = table.set_column(place, REQUESTS.field(name), pa.nulls(table.num_rows, REQUESTS.field(name).type))
    c = columns_of(table)

    assert list(c.visible_count) == [2, 0] and list(c.tokens) == [-1, -1] and list(c.slack_ns) == [0, 0]
    assert c.ragged == 0 and not c.untold("chunk_ns").any()


def test_lists_that_disagree_are_counted():
    c = columns_from([stream(0.0, [0.1, 0.2], chunk_tokens=[1]), stream(0.0, [0.3, 0.4], chunk_tokens=[1, 2])])

    assert c.ragged == 1 and list(c.tokens) == [-1, -1, 1, 2]


def test_refusals_are_told_apart():
    c = columns_from(
        [
            failed(outcome=Outcome.ERROR_HTTP, http_status=status, error_kind=kind, request_id=str(i))
            for i, (status, kind) in enumerate([(429, None), (503, None), (529, None), (500, None), (200, "shed")])
        ]
    )

    assert list(c.limited) == [True, False, False, False, False]
    assert list(c.shed) == [False, True, True, False, True]


@pytest.mark.parametrize("name", ["sent_ns", "prompt_tokens"])
def test_what_is_null_is_not_a_number(name):
    assert np.isnan(columns_from([failed(outcome=Outcome.NOT_SENT)]).number(name)[0])
