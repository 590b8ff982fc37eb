"""Weights in fewer bits: error bounds, kernels against plain arithmetic, true bytes, and what a model loses by it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from benchlab_engine.core.plan import Work  # noqa: E402
from benchlab_engine.errors import USAGE, EngineError  # noqa: E402
from benchlab_engine.model import quant_fp8, quant_groups, quant_int4, quant_int8  # noqa: E402
from benchlab_engine.model.batch import make_batch  # noqa: E402
from benchlab_engine.model.kv import PagedKv  # noqa: E402
from benchlab_engine.model.linear import DenseLinear  # noqa: E402
from benchlab_engine.model.load import load  # noqa: E402
from benchlab_engine.model.quant import Quant, apply, maker, noisy, parse  # noqa: E402
from benchlab_engine.model.quant_bits import pack, unpack  # noqa: E402
from benchlab_engine.model.quant_groups import GroupLinear, group_linear, rounded  # noqa: E402
from benchlab_engine.model.quant_int4 import Int4Linear  # noqa: E402
from benchlab_engine.model.quant_int8 import Int8Linear, W8A8Linear, int8_head, integer_products  # noqa: E402


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rms(x):
    return float(x.double().square().mean().sqrt())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("none", Quant()),
        ("int8", Quant("int8")),
        ("int4", Quant("int4")),
        ("int4:g32", Quant("int4", 32)),
        ("int4:g64:sym", Quant("int4", 64, True)),
        ("int4:asym", Quant("int4")),
        ("int3:g128", Quant("int3", 128)),
        ("w8a8", Quant("w8a8")),
        ("fp8+noise:0.1", Quant("fp8", noise=0.1)),
        ("int8+noise:1e-2", Quant("int8", noise=0.01)),
        ("none+noise:0.5", Quant(noise=0.5)),
    ],
)
def test_the_grammar(text, wanted):
    assert parse(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "int5", "INT8", "int8:g32", "int4:g48", "int4:g0", "int3:sym", "int4:sym:g32", "fp8+noise:", "fp8+noise:x",
     "int8+noise:-1", "int8+noise:nan", "int8+noise:inf", "int8 int4", "none:asym", "int4:g999999999"],
)  # fmt: skip
def test_what_the_grammar_does_not_say_is_a_usage_error(text):
    with pytest.raises(EngineError, match="--quant") as caught:
        parse(text)
    assert caught.value.code == USAGE


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="intfpw348:g+noise.symaone0126e-", max_size=24))
def test_any_text_is_a_quant_or_a_usage_error(text):
    try:
        found = parse(text)
    except EngineError as error:
        assert error.code == USAGE
    else:
        assert 0 <= found.noise <= 10


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([3, 4, 8]), st.integers(1, 5), st.integers(1, 9), st.integers(0, 99))
def test_packing_is_undone_and_takes_its_bits_and_no_more(bits, rows, eighths, seed):
    levels = torch.randint(0, 1 << bits, (rows, 8 * eighths), generator=torch.Generator().manual_seed(seed))
    levels = levels.to(torch.uint8)
    packed = pack(levels, bits)
    assert packed.numel() == rows * eighths * bits
    assert torch.equal(unpack(packed, bits), levels)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("bits", "group"), [(4, 32), (4, 128), (3, 64), (8, 64)])
def test_no_weight_moves_further_than_half_a_step(bits, group, symmetric):
    weight = draw(24, 256)
    weight[3] = 0.0
    weight[4, :group] = 0.7  # a group of equal weights
    groups = rounded(weight, bits, group, symmetric)
    step = groups.scales.float().abs().repeat_interleave(group, dim=1)
    # A symmetric grid has one level less on one side, so that a group's other extreme may lie a whole step out.
    bound = step * (1.01 if symmetric else 0.51) + 1e-3 * weight.abs()
    assert ((groups.floats() - weight).abs() <= bound).all()
    assert (groups.floats()[3] == 0).all()
    assert (groups.floats()[4, :group] - 0.7).abs().max() < 1e-3


def test_the_error_of_a_gaussian_is_that_of_the_literature():
    """Relative rms error of int4 groups of 32 with minimum and scale on normal weights: 0.078 by another library."""
    weight = draw(64, 512)
    relative = rms(rounded(weight, 4, 32, False).floats() - weight) / rms(weight)
    assert relative == pytest.approx(0.078, abs=0.002)


@pytest.mark.parametrize("kind", ["Q4_1", "Q4_0"])
def test_int4_groups_of_32_restore_weights_that_were_born_in_four_bits(kind):
    """Such a grid is theirs, so that int4:g32 is no test of loss on them; groups of 64 are."""
    import gguf

    name = gguf.GGMLQuantizationType[kind]
    born = torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(draw(48, 576).numpy(), name), name))
    found = rounded(born, 4, 32, kind == "Q4_0").floats()
    assert rms(found - born) / rms(born) < 1e-6
    assert rms(rounded(born, 4, 64, False).floats() - born) / rms(born) > 0.05


def test_scales_keep_their_precision_where_half_floats_would_not():
    for factor in (1e-6, 1e6):
        weight = draw(8, 64) * factor
        groups = rounded(weight, 4, 32, False)
        assert groups.scales.dtype == torch.float32
        assert rms(groups.floats() - weight) / rms(weight) < 0.1
    assert rounded(draw(8, 64), 4, 32, False).scales.dtype == torch.float16


@pytest.mark.parametrize("rows", [1, 5, 33])
@pytest.mark.parametrize("cls", [Int8Linear, W8A8Linear])
def test_integer_products_equal_plain_arithmetic(cls, rows):
    if not quant_int8.integer_products():
        pytest.skip("this CPU or build has no exact 8-bit integer products")
    weight, bias = draw(80, 72), draw(80, seed=1)
    x = draw(rows, 72, seed=2) * torch.logspace(-4, 3, rows)[:, None]
    plain, fast = cls(weight, bias, fast=False)(x), cls(weight, bias, fast=True)(x)
    # Relative to each row's largest input: 16-bit fixed point, or the same 8 bits on both ways.
    scale = (x.abs().amax(dim=1, keepdim=True)) * weight.abs().sum(dim=1)
    assert ((plain - fast).abs() <= scale * 2e-5 + 1e-6).all()
    assert (rms(fast - x @ weight.t() - bias) / rms(x @ weight.t())) < 0.02
    assert torch.equal(cls(weight, fast=True)(torch.zeros(2, 72)), torch.zeros(2, 80))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cls", [Int8Linear, W8A8Linear])
def test_plain_arithmetic_serves_every_precision_also_for_large_sums(cls, dtype):
    weight, bias, x = draw(24, 64).to(dtype), draw(24, seed=1).to(dtype), 300 * draw(3, 64, seed=2).to(dtype)
    wanted = x.float() @ weight.float().t()
    found = cls(weight, bias, fast=False)(x)
    assert found.dtype == dtype
    assert rms(found - wanted) / rms(wanted) < 0.02


def test_w8a8_rounds_each_row_by_itself():
    weight, x = draw(16, 64), draw(2, 64, seed=3)
    linear = W8A8Linear(weight)
    alone = linear(x[:1])
    assert torch.equal(linear(torch.stack((x[0], 1000 * x[1])))[:1], alone)


def test_one_channel_does_not_coarsen_another():
    weight = draw(32, 64)
    weight[5] *= 1000
    for linear in (Int8Linear(weight), Int8Linear(weight, fast=False)):
        found = linear(torch.eye(64)).t()
        others = [row for row in range(32) if row != 5]
        assert rms(found[others] - weight[others]) / rms(weight[others]) < 0.01


@pytest.mark.parametrize("rows", [1, 7, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_int4_kernel_equals_dequantised_weights(rows, dtype):
    if not quant_int4.serves(torch.device("cpu"), dtype, (48, 128), 32):
        pytest.skip("torch's 4-bit kernel does not work here")
    weight, bias, x = draw(48, 128).to(dtype), draw(48, seed=1).to(dtype), draw(rows, 128, seed=2).to(dtype)
    order = torch.randperm(128, generator=torch.Generator().manual_seed(1))
    for symmetric in (False, True):
        groups = rounded(weight, 4, 32, symmetric, torch.bfloat16)
        for columns in (None, order):
            wanted = GroupLinear(groups, bias, columns)(x).float()
            found = Int4Linear(groups, bias, columns)(x).float()
            assert (wanted - found).abs().max() < 0.02 * wanted.abs().max()


def test_large_matrices_are_unpacked_in_slices(monkeypatch):
    linear = group_linear(draw(50, 64), draw(50, seed=1), 3, 32, False)
    whole = linear(draw(3, 64, seed=2))
    monkeypatch.setattr(quant_groups, "_SLICE", 64 * 7)
    assert torch.allclose(linear(draw(3, 64, seed=2)), whole, atol=1e-5)


def test_fp8_is_refused_where_nothing_multiplies_it():
    with pytest.raises(EngineError, match=r"fp8 needs a CUDA device of the Hopper .* this is cpu"):
        maker(parse("fp8"), "cpu")
    with pytest.raises(EngineError, match="fp8 needs a CUDA"):
        load(None, 0, "fp32", 0, 90, device="cpu", quant="fp8")


def test_the_fp8_grid_is_that_of_e4m3():
    weight, x = draw(32, 64), draw(3, 64, seed=1)
    linear = quant_fp8.Fp8Linear(weight)
    error = rms(linear(x) - x @ weight.t()) / rms(x @ weight.t())
    assert 0.005 < error < 0.06
    assert linear.parts() == {"packed": 32 * 64, "scales": 32 * 4, "high_precision": 0}


@pytest.mark.parametrize(
    ("text", "bits"),
    [("int8", 8), ("w8a8", 8), ("int4:g32", 4), ("int4:g64:sym", 4), ("int4", 4), ("int3", 3), ("int3:g32", 3)],
)
def test_the_bytes_are_those_of_the_bits(text, bits):
    weight, bias = draw(64, 256), draw(64)
    linear = apply(parse(text), "x", weight, bias)
    parts = linear.parts()
    assert parts["packed"] == 64 * 256 * bits // 8
    assert parts["high_precision"] == 64 * 4
    assert 64 * 2 <= parts["scales"] <= 64 * 256 // 32 * 4 + 64 * 8
    assert linear.num_bytes == sum(parts.values()) < DenseLinear(weight, bias).num_bytes / 2


def test_a_group_that_does_not_fit_is_named_with_those_that_do():
    with pytest.raises(EngineError, match=r"mlp\.down has 576 inputs, which groups of 128 do not divide.*fit: 32, 64$"):
        apply(parse("int4:g128"), "mlp.down", draw(16, 576), None)
    with pytest.raises(EngineError, match="none of 32, 64, 128"):
        apply(parse("int3:g32"), "x", draw(16, 176), None)
    assert apply(parse("int4"), "x", draw(16, 576), None).group == 64
    assert apply(parse("int3"), "x", draw(16, 176), None).group == 16
    with pytest.raises(EngineError, match="no multiple of 8"):
        apply(parse("int4"), "x", draw(16, 12), None)


def test_noise_is_seeded_by_the_name_and_as_large_as_asked():
    weight = draw(64, 256) * 3
    one, same, other = noisy(weight, 0.1, "a"), noisy(weight, 0.1, "a"), noisy(weight, 0.1, "b")
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert rms(one - weight) / rms(weight) == pytest.approx(0.1, rel=0.03)
    kept = apply(parse("none+noise:0.1"), "a", weight, None)
    assert isinstance(kept, DenseLinear)
    assert torch.equal(kept.weight, one)


def log_chances(quant):
    """Of the next token after each of 24 prefixes of a text, by a tiny model; and the ledger."""
    model = load(None, 5, "fp32", 0, 90, device="cpu", quant=quant)
    tokens = torch.randint(0, 90, (24,), generator=torch.Generator().manual_seed(1)).tolist()
    kv = PagedKv(model.decoder.config, 24 * 6, 4, torch.float32)
    works = [
        Work(str(end), tuple(tokens[:end]), 0, tuple(range(6 * end - 6, 6 * end - 6 + -(-end // 4))), True, end == 1)
        for end in range(1, 25)
    ]
    with torch.inference_mode():
        found = model.decoder.forward(make_batch(works, 4), kv)
    return found.log_softmax(dim=-1), model.ledger()


def test_a_model_loses_the_more_the_fewer_bits_it_keeps():
    whole, plain = log_chances("none")

    def loss(quant):
        found, ledger = log_chances(quant)
        assert ledger["weights_packed"] > 0
        assert ledger["weights"] < plain["weights"]
        return float((whole.exp() * (whole - found)).sum(dim=-1).mean())

    kinds = ("int8", "int4:asym", "int3", "int8+noise:0.5")
    losses = [loss(kind) for kind in kinds]
    assert losses == sorted(losses)
    assert losses[0] < 2e-3 < losses[2]
    assert loss("w8a8") < losses[1]


def test_what_stays_in_high_precision_is_counted_there():
    _, ledger = log_chances("int8")
    fast = integer_products()  # else the head's rounded weights are kept as floats
    assert str(ledger["head"]).startswith("a copy of the embedding, " + ("int8" if fast else "dense float32"))
    assert str(ledger["products"]).startswith("int8, ")
    embedding, norms = 90 * 64 * 4, (3 * 2 + 1) * 64 * 4
    assert ledger["weights_high_precision"] == embedding * (1 if fast else 2) + norms
    assert ledger["weights_packed"] == 3 * (64 * 128 + 64 * 64 + 64 * 352 + 176 * 64) + (90 * 64 if fast else 0)
    _, other = log_chances("w8a8")
    assert other["head"] == "the embedding, dense float32"


def test_a_head_of_rounded_weights_is_the_same_with_and_without_integer_products(monkeypatch):
    weight, x = torch.randn(50, 64, generator=torch.Generator().manual_seed(1)), torch.ones(2, 64)
    found = int8_head("head", weight, None)(x)
    monkeypatch.setattr("benchlab_engine.model.quant_int8.integer_products", lambda: False)
    plain = int8_head("head", weight, None)
    assert isinstance(plain, DenseLinear)
    torch.testing.assert_close(found, plain(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("quant", ["int8", "w8a8", "int4", "int4:sym", "int3"])
def test_half_precision_models_keep_their_answers(quant, dtype):
    models = [load(None, 5, kind, 0, 90, device="cpu", quant=quant) for kind in ("fp32", dtype)]
    work = Work("a", (3, 1, 4, 1, 5, 9, 2, 6), 0, (0, 1), True, False)
    found = []
    with torch.inference_mode():
        for model in models:
            kv = PagedKv(model.decoder.config, 2, 4, model.decoder.dtype)
            found.append(model.decoder.forward(make_batch([work], 4), kv)[0])
    # Weights are rounded to half precision before they are quantised, so that a few fall on the next level.
    assert rms(found[0] - found[1]) / rms(found[0]) < 0.25
    assert models[0].ledger()["weights_packed"] == models[1].ledger()["weights_packed"]


@pytest.mark.parametrize("cls", [Int8Linear, W8A8Linear])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_no_number_spoils_no_other(cls, bad):
    weight, x = draw(32, 64), draw(3, 64, seed=1)
    for fast in (False, quant_int8.integer_products()):
        linear = cls(weight, fast=fast)
        alone = linear(x[[0, 2]])
        spoilt = x.clone()
        spoilt[1, 5] = bad
        found = linear(spoilt)
        assert torch.equal(found[[0, 2]], alone)
        assert not torch.isfinite(found[1]).all()


@pytest.mark.slow
def test_the_real_model_loses_what_its_bits_cost():
    """Teacher-forced on a licence. The file is Q4_1: int4 in groups of 32 is its own grid, 64 is not."""
    from pathlib import Path

    from benchlab_engine import fetch
    from benchlab_engine.serve.tokens_model import vocabulary_of

    path = fetch.find("smollm2-135m")
    if path is None:
        pytest.skip("not fetched: python -m benchlab_engine fetch smollm2-135m")
    text = (Path(__file__).parents[3] / "LICENSE").read_text("utf-8")[2000:4000]

    def chances(quant):
        model = load(path, 0, "fp32", 0, 90, device="cpu", quant=quant)
        tokens = tuple(vocabulary_of(path, model.metadata).encode(text)[:256])
        kv = PagedKv(model.decoder.config, 16, 16, torch.float32)
        work = Work("a", tokens, 0, tuple(range(16)), True, False, num_drafts=len(tokens) - 1)
        with torch.inference_mode():
            return model.decoder.forward(make_batch([work], 16), kv).log_softmax(dim=-1)

    whole = chances("none")

    def agreement(quant):
        return float((chances(quant).argmax(dim=-1) == whole.argmax(dim=-1)).float().mean())

    assert agreement("int4:g32") > 0.96
    assert agreement("int8") > 0.92
    assert 0.4 < agreement("int4:g64") < 0.9
    assert agreement("int8+noise:0.2") < 0.4
