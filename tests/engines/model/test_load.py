"""The room's door: devices and dtypes by name, what is refused, and a ledger that adds up."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

from benchlab_engine.core.plan import StepPlan, Work  # noqa: E402
from benchlab_engine.errors import EngineError  # noqa: E402
from benchlab_engine.model.load import device_of, dtype_of, load  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model():
    return load(None, 0, "auto", 1, 258, device="cpu")


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:", "cpu:1", "mps", ""])
def test_an_unknown_device_is_a_usage_error(name):
    if name == "cuda:" and torch.cuda.is_available():
        pytest.skip("read as cuda")
    with pytest.raises(EngineError, match="--device"):
        device_of(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_one_clear_message():
    assert device_of("auto") == CPU
    with pytest.raises(EngineError, match=r"--device cuda:3: torch sees no CUDA device \(.*\); use --device cpu"):
        load(None, 0, "auto", 1, 258, device="cuda:3")


def test_dtypes():
    assert dtype_of("auto", CPU) == torch.float32
    assert dtype_of("bf16", CPU) == torch.bfloat16
    with pytest.raises(EngineError, match="'fp4' is not known; use auto, fp32, bf16, fp16"):
        dtype_of("fp4", CPU)


def test_what_is_neither_directory_nor_gguf_is_said(tmp_path):
    file = tmp_path / "weights.bin"
    file.write_bytes(b"0")
    with pytest.raises(EngineError, match=r"neither a directory nor a \.gguf file"):
        load(file, 0, "auto", 1, 258)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_every_dtype_computes_nearly_the_same(dtype, model):
    work = Work("a", tuple(range(30)), 0, tuple(range(4)), True, False)
    other = load(None, 0, dtype, 1, 258, device="cpu")
    one, two = (each.runner(8, 8, max_seqs=2, max_batched_tokens=16) for each in (model, other))
    from benchlab_engine.model.batch import make_batch

    with torch.inference_mode():
        found = [each.decoder.forward(make_batch([work], 8), each.kv) for each in (one, two)]
    assert (found[0] - found[1]).abs().max() < {"fp32": 1e-6, "fp16": 2e-2, "bf16": 2e-1}[dtype]
    assert two.execute(StepPlan(0, (work,))).tokens["a"]


def test_the_ledger_adds_up(model):
    before = load(None, 0, "auto", 1, 258, device="cpu").ledger()
    assert before["workspace_method"] == "not measured"
    assert before["kv"] == 0
    model.runner(16, 8, kv_dtype="int8", max_seqs=4, max_batched_tokens=64)
    ledger = model.ledger()
    parts = [ledger[f"weights_{each}"] for each in ("packed", "scales", "high_precision")]
    assert ledger["weights"] == sum(parts) == model.decoder.num_bytes
    assert ledger["kv"] == 16 * 8 * ledger["kv_per_token"]
    assert ledger["kv_per_token"] == 3 * 2 * 2 * (16 + 2)
    assert (ledger["kv_dtype"], ledger["attention"], ledger["graphs"]) == ("int8", "plain", "off")
    assert ledger["workspace_method"] != "not measured"
    assert isinstance(ledger["workspace_peak"], int)


def test_blocks_nobody_counted(model):
    assert model.auto_blocks(16, 1000) == 63
    row = model.kv_per_token("auto") * 16
    assert model.auto_blocks(16, 10**12) == (1 << 30) // row
    assert model.auto_blocks(16, 10**12, "int8") > 3 * ((1 << 30) // row)
    assert model.auto_blocks(16, 10**12, draft=model) == (1 << 30) // (2 * row)


def test_a_cache_that_cannot_be_had_names_its_phase(model):
    with pytest.raises(EngineError, match="kv: no memory: lower --kv-blocks"):
        model.runner(1 << 40, 16)
    model.runner(4, 16)  # and the model is whole


def test_what_the_runner_is_asked_for_in_vain_is_named(model):
    with pytest.raises(EngineError, match="'fp4' is not known"):
        model.runner(4, 16, kv_dtype="fp4")
    with pytest.raises(EngineError, match="'flash' is not known"):
        model.runner(4, 16, attention="flash")


def test_a_draft_shares_blocks_and_is_in_the_ledger(model):
    draft = load(None, 1, "auto", 1, 258, device="cpu")
    runner = model.runner(16, 8, draft=draft, max_seqs=2, max_batched_tokens=32)
    table = tuple(range(3))
    runner.execute(StepPlan(0, (Work("a", tuple(range(9)), 0, table, True, False),)))
    found = runner.execute(StepPlan(1, (Work("a", (5,), 9, table, True, True, num_to_draft=3),)))
    assert 1 <= len(found.tokens["a"]) <= 4
    ledger = model.ledger()
    assert ledger["draft_weights"] == draft.decoder.num_bytes
    assert ledger["draft_kv"] == ledger["kv"]
    model.runner(16, 8)
    assert model.ledger()["draft_weights"] == 0
