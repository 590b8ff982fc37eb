"""Speculation through the whole engine: scheduler, runner, tiny target, tiny draft model or n-grams."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

from benchlab_engine.core.plan import Sampling  # noqa: E402
from benchlab_engine.model import verify as judging  # noqa: E402
from benchlab_engine.model.draft import Draft  # noqa: E402
from tests.engines.model.serving import decoder, deviation, law, serve, spec  # noqa: E402

VOCAB = 40


@pytest.fixture(scope="module")
def target():
    return decoder(VOCAB, scale=3.0)


@pytest.fixture(scope="module")
def drafts(target):
    """The target itself, one near to it, one that has nothing to do with it."""
    return {"same": target, "near": decoder(VOCAB, noise=0.15, scale=3.0), "other": decoder(VOCAB, 7, layers=1)}


def prompts(count):
    """Prompts that repeat themselves, as n-grams like them; of unlike lengths."""
    generator = torch.Generator().manual_seed(3)
    parts = [torch.randint(0, VOCAB, (5 + index,), generator=generator).tolist() for index in range(count)]
    return [part * 3 for part in parts]


GREEDY_MIX = [
    Sampling(),
    Sampling(repetition_penalty=1.3),
    Sampling(presence_penalty=0.5, frequency_penalty=0.3, logit_bias=((3, 1.0),)),
    Sampling(),
    Sampling(logit_bias=((5, 2.0),)),
]


@pytest.mark.parametrize("draft", ["same", "near", "other", "ngram"])
def test_greedy_output_is_that_of_plain_greedy_token_for_token(target, drafts, draft):
    specs = [
        spec(place, tokens, 24 + place, sampling, end_tokens=frozenset({1}), min_new_tokens=6)
        for place, (tokens, sampling) in enumerate(zip(prompts(5), GREEDY_MIX, strict=True))
    ]
    plain, _ = serve(target, specs)
    how = {"speculate": "ngram"} if draft == "ngram" else {"speculate": "runner", "draft": drafts[draft]}
    for count, changes in (
        (1, {}),
        (4, {}),
        (3, {"max_seqs": 3, "max_batched_tokens": 12, "max_prefill_tokens": 5}),
        (4, {"blocks": 32}),
    ):
        found, scheduler = serve(target, specs, num_drafts=count, **how, **changes)
        assert found == plain
        assert sum(scheduler.speculation.num_proposed) > 0
        if changes.get("blocks"):
            assert scheduler.num_preemptions > 0


def test_children_of_one_prompt_and_prefix_hits_hold_for_the_draft_model_too(target, drafts):
    (prompt,) = prompts(1)
    specs = [
        spec("a", prompt, 12, Sampling()),
        spec("b", prompt, 12, Sampling(), parent="a"),
        spec("c", prompt, 12, Sampling(), parent="a"),
        spec("d", [*prompt, 4], 12, Sampling()),
    ]
    plain, _ = serve(target, specs)
    found, scheduler = serve(target, specs, drafts["same"], speculate="runner", num_drafts=3, max_seqs=3)
    assert found == plain
    assert scheduler.pool.hit_tokens > 0
    # every position is in the draft's cache, so the target's own weights never propose a wrong token
    assert scheduler.speculation.num_accepted == scheduler.speculation.num_proposed


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, 20, 0.95, 5)], ids=["greedy", "drawn"])
def test_the_targets_own_weights_propose_nothing_that_falls(target, drafts, sampling):
    specs = [spec(place, tokens, 40, sampling) for place, tokens in enumerate(prompts(3))]
    _, scheduler = serve(target, specs, drafts["same"], speculate="runner", num_drafts=3)
    counts = scheduler.speculation
    assert counts.num_proposed[0] > 20
    assert sum(counts.num_accepted) >= sum(counts.num_proposed) - (sampling.temperature > 0)


def test_without_the_pass_after_full_acceptance_the_draft_models_cache_has_holes(target, drafts, monkeypatch):
    """Why `follow` exists: the test above sees it missing."""
    monkeypatch.setattr(Draft, "follow", lambda *_: None)
    specs = [spec(place, tokens, 40, Sampling()) for place, tokens in enumerate(prompts(3))]
    found, scheduler = serve(target, specs, drafts["same"], speculate="runner", num_drafts=3)
    assert found == serve(target, specs)[0], "holes cost acceptance, never the answer"
    assert sum(scheduler.speculation.num_accepted) < sum(scheduler.speculation.num_proposed)


def test_acceptance_falls_with_position_and_with_distance(target, drafts):
    specs = [spec(place, tokens, 60, Sampling(0.7, seed=place)) for place, tokens in enumerate(prompts(6))]
    shares = {}
    for name in ("near", "other"):
        _, scheduler = serve(target, specs, drafts[name], speculate="runner", num_drafts=4)
        counts = scheduler.speculation
        assert counts.num_accepted == sorted(counts.num_accepted, reverse=True)
        shares[name] = counts.num_accepted[0] / counts.num_proposed[0]
    assert 0.05 < shares["other"] < shares["near"] < 0.999


def test_with_ngrams_a_seed_gives_the_tokens_that_it_gives_without(target):
    samplings = [Sampling(0.4 + 0.2 * place, 15 * (place % 2), 0.9, place, 0.02, 0.1 * place) for place in range(5)]
    specs = [
        spec(place, tokens, 30, sampling)
        for place, (tokens, sampling) in enumerate(zip(prompts(5), samplings, strict=True))
    ]
    plain, _ = serve(target, specs)
    for count, changes in ((2, {}), (5, {"max_batched_tokens": 16, "blocks": 40})):
        found, scheduler = serve(target, specs, speculate="ngram", num_drafts=count, **changes)
        assert found == plain
        assert sum(scheduler.speculation.num_accepted) > 0
    assert scheduler.num_preemptions > 0
    assert [serve(target, [each], speculate="ngram", num_drafts=3)[0][0] for each in specs] == plain


def test_with_a_draft_model_a_seed_gives_the_same_tokens_alone_and_in_a_batch(target, drafts):
    specs = [spec(place, tokens, 20, Sampling(0.9, seed=place)) for place, tokens in enumerate(prompts(4))]
    how = {"draft": drafts["near"], "speculate": "runner", "num_drafts": 3}
    together, _ = serve(target, specs, **how)
    assert [serve(target, [each], **how)[0][0] for each in specs] == together
    assert serve(target, specs[::-1], **how)[0][::-1] == together


def test_log_probabilities_come_with_every_token_of_a_step(target, drafts):
    from benchlab_engine.core.loop import Engine
    from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig
    from tests.engines.model.serving import SIZE, logits_after, runner_of

    (prompt,) = prompts(1)
    scheduler = Scheduler(SchedulerConfig(block_size=SIZE, num_blocks=64, speculate="runner", num_drafts=3))
    engine = Engine(scheduler, runner_of(target, drafts["near"], 64), lambda: 0)
    engine.submit(spec("a", prompt, 12, Sampling(logprobs=2)), 0)
    emissions = []
    while scheduler.requests:
        emissions += engine.step().emissions
    tokens = [emission.token for emission in emissions]
    own = logits_after(target, [[*prompt, *tokens[:place]] for place in range(12)]).log_softmax(-1)
    assert len(tokens) == 12
    for place, emission in enumerate(emissions):
        assert emission.logprobs.chosen == pytest.approx(float(own[place, emission.token]), abs=1e-4)
        assert emission.logprobs.top[0][0] == emission.token
        assert len(emission.logprobs.top) == 2


# -- the law, through everything ------------------------------------------------------------------------------------

FEW = 4
# Every triple of tokens is in it once (a de Bruijn sequence), so that after any token there is an n-gram to go on from.
PROMPT = tuple(int(digit) for digit in "000100200301101201302102202303103203311121131221231321332223233300")


def off_the_law(sampling, runs, length=4, **how):
    """How far many seeds' first tokens are from the exact law, as `deviation` has it."""
    target = decoder(FEW, scale=0.7)
    specs = [spec(seed, PROMPT, length, replace(sampling, seed=seed)) for seed in range(runs)]
    answers, scheduler = serve(
        target, specs, max_seqs=200, max_batched_tokens=800, blocks=1500, queue_limit=runs, audit=False, **how
    )
    assert sum(scheduler.speculation.num_proposed) > runs / 4
    return deviation(answers, law(target, PROMPT, sampling, length))


HOW = {
    "draft": lambda: {"draft": decoder(FEW, 5, scale=2.0), "speculate": "runner", "num_drafts": 2},
    "ngram": lambda: {"speculate": "ngram", "num_drafts": 2},
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "sampling", [Sampling(1.0), Sampling(0.7, top_k=4, top_p=0.9, frequency_penalty=0.4)], ids=[0, 1]
)
def test_the_law_of_the_answers_is_the_targets(sampling, how):
    assert off_the_law(sampling, 1000, **HOW[how]()) < 4


def test_a_wrong_rule_is_seen_through_everything(monkeypatch):
    monkeypatch.setattr(judging, "residual", lambda target, _draft: target)
    assert off_the_law(Sampling(1.0), 1000, **HOW["draft"]()) > 10
