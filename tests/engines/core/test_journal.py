"""The journal: what it keeps, what a replay says of it, and of one that has been tampered with."""

from __future__ import annotations

import copy
import json

import pytest

from benchlab_engine.core.journal import Journal, JournalError, read_lines, spec_entry, spec_of, write_line
from benchlab_engine.core.loop import Engine
from benchlab_engine.core.plan import Sampling
from benchlab_engine.core.replay import replay
from benchlab_engine.core.request import FinishReason, RequestSpec
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig
from tests.engines.core.fakes import NamedError, SlotRunner

SPEC = RequestSpec(
    "r",
    (1, 2, 3),
    9,
    Sampling(0.7, 5, 0.9, 3, 0.01, 0.1, 0.2, 1.3, ((5, -1.5), (6, 2.0)), 2),
    frozenset({4, 2}),
    "salt",
    5,
    1,
    -2,
    "tenant",
    99,
    "lora",
    "parent",
)


def lived():
    """A life with everything in it: children, proposals, preemption, refusals, cancels in a step, failed steps."""
    now = 0
    entries: list[dict] = []
    scheduler = Scheduler(
        SchedulerConfig(max_seqs=4, num_blocks=14, block_size=2, queue_limit=9, speculate="ngram", num_drafts=3)
    )
    runner = SlotRunner(scheduler)
    engine = Engine(scheduler, runner, lambda: now, Journal(sink=entries.append))

    def broken(_):
        raise RuntimeError("out of memory")

    def broken_for_one(plan):
        raise NamedError([plan.works[-1].request_id])

    for number in range(9):
        parent = "r0" if number in (1, 2) else ""
        prompt = (1, 2, 3) if number < 3 else tuple(n % 5 for n in range(number))
        engine.submit(RequestSpec(f"r{number}", prompt, 8, parent=parent, max_wait_ns=20 if number == 8 else 0), now)
    engine.submit(RequestSpec("r0", (1,), 1), now)
    engine.submit(RequestSpec("giant", (1,) * 100, 1), now)
    while scheduler.requests:
        if now == 4:
            runner.during = lambda _: engine.cancel("r1", 4)
        if now == 6:
            engine.cancel("r7", now, FinishReason.SLOW_READER)
        if now == 7:
            runner.during = lambda _: engine.submit(RequestSpec("late", (1, 2), 3), 7)
        if now == 8:
            runner.after = broken_for_one
        if now == 9:
            runner.during = broken
        engine.step()
        now += 1
    engine.submit(RequestSpec("dead", (1, 2), 3, deadline_ns=1), now)
    engine.step()
    assert scheduler.num_preemptions > 0
    return scheduler.config, json.loads(json.dumps(entries)), runner.plans


def test_a_life_is_replayed_step_for_step():
    config, entries, plans = lived()
    seen: list = []
    for given in (config, None):
        seen.clear()
        found = replay(given, entries, seen.append)
        assert found.equal, found.difference
        assert seen == plans
        assert found.num_steps == len(plans)
    assert {entry["kind"] for entry in entries} == {"start", "submit", "cancel", "idle", "step"}
    assert {entry["schema"] for entry in entries} == {1}
    failed = [entry for entry in entries if entry.get("error") is not None]
    assert [entry["error"] for entry in failed] == ["NamedError: named", "RuntimeError: out of memory"]
    assert [entry["failed"] for entry in failed] == [[failed[0]["works"][-1][0]], None]
    assert len(failed[0]["works"]) > 1
    assert {entry["refused"] for entry in entries if entry["kind"] == "submit"} == {None, "duplicate", "never_fits"}


def test_other_settings_are_a_difference():
    _, entries, _ = lived()
    found = replay(SchedulerConfig(max_seqs=3, num_blocks=14, block_size=2, queue_limit=9), entries)
    assert not found.equal
    assert found.difference.what == "works"


def step_numbers(entries):
    return [number for number, entry in enumerate(entries) if entry["kind"] == "step"]


@pytest.mark.parametrize(
    "what", ["works", "num_free_blocks", "last_blocks", "copies", "released", "num_waiting", "num_drafts", "number"]
)
@pytest.mark.parametrize("which", [0, 5, -1])
def test_a_tampered_row_is_found(what, which):
    _, entries, _ = lived()
    entries = copy.deepcopy(entries)
    number = step_numbers(entries)[which]
    before = entries[number][what]
    entries[number][what] = before + 1 if isinstance(before, int) else [*before, before[0] if before else 1]
    found = replay(None, entries)
    assert found.difference is not None
    assert (found.difference.entry, found.difference.what) == (number + 1, what)
    assert found.difference.written == entries[number][what]
    assert found.difference.found == before
    assert what in str(found.difference)
    assert found.num_steps == step_numbers(entries).index(number)


def test_tokens_that_were_changed_show_in_the_steps_after():
    _, entries, _ = lived()
    number = step_numbers(entries)[2]
    name = next(iter(entries[number]["tokens"]))
    entries[number]["tokens"][name] = [6] * 9
    assert not replay(None, entries).equal


def test_a_lost_entry_is_found():
    _, entries, _ = lived()
    for lost, entry in enumerate(entries):
        if entry["kind"] == "submit" and entry["refused"] is None and entry["spec"]["request_id"] != "dead":
            assert not replay(None, entries[:lost] + entries[lost + 1 :]).equal


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([{"kind": "step"}], "entry 1: no start entry"),
        ([{"kind": "start", "config": {}}, {"kind": "step"}], "entry 2: KeyError"),
        ([{"kind": "start", "config": {"max_seqs": "x"}}], "entry 1: not a start"),
        ([{"kind": "start", "config": {"colour": 1}}], "entry 1: not a start"),
        ([{"kind": "start", "config": {}}, {"kind": "start", "config": {}}], "entry 2: a second scheduler"),
        ([{"kind": "start", "config": {}}, {"kind": "submit", "now_ns": 0, "spec": 3}], "entry 2: not a request"),
        ([{}], "entry 1: KeyError"),
        ([None], "entry 1: TypeError"),
        ([{"kind": "start", "config": {}}, {"kind": "rain", "now_ns": 0}], "kind 'rain' is not known"),
    ],
)
def test_what_is_no_journal_says_where(entries, message):
    with pytest.raises(JournalError, match=message):
        replay(None, entries)


def test_a_request_survives_json():
    assert spec_of(json.loads(json.dumps(spec_entry(SPEC)))) == SPEC
    assert set(spec_entry(SPEC)) == set(RequestSpec.__slots__)


def test_lines_are_read_back_and_a_cut_off_end_is_left_out():
    _, entries, _ = lived()
    text = "".join(write_line(entry) for entry in entries)
    assert list(read_lines(text.splitlines(keepends=True))) == entries
    cut = text[: text.rindex("\n") - 3].splitlines(keepends=True)
    assert list(read_lines(cut)) == entries[:-1]
    assert list(read_lines([])) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{\n", "line 2: no JSON"),
        ("[]\n", "line 2: not an entry"),
        ('{"kind":"rain"}\n', "line 2: not an entry"),
        ('{"kind":"step","schema":9}\n', "line 2: schema 9"),
        ("[" * 100_000 + "\n", "line 2: no JSON"),
    ],
)
def test_bad_lines_are_named(line, message):
    good = write_line({"schema": 1, "kind": "start", "config": {}})
    with pytest.raises(JournalError, match=message):
        list(read_lines([good, line]))


def test_memory_is_bounded_in_steps_and_in_works():
    def run(journal):
        scheduler = Scheduler(SchedulerConfig(max_seqs=4))
        engine = Engine(scheduler, SlotRunner(scheduler), lambda: 0, journal)
        for name in "abcd":
            engine.submit(RequestSpec(name, (1,), 50), 0)
        while scheduler.requests:
            engine.step()
        return [row.number for row in journal.rows]

    assert run(Journal(keep=5)) == [46, 47, 48, 49, 50]
    assert run(Journal(keep_works=12)) == [47, 48, 49, 50]
    assert len(run(Journal())) == 50


def test_a_journal_without_the_names_of_those_that_failed_is_read_as_all_of_the_step():
    _, entries, _ = lived()
    whole = [entry for entry in entries if entry.get("error") is not None][1]
    del whole["failed"]
    assert replay(None, entries).equal


@pytest.mark.parametrize("failed", [5, [["r1"]]])
def test_a_failed_step_with_senseless_names_is_refused(failed):
    _, entries, _ = lived()
    next(entry for entry in entries if entry.get("error") is not None)["failed"] = failed
    with pytest.raises(JournalError, match=r"entry \d+: TypeError"):
        replay(None, entries)
