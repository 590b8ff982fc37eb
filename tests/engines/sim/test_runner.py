"""The paced runner's tokens: proposals, bans and log-probabilities, all by seed and position."""

from __future__ import annotations

import math

import pytest

from benchlab_engine.core.plan import Sampling, StepPlan, Work
from benchlab_engine.sim.costs import StepCosts
from benchlab_engine.sim.runner import PacedRunner

VOCABULARY = range(1000)


def runner(accept=None):
    return PacedRunner(StepCosts(accept=accept), VOCABULARY, lambda _: None)


def tokens(runner, *, ids=(1,), start=10, drafts=0, to_draft=0, seed=0, banned=(), logprobs=None):
    sampling = Sampling(seed=seed, logprobs=logprobs)
    work = Work(
        "a", ids, start, (0,), True, True, sampling, num_drafts=drafts, num_to_draft=to_draft, banned=frozenset(banned)
    )
    result = runner.execute(StepPlan(1, (work,)))
    return result.tokens["a"], result.logprobs.get("a")


def plain(count, **kinds):
    """The tokens at positions 11, 12, ... one step at a time."""
    return tuple(tokens(runner(), start=10 + n, **kinds)[0][0] for n in range(count))


def test_without_accept_a_proposal_passes_if_it_is_the_runners_own():
    own = plain(4)
    assert tokens(runner(), ids=(1, *own[:3]), drafts=3)[0] == own
    wrong = (own[0], (own[1] + 1) % 1000, own[2])
    assert tokens(runner(), ids=(1, *wrong), drafts=3)[0] == own[:2]
    assert tokens(runner(), to_draft=3)[0] == own


def test_accept_one_takes_every_proposal_and_gives_one_more():
    given, _ = tokens(runner(1.0), ids=(1, 5, 6, 7), drafts=3)
    assert given[:3] == (5, 6, 7)
    assert given[3] == plain(4)[3]


def test_accept_zero_gives_one_token_that_is_not_the_proposal():
    for proposal in (5, plain(1)[0]):
        given, _ = tokens(runner(0.0), ids=(1, proposal, 6), drafts=2)
        assert len(given) == 1
        assert given[0] != proposal
    assert len(tokens(runner(0.0), to_draft=4)[0]) == 1


def test_the_share_of_accepted_is_the_one_asked_for():
    """Expected tokens a step at chance a and k proposals: (1 - a^(k+1)) / (1 - a)."""
    a, k, steps = 0.7, 4, 4000
    total = sum(len(tokens(runner(a), to_draft=k, start=n, seed=n)[0]) for n in range(steps))
    expected = (1 - a ** (k + 1)) / (1 - a)
    assert total / steps == pytest.approx(expected, rel=0.03)


def test_a_banned_token_is_not_given_nor_taken():
    (own,), _ = tokens(runner())
    (other,), _ = tokens(runner(), banned=(own,))
    assert other != own
    given, _ = tokens(runner(1.0), ids=(1, 5), drafts=1, banned=(5,))
    assert len(given) == 1
    assert given[0] != 5


def test_logprobs_are_chances_that_add_up_to_less_than_one():
    given, found = tokens(runner(), logprobs=5)
    assert len(found) == 1
    assert found[0].top[0] == (given[0], found[0].chosen)
    values = [value for _, value in found[0].top]
    assert len({token for token, _ in found[0].top}) == 5
    assert values == sorted(values, reverse=True)
    assert all(value < 0 for value in values)
    assert sum(map(math.exp, values)) < 1
    assert tokens(runner(), logprobs=0)[1][0].top == ()
    assert tokens(runner())[1] is None


def test_each_of_several_tokens_has_its_logprobs():
    given, found = tokens(runner(1.0), ids=(1, 5, 6), drafts=2, logprobs=2)
    assert [each.top[0][0] for each in found] == list(given)
