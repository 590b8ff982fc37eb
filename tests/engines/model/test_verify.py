"""The acceptance rule: worked example 10, its arithmetic, and that wrong rules are caught by the test of the law."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

from benchlab_engine.core.plan import Sampling, Work  # noqa: E402
from benchlab_engine.model import verify as module  # noqa: E402
from benchlab_engine.model.logits import Row, chances, rows_of  # noqa: E402
from benchlab_engine.model.sampler import DRAFT, choose, pick, uniform  # noqa: E402
from benchlab_engine.model.verify import Proposal, agreeing, answer, count_standing, residual, verify  # noqa: E402
from tests.engines.model.serving import deviation  # noqa: E402

VOCAB = 5


def test_worked_example_10_left_to_right_until_the_first_that_falls():
    # chances to stand: min(1, .2/.4) = .5, 1 (p above q), .1/.5 = .2
    target, draft = [0.2, 0.6, 0.1], [0.4, 0.3, 0.5]
    assert count_standing(target, draft, [0.49, 0.99, 0.19]) == 3
    assert count_standing(target, draft, [0.49, 0.99, 0.21]) == 2
    assert count_standing(target, draft, [0.51, 0.0, 0.0]) == 0
    assert count_standing([0.3], [0.3], [1 - 2**-53]) == 1, "equal chances: it always stands"
    assert count_standing([0.0], [0.3], [0.0]) == 0, "what the target cannot say never stands"


def test_worked_example_10_the_replacement_is_from_what_the_target_has_more_of():
    left = residual(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.2, 0.6]))
    assert (left / left.sum()).tolist() == pytest.approx([0.75, 0.25, 0.0])
    same = torch.tensor([0.5, 0.5])
    assert residual(same, same).tolist() == [0.5, 0.5]


def test_all_stand_gives_one_token_more_from_the_target():
    target = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert verify(target, target[:2], (0, 1), 3, 0) == (0, 1, 2)
    assert verify(target, torch.tensor([[1.0, 0, 0], [0, 0, 1.0]]), (0, 2), 4, 0) in {(0, 1), (1,)}


@pytest.mark.parametrize("chance", [0.3, 0.8])
@pytest.mark.parametrize("count", [1, 4])
def test_expected_tokens_a_step(chance, count):
    """(1 - a^(k+1)) / (1 - a), with each proposal standing independently with chance a."""
    draft = torch.tensor([1.0, 0.0]).expand(count, -1)
    target = torch.tensor([chance, 1 - chance]).expand(count + 1, -1)
    runs = 1500
    lengths = [len(verify(target, draft, (0,) * count, seed, 0)) for seed in range(runs)]
    expected = (1 - chance ** (count + 1)) / (1 - chance)
    assert np.mean(lengths) == pytest.approx(expected, abs=4 * np.std(lengths) / math.sqrt(runs))
    # by position: the first i stand with chance a^i
    for position in range(count):
        share = np.mean([length > position + 1 for length in lengths])
        wanted = chance ** (position + 1)
        assert share == pytest.approx(wanted, abs=4 * math.sqrt(wanted * (1 - wanted) / runs))


def test_tokens_are_kept_up_to_the_first_that_differs():
    assert agreeing([1, 2, 3], [1, 2]) == (1, 2, 3)
    assert agreeing([1, 9, 3], [1, 2]) == (1, 9)
    assert agreeing([4], []) == (4,)


# -- the law of the output ------------------------------------------------------------------------------------------


def table(seed, scale=1.5):
    """A model of one token's memory: logits of the next token by the last one, [vocab, vocab]."""
    return torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(seed)) * scale


TARGET, SMALL = table(1), table(2)


def history_row(sampling, index, prefix):
    return Row(sampling, index, frozenset(), (1,), tuple(prefix))


def last(prefix):
    return prefix[-1] if prefix else 0


def law(sampling, length):
    """The exact chance of every answer of that length by plain sampling."""
    found = {(): 1.0}
    for place in range(length):
        prefixes = list(found)
        share = chances(TARGET[[last(each) for each in prefixes]], [history_row(sampling, place, p) for p in prefixes])
        found = {
            (*prefix, token): found[prefix] * float(share[row, token])
            for row, prefix in enumerate(prefixes)
            for token in range(VOCAB)
        }
    return found


def propose(samplings, outputs, count, kind):
    """Proposals after each output, and what they were drawn from."""
    tokens, shares = [[] for _ in outputs], [[] for _ in outputs]
    for _ in range(count):
        so_far = [[*output, *own] for output, own in zip(outputs, tokens, strict=True)]
        if kind == "point":
            for own, prefix in zip(tokens, so_far, strict=True):
                own.append((sum(prefix) + len(prefix)) % VOCAB)
            continue
        rows = [history_row(each, len(prefix), prefix) for each, prefix in zip(samplings, so_far, strict=True)]
        found = chances(SMALL[[last(prefix) for prefix in so_far]], rows)
        for place, row in enumerate(rows):
            tokens[place].append(pick(found[place], uniform(row.sampling.seed, row.index, DRAFT)))
            shares[place].append(found[place])
    pairs = zip(tokens, shares, strict=True)
    return [Proposal(tuple(own), torch.stack(drawn) if drawn else None) for own, drawn in pairs]


def speculate(samplings, length, count, kind):
    """Answers of that length, all of them side by side as the works of a step are."""
    outputs = [[] for _ in samplings]
    while live := [place for place, output in enumerate(outputs) if len(output) < length]:
        proposals = propose([samplings[place] for place in live], [outputs[place] for place in live], count, kind)
        works, before = [], []
        for place, proposal in zip(live, proposals, strict=True):
            output = outputs[place]
            history = ((1,), tuple(output))
            works.append(
                Work(str(place), (0,), 0, (0,), True, True, samplings[place], len(output), count, history=history)
            )
            before += [last(output), *proposal.tokens]
        named = {str(place): proposal for place, proposal in zip(live, proposals, strict=True)}
        found = answer(TARGET[before], works, [count + 1] * len(live), named).tokens
        for place in live:
            outputs[place] += found[str(place)]
    return [tuple(output[:length]) for output in outputs]


def off_the_law(sampling, count, kind, runs, length=3):
    """How far the answers of so many seeds are from the law, as `deviation` has it."""
    answers = speculate([replace(sampling, seed=seed) for seed in range(runs)], length, count, kind)
    return deviation(answers, law(sampling, length))


SAMPLINGS = [
    Sampling(1.0),
    Sampling(0.6, top_k=3),
    Sampling(1.4, top_p=0.8),
    Sampling(1.0, min_p=0.15, presence_penalty=0.7, repetition_penalty=1.3),
]
RUNS = 700


@pytest.mark.parametrize("kind", ["point", "draft"])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=range(len(SAMPLINGS)))
def test_the_output_of_speculation_has_the_law_of_plain_sampling(sampling, kind):
    assert off_the_law(sampling, 2, kind, RUNS) < 4


def test_the_same_test_catches_accepting_everything(monkeypatch):
    monkeypatch.setattr(module, "count_standing", lambda _p, _q, points: len(points))
    assert off_the_law(SAMPLINGS[0], 2, "draft", RUNS) > 20


def test_the_same_test_catches_a_replacement_from_the_target_itself(monkeypatch):
    monkeypatch.setattr(module, "residual", lambda target, _draft: target)
    assert off_the_law(SAMPLINGS[0], 2, "draft", RUNS) > 20


def test_the_same_test_catches_chance_shared_by_drafting_and_judging(monkeypatch):
    monkeypatch.setattr(module, "ACCEPT", DRAFT)
    assert off_the_law(SAMPLINGS[0], 2, "draft", RUNS) > 20


def test_the_same_test_catches_a_history_without_the_proposals(monkeypatch):
    def forgetful(work, proposals):
        return [rows_of(work, ())[0]] * (len(proposals) + 1)

    monkeypatch.setattr(module, "rows_of", forgetful)
    assert off_the_law(SAMPLINGS[3], 2, "draft", RUNS) > 20


@pytest.mark.parametrize("sampling", [*SAMPLINGS, Sampling()], ids=range(len(SAMPLINGS) + 1))
def test_a_point_proposal_changes_no_token_of_a_seed(sampling):
    seeded = [replace(sampling, seed=seed) for seed in range(40)]
    plain = [[] for _ in seeded]
    for index in range(12):
        rows = [history_row(each, index, output) for each, output in zip(seeded, plain, strict=True)]
        for output, token in zip(plain, choose(TARGET[[last(each) for each in plain]], rows), strict=True):
            output.append(token)
    for count in (1, 2, 5):
        assert speculate(seeded, 12, count, "point") == [tuple(output) for output in plain]


def test_answers_of_a_mixed_step_are_those_of_each_work_alone():
    generator = torch.Generator().manual_seed(5)
    small = torch.randn(9, 40, generator=generator).softmax(-1)
    logits = torch.randn(9, 40, generator=generator)
    works = [
        Work("greedy", (0,), 0, (0,), True, True, Sampling(logprobs=2), 3),
        Work("point", (0, 4, 5), 0, (0,), True, True, Sampling(1.0, seed=4), 1, num_drafts=2),
        Work("drafted", (0, 7, 8), 0, (0,), True, True, Sampling(0.9, top_k=30, seed=2, logprobs=0), 6, num_drafts=2),
        Work("drawn", (0,), 0, (0,), True, True, Sampling(1.0, top_p=0.9, seed=1), 2, banned=frozenset({3})),
    ]
    proposals = {"point": Proposal((4, 5)), "drafted": Proposal((7, 8), small[:2])}
    counts = [1, 3, 3, 1]
    whole = answer(logits[:8], works, counts, proposals)
    start = 0
    for work, count in zip(works, counts, strict=True):
        alone = answer(logits[start : start + count], [work], [count], proposals)
        assert alone.tokens[work.request_id] == whole.tokens[work.request_id]
        assert alone.logprobs.get(work.request_id) == whole.logprobs.get(work.request_id)
        start += count
    assert set(whole.logprobs) == {"greedy", "drafted"}
    assert len(whole.logprobs["drafted"]) == len(whole.tokens["drafted"])
    own = logits[4:7].log_softmax(-1)
    for place, token in enumerate(whole.tokens["drafted"]):
        assert whole.logprobs["drafted"][place].chosen == pytest.approx(float(own[place, token]))
    with pytest.raises(ValueError, match="2 proposals"):
        answer(logits[:2], [works[1]], [2], proposals)
