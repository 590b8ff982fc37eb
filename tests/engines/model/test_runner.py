"""The runner: what of a plan it honours, that it remembers nothing, and what its errors say."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

from benchlab_engine.core.loop import Engine  # noqa: E402
from benchlab_engine.core.plan import GREEDY, Sampling, StepPlan, Work  # noqa: E402
from benchlab_engine.core.request import FinishReason  # noqa: E402
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig  # noqa: E402
from benchlab_engine.errors import EngineError  # noqa: E402
from benchlab_engine.model.logits import LogitsError  # noqa: E402
from tests.engines.model.serving import SIZE, decoder, logits_after, runner_of, serve, spec  # noqa: E402

VOCAB, PROMPT = 30, (3, 1, 4, 1, 5, 9)


@pytest.fixture(scope="module")
def target():
    return decoder(VOCAB)


def prefill(sampling=GREEDY, table=(0, 1), **more):
    return Work("a", PROMPT, 0, table, True, False, sampling, **more)


def test_bans_history_and_log_probabilities_reach_the_sampler(target):
    runner = runner_of(target)
    own = logits_after(target, [PROMPT])[0]
    best, second = own.topk(2).indices.tolist()
    plain = runner.execute(StepPlan(1, (prefill(),)))
    assert plain.tokens == {"a": (best,)}
    assert plain.logprobs == {}
    assert plain.duration_ns > 0
    banned = runner.execute(StepPlan(1, (prefill(Sampling(logprobs=3), banned=frozenset({best})),)))
    assert banned.tokens == {"a": (second,)}
    (told,) = banned.logprobs["a"]
    assert told.chosen == pytest.approx(float(own.log_softmax(-1)[second]), abs=1e-5)
    assert [token for token, _ in told.top] == own.topk(3).indices.tolist(), "of the model, before any ban"
    pressed = prefill(Sampling(presence_penalty=50.0), history=(PROMPT, (best,)))
    assert runner.execute(StepPlan(1, (pressed,))).tokens == {"a": (second,)}


def test_a_work_that_does_not_sample_has_no_token(target):
    result = runner_of(target).execute(StepPlan(1, (replace(prefill(), samples=False),)))
    assert result.tokens == {}
    assert result.logprobs == {}


@pytest.mark.parametrize("drafted", [False, True])
def test_copies_are_made_before_anything_is_computed_and_in_the_drafts_cache_too(target, drafted):
    runner = runner_of(target, target if drafted else None)
    runner.execute(StepPlan(1, (prefill(),)))
    # the second half-full block moves to block 9; its old place is then overwritten by another request
    other = Work("b", (8, 8, 8, 8), 4, (0, 1), False, False)
    step = Work("a", (7,), len(PROMPT), (0, 9), True, True, output_index=1, num_to_draft=1 if drafted else 0)
    found = runner.execute(StepPlan(2, (other, step), copies=((1, 9),))).tokens["a"]
    expected = [int(logits_after(target, [(*PROMPT, 7)]).argmax())]
    expected.append(int(logits_after(target, [(*PROMPT, 7, *expected)]).argmax()))
    assert list(found) == expected[: len(found)]
    assert len(found) == (2 if drafted else 1)
    if drafted:
        # the same weights computed both caches, so they hold the same
        for own, other in zip(
            *(kv.read(1, torch.tensor([[0, 9]]), 8) for kv in (runner.kv, runner.draft.kv)), strict=True
        ):
            torch.testing.assert_close(own, other)


def test_nothing_is_remembered_between_steps(target):
    plans = [
        StepPlan(1, (prefill(Sampling(1.0, seed=3)),)),
        StepPlan(2, (Work("a", (7,), 6, (0, 1, 2), True, True, Sampling(1.0, seed=3), 1, num_to_draft=3),)),
    ]
    runner = runner_of(target, decoder(VOCAB, noise=0.3))
    state = set(vars(runner))
    once = [runner.execute(plan).tokens for plan in plans]
    assert [runner.execute(plan).tokens for plan in plans] == once
    assert runner.execute(plans[1]).tokens == once[1]
    assert set(vars(runner)) == state


def test_proposals_that_are_right_stand_and_the_cache_serves_what_follows(target):
    runner = runner_of(target)
    (first,) = runner.execute(StepPlan(1, (prefill(),))).tokens["a"]
    answer = [first]
    for _ in range(4):
        answer.append(int(logits_after(target, [(*PROMPT, *answer)]).argmax()))

    def step(*tokens, start):
        index = start - len(PROMPT) + 1
        work = Work("a", tokens, start, (0, 1, 2, 3), True, True, Sampling(), index, num_drafts=len(tokens) - 1)
        return list(runner.execute(StepPlan(2, (work,))).tokens["a"])

    wrong = (answer[2] + 1) % VOCAB
    assert step(first, answer[1], wrong, 0, start=6) == answer[1:3]
    # the cache keeps committed - 1 positions: what the wrong proposals left behind is written over
    assert step(answer[2], answer[3], start=8) == answer[3:5]


def poisoned():
    """A model whose logits are NaN for every sequence that holds token 29."""
    made, well = decoder(VOCAB), decoder(VOCAB)
    made.embedding, made.head = made.embedding.clone(), well.head
    made.embedding[29] = float("nan")
    return made


@pytest.mark.parametrize("drafted", [False, True])
@pytest.mark.parametrize("samples", [False, True])
def test_blocks_that_held_nan_do_no_harm_to_who_gets_them_next(samples, drafted):
    runner = runner_of(poisoned(), poisoned() if drafted else None)
    well = runner_of(decoder(VOCAB))
    with pytest.raises(LogitsError, match="sampling: request 'x'"):
        runner.execute(StepPlan(1, (Work("x", (29,) * 16, 0, (4, 5, 6, 7), samples, False),)))
    for table, tokens in (((0, 1, 2), range(9)), ((4, 5), range(1, 6))):
        plan = StepPlan(2, (Work("a", tuple(tokens), 0, table, True, False),))
        assert runner.execute(plan).tokens == well.execute(plan).tokens
    # together: the shorter sequence's padding lies where the NaN were
    works = (
        Work("a", (5,), 9, (0, 1, 2), True, True, num_to_draft=2 * drafted),
        Work("b", (5,), 5, (4, 5), True, True, num_to_draft=2 * drafted),
    )
    found = runner.execute(StepPlan(3, works)).tokens
    expected = well.execute(StepPlan(3, tuple(replace(work, num_to_draft=0) for work in works))).tokens
    assert {name: tokens[:1] for name, tokens in found.items()} == expected


def test_a_draft_model_of_nan_costs_acceptance_and_nothing_else(target):
    broken = decoder(VOCAB)
    broken.embedding = broken.embedding * float("nan")
    specs = [spec(place, PROMPT, 8, Sampling(0.9 * place, seed=3)) for place in range(2)]
    found, scheduler = serve(target, specs, broken, speculate="runner", num_drafts=2)
    assert [len(tokens) for tokens in found] == [8, 8]
    assert found[0] == serve(target, specs[:1])[0][0]
    assert scheduler.speculation.num_proposed[0] > 0


def test_nan_logits_end_the_request_with_an_error_that_names_it_and_the_engine_lives():
    made = poisoned()
    engine = Engine(Scheduler(SchedulerConfig(block_size=SIZE, num_blocks=64)), runner_of(made, blocks=64), lambda: 0)
    engine.submit(spec("bad", (1, 29, 2), 5, Sampling(0.8)), 0)
    outcome = engine.step()
    assert "LogitsError: sampling: request 'bad', output token 0: the logits hold NaN" in outcome.error
    assert [(each.request_id, each.finish) for each in outcome.emissions] == [("bad", FinishReason.ERROR)]
    engine.submit(spec("good", (1, 2, 3), 3, Sampling()), 0)
    tokens = []
    while engine.scheduler.requests:
        tokens += [each.token for each in engine.step().emissions]
    assert len(tokens) == 3


@pytest.mark.parametrize("speculate", ["none", "ngram", "runner"])
def test_nan_logits_of_one_request_cost_the_others_a_step_and_no_token(speculate):
    def answers(*specs):
        runner = runner_of(poisoned(), poisoned() if speculate == "runner" else None, blocks=64)
        config = SchedulerConfig(block_size=SIZE, num_blocks=64, speculate=speculate, num_drafts=2)
        engine = Engine(Scheduler(config), runner, lambda: 0)
        found: dict[str, list] = {each.request_id: [] for each in specs}
        for each in specs:
            engine.submit(each, 0)
            for _ in range(1 if each is not specs[-1] else 99):
                for emission in engine.step().emissions:
                    found[emission.request_id].append(emission.finish if emission.token is None else emission.token)
                engine.scheduler.audit()
        return found

    specs = [spec("a", (1, 2, 3) * 3, 9, Sampling()), spec("b", (4, 5) * 5, 9, Sampling(0.9, seed=4))]
    alone, beside = answers(*specs), answers(*specs, spec("bad", (1, 29, 2), 5, Sampling()))
    assert beside.pop("bad") == [FinishReason.ERROR]
    assert beside == alone
    assert [len(each) for each in alone.values()] == [9, 9]


def test_an_error_says_whose_logits_and_leaves_the_others_named_out():
    made = poisoned()
    works = (prefill(), Work("b", (1, 29), 0, (4,), True, False), Work("c", (5,), 0, (5,), True, False))
    with pytest.raises(LogitsError) as caught:
        runner_of(made).execute(StepPlan(1, works))
    assert caught.value.request_ids == ("b",)


@pytest.mark.parametrize(
    ("breaks", "error", "said"),
    [
        ("copy", RuntimeError("boom"), "block copy: RuntimeError: boom"),
        ("draft", EngineError("no"), "draft: no"),
        ("forward", MemoryError("12 GiB"), r"growth: no memory: lower --max-batched.* \(forward: 12 GiB\)"),
        ("draft", torch.OutOfMemoryError("CUDA out of memory"), r"growth: no memory: .* \(draft: CUDA out of memory\)"),
        ("copy", RuntimeError("DefaultCPUAllocator: can't allocate memory"), r"growth: no memory: .* \(block copy: "),
        ("forward", IndexError("out"), "forward: IndexError: out"),
    ],
)
def test_errors_name_their_phase(target, monkeypatch, breaks, error, said):
    runner = runner_of(decoder(VOCAB), decoder(VOCAB, 1))

    def fail(*_):
        raise error

    owner, name = {
        "copy": (runner.kv, "copy"),
        "draft": (runner.draft.decoder, "forward"),
        "forward": (runner.decoder, "forward"),
    }[breaks]
    monkeypatch.setattr(owner, name, fail)
    with pytest.raises(EngineError, match=said):
        runner.execute(StepPlan(1, (prefill(),), copies=((0, 9),)))


@pytest.mark.parametrize("drafted", [False, True])
@pytest.mark.parametrize("arguments", [{}, {"max_seqs": 5, "max_batched_tokens": 64, "context": 30, "num_drafts": 3}])
def test_warming_up_runs_the_largest_steps_and_harms_nothing(target, arguments, drafted, monkeypatch):
    runner = runner_of(target, decoder(VOCAB, 1) if drafted else None)
    plans = []
    step = runner._step
    monkeypatch.setattr(runner, "_step", lambda plan: plans.append(plan) or step(plan))
    runner.warm_up(**arguments)
    assert len(plans[0].works[0].token_ids) == arguments.get("max_batched_tokens", SIZE - 1)
    assert len(plans[1].works) == arguments.get("max_seqs", 1)
    if arguments:
        assert {work.start + len(work.token_ids) + work.num_to_draft for work in plans[1].works} == {30}
        assert {work.num_to_draft + work.num_drafts for work in plans[1].works} == {3}
        assert {work.num_to_draft > 0 for work in plans[1].works} == {drafted}
    assert runner.execute(StepPlan(1, (prefill(),))).tokens["a"] == (int(logits_after(target, [PROMPT]).argmax()),)


def test_warming_up_is_cut_to_a_small_pool_and_one_position_blocks(target):
    runner = runner_of(target, blocks=2)
    runner.warm_up(64, 10_000)
    runner.warm_up(1, 0, context=10_000)
    assert runner.execute(StepPlan(1, (prefill(),))).tokens["a"]


def test_a_warm_up_that_lacks_memory_leaves_the_phase_to_who_asked_for_it(target, monkeypatch):
    from benchlab_engine.model.memory import phase

    runner = runner_of(decoder(VOCAB))

    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(runner.decoder, "forward", fail)
    with (
        pytest.raises(EngineError, match=r"^prefill: no memory: lower .* \(forward: CUDA out of memory\)"),
        phase("prefill"),
    ):
        runner.warm_up(4, 32)
