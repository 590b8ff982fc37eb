"""The draft model by itself: what it proposes, from what chances, and which positions it has computed."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

from benchlab_engine.core.plan import GREEDY, Sampling, StepPlan, Work  # noqa: E402
from benchlab_engine.errors import EngineError  # noqa: E402
from benchlab_engine.model.draft import Draft  # noqa: E402
from benchlab_engine.model.kv import PagedKv  # noqa: E402
from benchlab_engine.model.logits import Row, chances  # noqa: E402
from benchlab_engine.model.runner import TorchRunner  # noqa: E402
from benchlab_engine.model.sampler import DRAFT, pick, uniform  # noqa: E402
from benchlab_engine.model.verify import Proposal  # noqa: E402
from tests.engines.model.serving import SIZE, decoder, logits_after, runner_of  # noqa: E402

VOCAB, PROMPT = 30, (3, 1, 4, 1, 5, 9, 2, 6)
TABLE = (5, 2, 7, 0, 3)


@pytest.fixture(scope="module")
def small():
    return decoder(VOCAB, 4)


@pytest.fixture
def draft(small):
    return Draft(small, PagedKv(small.config, 16, SIZE, torch.float32))


def filled(draft, *names):
    """The draft with the prompt computed for each name, every one in the same blocks: they hold the same tokens."""
    for name in names or ("a",):
        assert draft.propose([Work(name, PROMPT, 0, TABLE, True, False)]) == {}
    return draft


def decode(name="a", sampling=GREEDY, count=3, **more):
    return Work(name, (7,), len(PROMPT), TABLE, True, True, sampling, 1, num_to_draft=count, **more)


def test_it_proposes_the_models_own_tokens_one_after_another(draft, small):
    proposal = filled(draft).propose([decode()])["a"]
    tokens = [*PROMPT, 7]
    for token in proposal.tokens:
        assert int(logits_after(small, [tokens]).argmax()) == token
        tokens.append(token)
    assert len(proposal.tokens) == 3
    assert proposal.chances is None


def test_it_draws_with_the_requests_own_sampling_and_keeps_the_chances(draft, small):
    sampling = Sampling(0.8, 12, 0.9, 3, presence_penalty=0.5, logit_bias=((2, 1.0),))
    history = (PROMPT, (7,))
    work = decode(sampling=sampling, banned=frozenset({4}), history=history)
    proposal = filled(draft).propose([work])["a"]
    given = [7]
    for place, token in enumerate(proposal.tokens):
        row = Row(sampling, 1 + place, frozenset({4}), PROMPT, tuple(given))
        own = chances(logits_after(small, [[*PROMPT, *given]]), [row])[0]
        torch.testing.assert_close(proposal.chances[place], own, atol=1e-5, rtol=1e-4)
        assert token == pick(own, uniform(3, 1 + place, DRAFT))
        given.append(token)
    assert proposal.chances.shape == (3, VOCAB)


def test_works_of_unlike_lengths_and_samplings_draft_together_as_alone(draft):
    works = [
        decode("a", count=4),
        decode("b", Sampling(0.9, seed=1), 1),
        replace(decode("c", Sampling(0.7, seed=2), 3), block_table=(9, 8, 10, 11), start=3),
        decode("d", count=0),
        Work("e", PROMPT, 0, (12, 13), False, False),
    ]
    filled(draft).propose([Work("c", PROMPT[:3], 0, (9,), False, False)])
    together = draft.propose(works)
    assert {name: len(proposal.tokens) for name, proposal in together.items()} == {"a": 4, "b": 1, "c": 3}
    for work in works[:3]:
        assert draft.propose([work])[work.request_id].tokens == together[work.request_id].tokens


def test_after_full_acceptance_every_position_is_in_its_cache(draft, small):
    work = decode()
    proposals = filled(draft).propose([work])
    tokens = proposals["a"].tokens
    draft.follow([work], proposals, {"a": (*tokens, 8)})
    after = replace(work, token_ids=(8,), start=work.start + 4, output_index=5)
    fresh = Draft(small, PagedKv(small.config, 16, SIZE, torch.float32))
    fresh.propose([Work("a", (*PROMPT, 7, *tokens), 0, TABLE, False, False)])
    for layer in range(small.config.num_layers):
        for had, wanted in zip(
            draft.kv.read(layer, torch.tensor([TABLE]), len(PROMPT) + 4),
            fresh.kv.read(layer, torch.tensor([TABLE]), len(PROMPT) + 4),
            strict=True,
        ):
            torch.testing.assert_close(had, wanted, atol=1e-5, rtol=1e-4)
    assert draft.propose([after])["a"].tokens == fresh.propose([after])["a"].tokens


def test_the_pass_after_the_step_is_only_for_those_whose_proposals_all_stood(draft, monkeypatch):
    seen = []
    proposals = {"a": Proposal((1, 2)), "b": Proposal((3, 4)), "c": Proposal(())}
    works = [decode("a"), decode("b"), decode("c"), decode("d")]
    monkeypatch.setattr(draft.decoder, "forward", lambda batch, _: seen.append(batch))
    draft.follow(works, proposals, {"a": (1, 9), "b": (3, 4, 5), "c": (6,), "d": (7,)})
    assert [batch.tokens.tolist() for batch in seen] == [[4]]
    assert seen[0].positions.tolist() == [len(PROMPT) + 2]
    draft.follow(works, proposals, {"a": (1, 9), "b": (3, 9), "c": (6,), "d": (7,)})
    assert len(seen) == 1


def test_another_vocabulary_or_block_size_is_refused_with_the_sizes(small):
    target = decoder(VOCAB + 1)
    with pytest.raises(EngineError, match=r"vocabulary of 30 tokens, the model one of 31"):
        runner_of(target, small)
    same = decoder(VOCAB)
    for blocks, size, said in ((16, 8, "blocks of 8 positions"), (15, SIZE, "15 blocks, the model's 16")):
        with pytest.raises(EngineError, match=said):
            TorchRunner(
                same,
                PagedKv(same.config, 16, SIZE, torch.float32),
                draft=Draft(small, PagedKv(small.config, blocks, size, torch.float32)),
            )


def test_a_sequence_beyond_the_draft_models_positions_goes_on_without_it(small):
    short = decoder(VOCAB, 4)
    short.config = replace(short.config, max_positions=10)
    runner = runner_of(decoder(VOCAB), short)
    plan = StepPlan(1, (Work("a", PROMPT, 0, TABLE, True, False),))
    first = runner.execute(plan).tokens["a"]
    work = replace(decode(count=2), token_ids=first)
    found = runner.execute(StepPlan(2, (work,))).tokens["a"]
    assert len(found) == 1
    assert found == runner_of_plain(plan, replace(work, num_to_draft=0))


def runner_of_plain(plan, work):
    runner = runner_of(decoder(VOCAB))
    runner.execute(plan)
    return runner.execute(StepPlan(2, (work,))).tokens["a"]
