"""Edits, filters and draws against small computations in numpy, against transformers, and against their own law."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

from benchlab_engine.core.plan import Sampling  # noqa: E402
from benchlab_engine.model.logits import LogitsError, Row, chances, edited, logprobs  # noqa: E402
from benchlab_engine.model.sampler import ACCEPT, DRAFT, choose, uniform  # noqa: E402
from tests.engines.model.serving import sample  # noqa: E402

WIDE = 49152


def normal(seed, *shape, scale=2.0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def reference(logits, row):
    """The stated order, one token at a time, in float64."""
    sampling, values = row.sampling, np.array(logits, dtype=np.float64)
    for token, amount in sampling.logit_bias:
        if 0 <= token < len(values):
            values[token] += amount
    for token in set(row.prompt + row.output):
        penalty = sampling.repetition_penalty
        values[token] = values[token] / penalty if values[token] > 0 else values[token] * penalty
    for token in set(row.output):
        values[token] -= sampling.frequency_penalty * row.output.count(token) + sampling.presence_penalty
    for token in row.banned:
        if 0 <= token < len(values):
            values[token] = -np.inf
    heated = np.exp((values - values.max()) / sampling.temperature)
    order = sorted(range(len(values)), key=lambda token: (-heated[token], token))
    kept = order[: sampling.top_k or len(order)]
    mass, before, nucleus = sum(heated[token] for token in kept), 0.0, []
    for token in kept:
        if nucleus and before >= sampling.top_p * mass:
            break
        nucleus.append(token)
        before += heated[token]
    kept = [token for token in nucleus if heated[token] >= sampling.min_p * heated[nucleus[0]]]
    out = np.zeros(len(values))
    out[kept] = heated[kept]
    return out / out.sum()


ROWS = [
    Row(Sampling(1.0)),
    Row(Sampling(0.3)),
    Row(Sampling(2.5, top_k=7)),
    Row(Sampling(1.0, top_k=1)),
    Row(Sampling(1.0, top_k=5000)),
    Row(Sampling(1.0, top_p=0.9)),
    Row(Sampling(0.7, top_p=0.5)),
    Row(Sampling(1.0, top_p=0.0)),
    Row(Sampling(1.0, min_p=0.1)),
    Row(Sampling(1.0, min_p=1.0)),
    Row(Sampling(0.9, top_k=40, top_p=0.8, min_p=0.05)),
    Row(Sampling(1.0, logit_bias=((3, 5.0), (3, 1.0), (9, -4.0), (-1, 50.0), (10**6, 50.0)))),
    Row(Sampling(1.0, repetition_penalty=1.5), prompt=(1, 2, 2), output=(5, 5, 7)),
    Row(Sampling(1.0, repetition_penalty=0.7, top_k=12), prompt=(1, 2, 2), output=()),
    Row(Sampling(1.0, presence_penalty=1.5), prompt=(1, 2), output=(5, 5, 7)),
    Row(Sampling(1.0, frequency_penalty=0.8), prompt=(1, 2), output=(5, 5, 7)),
    Row(
        Sampling(0.8, 20, 0.95, 0, 0.01, 0.5, -0.4, 1.2, ((5, 2.0), (0, -math.inf))),
        banned=frozenset({3, 8, 10**6}),
        prompt=(1, 2),
        output=(5, 5, 7),
    ),
]


@pytest.mark.parametrize("width", [13, 258, 5000])
def test_every_option_equals_a_computation_by_hand_also_in_a_mixed_batch(width):
    logits = normal(width, len(ROWS), width)
    before = logits.clone()
    found = chances(logits, ROWS).numpy()
    assert torch.equal(logits, before), "the model's own logits must stay as they are"
    for got, own, row in zip(found, logits, ROWS, strict=True):
        np.testing.assert_allclose(got, reference(own.tolist(), row), atol=2e-6, err_msg=str(row))
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-6)


def test_filters_and_repetition_penalty_equal_those_of_transformers():
    from transformers import generation

    logits, ids = normal(3, 6, 1000), torch.randint(0, 1000, (1, 40), generator=torch.Generator().manual_seed(4))
    history = tuple(ids[0].tolist())
    cases = [
        (Sampling(0.7), [generation.TemperatureLogitsWarper(0.7)]),
        (Sampling(1.0, top_k=17), [generation.TopKLogitsWarper(17)]),
        (Sampling(1.0, top_p=0.8), [generation.TopPLogitsWarper(0.8)]),
        (Sampling(1.0, min_p=0.07), [generation.MinPLogitsWarper(0.07)]),
        (Sampling(1.0, repetition_penalty=1.4), [generation.RepetitionPenaltyLogitsProcessor(1.4)]),
        (
            Sampling(0.8, 30, 0.85, min_p=0.1, repetition_penalty=1.2),
            [
                generation.RepetitionPenaltyLogitsProcessor(1.2),
                generation.TemperatureLogitsWarper(0.8),
                generation.TopKLogitsWarper(30),
                generation.TopPLogitsWarper(0.85),
                generation.MinPLogitsWarper(0.1),
            ],
        ),
    ]
    for sampling, processors in cases:
        theirs = generation.LogitsProcessorList(processors)(ids.expand(len(logits), -1), logits.clone()).softmax(-1)
        rows = [Row(sampling, prompt=history[:25], output=history[25:])] * len(logits)
        torch.testing.assert_close(chances(logits, rows), theirs, atol=1e-6, rtol=1e-4)


def test_the_order_is_the_stated_one():
    # min-p before top-p would leave tokens 0 and 1 and then cut the second: 0.5 is more than 0.55 of 0.8
    row = torch.tensor([0.5, 0.3, 0.1, 0.1]).log()[None]
    found = chances(row, [Row(Sampling(1.0, top_p=0.55, min_p=0.5))])[0]
    assert found.tolist() == pytest.approx([0.625, 0.375, 0, 0])
    # top-k before top-p: of the two likeliest, the first has 0.625 of the mass
    assert chances(row, [Row(Sampling(1.0, top_k=2, top_p=0.6))])[0].tolist() == pytest.approx([1, 0, 0, 0])
    # temperature before top-p: at 0.5 the first token has 0.694 of the mass
    assert chances(row, [Row(Sampling(0.5, top_p=0.6))])[0].tolist() == pytest.approx([1, 0, 0, 0])


def test_greedy_takes_the_likeliest_after_bias_penalties_and_bans():
    logits = torch.tensor([[1.0, 3.0, 2.0, -1.0]])

    def greedy(banned=(), prompt=(), output=(), **options):
        return choose(logits, [Row(Sampling(**options), 0, frozenset(banned), prompt, output)])[0]

    assert greedy() == 1
    assert greedy(banned={1}) == 2
    assert greedy(banned={1, 2}) == 0
    assert greedy(logit_bias=((3, 10.0),)) == 3
    assert greedy(repetition_penalty=2.0, prompt=(1,)) == 2
    assert greedy(presence_penalty=1.5, output=(1,)) == 2
    assert greedy(presence_penalty=1.5, prompt=(1,)) == 1, "presence counts the output only"
    assert greedy(frequency_penalty=0.6, output=(1,)) == 1
    assert greedy(frequency_penalty=0.6, output=(1, 1)) == 2


def test_ties_go_to_the_lowest_id():
    flat = torch.zeros(2, 3000)
    assert choose(flat, [Row(Sampling()), Row(Sampling(1.0, top_k=1, seed=3))]) == [0, 0]
    assert chances(flat[:1], [Row(Sampling(1.0, top_k=3))])[0].nonzero().flatten().tolist() == [0, 1, 2]
    assert chances(flat[:1], [Row(Sampling(1.0, top_p=0.001))])[0].nonzero().flatten().tolist() == [0, 1, 2]
    assert [token for token, _ in logprobs(flat[:1], [7], [4])[0].top] == [0, 1, 2, 3]


def test_chance_is_the_seed_and_index_and_stream_0_has_not_changed():
    assert uniform(0, 0) == 0.0564663990004608
    assert uniform(7, 3) == 0.1846062188940475
    assert len({uniform(1, 1, stream) for stream in (0, ACCEPT, 2, DRAFT)}) == 4
    points = [uniform(5, index, ACCEPT) for index in range(4000)]
    assert min(points) >= 0
    assert max(points) < 1
    assert np.mean(points) == pytest.approx(0.5, abs=4 / math.sqrt(12 * 4000))
    together = np.corrcoef(points, [uniform(5, index) for index in range(4000)])[0, 1]
    assert abs(together) < 4 / math.sqrt(4000)
    assert uniform(-1, 0) == uniform(2**63 - 1, 0)


def test_equal_logits_and_a_seed_give_the_same_token_whatever_else_is_in_the_batch():
    logits = normal(1, len(ROWS), 9000)
    for seed in range(3):
        rows = [replace(row, index=seed, sampling=replace(row.sampling, seed=seed)) for row in ROWS]
        together = choose(logits, rows)
        assert choose(logits.flip(0), rows[::-1]) == together[::-1]
        assert [choose(own[None], [row])[0] for own, row in zip(logits, rows, strict=True)] == together


def chi_square(counts, expected):
    """The statistic over the cells that can be hit; a hit where there is no chance is infinite."""
    counts, expected = np.asarray(counts, dtype=float), np.asarray(expected, dtype=float)
    if counts[expected == 0].sum():
        return math.inf
    cells = expected > 0
    return float(((counts[cells] - expected[cells]) ** 2 / expected[cells]).sum())


@pytest.mark.parametrize("row", [row for row in ROWS if row.sampling.top_p > 0], ids=range(len(ROWS) - 1))
def test_draws_have_the_law_of_the_chances(row):
    width, count = 24, 4000
    logits = normal(11, 1, width, scale=1.0)
    rows = [replace(row, index=index) for index in range(count)]
    drawn = choose(logits.expand(count, -1), rows)
    expected = reference(logits[0].tolist(), row) * count
    cells = int((expected > 0).sum())
    statistic = chi_square(np.bincount(drawn, minlength=width), expected)
    assert statistic < cells + 5 * math.sqrt(2 * cells) + 5


def test_a_wide_vocabulary_is_drawn_from_by_its_running_sum():
    logits = normal(2, 1, WIDE + 3)
    share = logits.double().softmax(-1)[0].numpy()
    reach = np.cumsum(share)
    for index in range(300):
        (token,) = sample(logits, [Sampling(1.0, seed=9)], [index])
        point = uniform(9, index)
        assert reach[token] - share[token] - 1e-6 <= point <= reach[token] + 1e-6


def test_extreme_temperatures_and_a_single_token_do_not_break():
    logits = normal(5, 1, 300)
    best = int(logits.argmax())
    for heat in (1e-300, 1e-45, 1e-7):
        assert sample(logits, [Sampling(heat, seed=1)], [0]) == [best]
    for heat in (1e30, math.inf):
        assert chances(logits, [Row(Sampling(heat))])[0].tolist() == pytest.approx([1 / 300] * 300, rel=1e-3)
    assert sample(torch.zeros(1, 1), [Sampling(1.0, top_k=3, top_p=0.5)], [0]) == [0]
    assert sample(logits * 1e30, [Sampling(1.0)], [0]) == [best]


@pytest.mark.parametrize(
    ("value", "row", "said"),
    [
        (math.nan, Row(Sampling(), 4, request_id="b"), "NaN"),
        (math.nan, Row(Sampling(1.0, top_p=0.9), 4, request_id="b"), "NaN"),
        (math.inf, Row(Sampling(1.0), 4, request_id="b"), "inf"),
        (0.0, Row(Sampling(1.0, logit_bias=((1, math.nan),)), 4, request_id="b"), "logit_bias"),
        (0.0, Row(Sampling(), 4, frozenset(range(300)), request_id="b"), "banned"),
        (0.0, Row(Sampling(repetition_penalty=0.0), 4, prompt=(1,), request_id="b"), "penalties"),
    ],
)
def test_logits_that_no_token_can_come_of_are_an_error_that_names_them(value, row, said):
    logits = normal(6, 3, 300)
    logits[1, 77] = value
    if row.sampling.repetition_penalty == 0:
        logits[1, 1] = 2.0
    rows = [Row(Sampling(1.0), request_id="a"), row, Row(Sampling(), request_id="c")]
    with pytest.raises(LogitsError, match=said) as caught:
        choose(logits, rows)
    assert "'b', output token 4" in str(caught.value)
    assert caught.value.request_ids == ("b",)


def test_log_probabilities_are_of_the_models_own_distribution():
    logits = normal(8, 4, 5000)
    own = logits.double().log_softmax(-1).numpy()
    found = logprobs(logits, [5, 6, 7, 8], [0, 5, 20, 6000])
    for place, count in enumerate((0, 5, 20, 5000)):
        assert found[place].chosen == pytest.approx(own[place][5 + place], abs=1e-5)
        order = np.argsort(-own[place], kind="stable")[:count]
        assert [token for token, _ in found[place].top] == order.tolist()
        assert [value for _, value in found[place].top] == pytest.approx(own[place][order].tolist(), abs=1e-5)
    logits[0, 3:] = -math.inf
    assert len(logprobs(logits[:1], [0], [9])[0].top) == 3, "what has no chance is not listed"


def test_rows_that_need_nothing_take_no_copy_and_no_order(monkeypatch):
    from benchlab_engine.model import logits as module

    monkeypatch.setattr(module, "_ranked", lambda *_: pytest.fail("nothing here has to be ranked"))
    logits = normal(9, 2, 400)
    rows = [Row(Sampling()), Row(Sampling(0.7, min_p=0.1))]
    assert edited(logits, rows) is logits
    choose(logits, rows)


OPTIONS = st.builds(
    Sampling,
    temperature=st.floats(0.05, 3),
    top_k=st.integers(0, 40),
    top_p=st.floats(0, 1),
    seed=st.integers(-(2**70), 2**70),
    min_p=st.floats(0, 1),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    repetition_penalty=st.floats(0.1, 3),
    logit_bias=st.lists(st.tuples(st.integers(-3, 40), st.floats(-100, 100)), max_size=4).map(tuple),
)
TOKENS = st.lists(st.integers(0, 32), max_size=8).map(tuple)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.builds(Row, OPTIONS, st.integers(0, 9), st.frozensets(st.integers(-2, 32), max_size=6), TOKENS, TOKENS),
             min_size=1, max_size=5),
    st.integers(0, 10**6),
)  # fmt: skip
def test_the_token_drawn_is_always_one_that_the_filters_allow(rows, seed):
    logits = normal(seed, len(rows), 33)
    # a token whose place among the kept ones is decided by rounding is neither here nor there
    for token, own, row in zip(choose(logits, rows), logits, rows, strict=True):
        share = reference(own.tolist(), row)
        if share[token] == 0:
            wider = replace(row.sampling, top_p=row.sampling.top_p + 1e-5, min_p=row.sampling.min_p - 1e-5)
            share = reference(own.tolist(), replace(row, sampling=wider))
        assert share[token] > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_logits_on_a_gpu_give_the_tokens_and_log_probabilities_of_a_cpu():
    logits = normal(7, len(ROWS), 5000)
    rows = [replace(row, index=place) for place, row in enumerate(ROWS)]
    assert choose(logits.cuda(), rows) == choose(logits, rows)
    torch.testing.assert_close(chances(logits.cuda(), rows).cpu(), chances(logits, rows), atol=1e-6, rtol=1e-4)
    here, there = (logprobs(each, [3] * len(ROWS), [4] * len(ROWS)) for each in (logits, logits.cuda()))
    assert [[token for token, _ in each.top] for each in here] == [[token for token, _ in each.top] for each in there]
