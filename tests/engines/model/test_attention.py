"""Both attention paths against one written without blocks, groups or masks; the kernel under its interpreter."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

from benchlab_engine.core.plan import Work  # noqa: E402
from benchlab_engine.errors import EngineError  # noqa: E402
from benchlab_engine.model.attention import PlainAttention, choose  # noqa: E402
from benchlab_engine.model.batch import make_batch  # noqa: E402
from benchlab_engine.model.config import tiny  # noqa: E402
from benchlab_engine.model.kv import PagedKv  # noqa: E402
from tests.support.triton_interpreter import NO_INTERPRETER, SWITCH  # noqa: E402

SIZE, BLOCKS = 4, 200
CPU = torch.device("cpu")
HAS_TRITON = importlib.util.find_spec("triton") is not None
SHAPES = {
    "grouped": tiny(258),
    "windowed": replace(tiny(258), window=7, first_window_layer=1),
    "a head each": replace(tiny(258), num_kv_heads=4),
    "odd sizes": replace(tiny(258), num_heads=6, num_kv_heads=2, head_dim=24),
}
# (tokens, start) of each sequence: decodes near and far apart, proposals, chunks from the start and in the middle
STEP = ((1, 9), (1, 70), (1, 400), (1, 0), (3, 17), (3, 2), (20, 11), (17, 0), (6, 0), (6, 0))


@pytest.fixture
def interpreter(monkeypatch):
    if NO_INTERPRETER:
        pytest.skip(NO_INTERPRETER)
    monkeypatch.setenv(SWITCH, "1")


def step(config, kv_dtype="auto", device=CPU, dtype=torch.float32, shape=STEP):
    """A batch over a full cache, the rows of its layers, and the sequences' works."""
    generator = torch.Generator().manual_seed(1)
    kv = PagedKv(config, BLOCKS, SIZE, dtype, kv_dtype, device)
    width = config.num_heads + 2 * config.num_kv_heads

    def drawn(count, heads):
        return torch.randn(count, heads, config.head_dim, generator=generator).to(device, dtype)

    for layer in range(config.num_layers):
        kv.write(layer, torch.arange(BLOCKS * SIZE, device=device), drawn(BLOCKS * SIZE, 2 * config.num_kv_heads))
    order = torch.randperm(BLOCKS, generator=generator).tolist()
    works = []
    for index, (count, start) in enumerate(shape):
        need = -(-(start + count) // SIZE)
        works.append(Work(str(index), (0,) * count, start, tuple(order[:need]), True, count == 1))
        order = order[need:]
    batch = make_batch(works, SIZE)
    joined = drawn(len(batch.tokens), width)
    for layer in range(config.num_layers):
        kv.write(layer, batch.slots.to(device), joined[:, config.num_heads :])
    return batch, kv, joined, works


def naive(config, kv, batch, joined, layer, works):
    """Softmax over what each row may see, one row and one head at a time, in float64."""
    window = config.window if config.window and layer >= config.first_window_layer else 1 << 30
    tables = {tuple(each.block_table): each for each in works}
    out = torch.zeros(len(joined), config.num_heads, config.head_dim, dtype=torch.float64)
    row = 0
    for each in sorted(tables.values(), key=lambda each: (len(each.token_ids), each.start)):
        keys, values = (part[0].double() for part in kv.read(layer, torch.tensor([each.block_table]), 10**6))
        for offset in range(len(each.token_ids)):
            at = each.start + offset
            seen = slice(max(0, at - window + 1), at + 1)
            for head in range(config.num_heads):
                group = head // (config.num_heads // config.num_kv_heads)
                scores = keys[group, seen] @ joined[row, head].double() / config.head_dim**0.5
                out[row, head] = scores.softmax(0) @ values[group, seen]
            row += 1
    return out.view(len(joined), -1)


@pytest.mark.parametrize("kv_dtype", ["auto", "int8", "fp8"])
@pytest.mark.parametrize("name", list(SHAPES))
def test_the_plain_path_is_softmax_over_what_may_be_seen(name, kv_dtype):
    config = SHAPES[name]
    batch, kv, joined, works = step(config, kv_dtype)
    attend = PlainAttention().prepare(batch, config, kv)
    for layer in (0, 2):
        expected = naive(config, kv, batch, joined, layer, works)
        assert (attend(layer, joined) - expected).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("name", "kv_dtype"), [*((name, "auto") for name in SHAPES), ("windowed", "int8"), ("grouped", "fp8")]
)
def test_the_kernel_equals_the_plain_path(name, kv_dtype, interpreter):
    config = SHAPES[name]
    batch, kv, joined, _ = step(config, kv_dtype, shape=STEP[:2] + STEP[3:])
    plain = PlainAttention().prepare(batch, config, kv)
    fast = choose("fast", CPU, kv)
    assert fast.name == "fast"
    attend = fast.prepare(batch, config, kv)
    for layer in (0, 2):
        assert (attend(layer, joined) - plain(layer, joined)).abs().max() < 1e-5


def test_the_kernel_in_half_precision(interpreter):
    config = SHAPES["windowed"]
    batch, kv, joined, _ = step(config, dtype=torch.float16, shape=STEP[:2] + STEP[4:7])
    plain = PlainAttention().prepare(batch, config, kv)
    attend = choose("fast", CPU, kv).prepare(batch, config, kv)
    assert (attend(2, joined) - plain(2, joined)).abs().max() < 4e-3


def test_few_decodes_are_split_and_many_are_not(interpreter):
    from benchlab_engine.model.attention_fast import tiles

    groups = make_batch([Work(str(n), (0,), 5, (n, n), True, True) for n in range(64)], SIZE).groups
    assert tiles(groups, 1, CPU).splits(kv_heads=8) == 1
    few = make_batch([Work("a", (0,), 5, (1, 2), True, True)], SIZE).groups
    assert tiles(few, 1, CPU).splits(kv_heads=8) == 16
    chunk = make_batch([Work("a", (0,) * 40, 5, tuple(range(12)), True, False)], SIZE).groups
    found = tiles(chunk, 16, CPU)
    assert found.splits(kv_heads=8) == 1
    assert found.count.tolist() == [16, 16, 8]
    assert found.position.tolist() == [5, 21, 37]


COMPILE = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from benchlab_engine.model.attention_triton import attend_tiles, join_splits

def build(kernel, types, constants, capability):
    names = [each.name for each in kernel.params]
    signature = {name: "constexpr" if name in constants else types[name] for name in names}
    source = ASTSource(kernel, signature, {(names.index(name),): value for name, value in constants.items()})
    assert compile(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"]

ints = dict.fromkeys(("query_stride", "table_width", "num_rows", "window"), "i32") | {"scale": "fp32"}
ints |= dict.fromkeys(("tables", "sequence_of", "row_of", "count_of", "position_of"), "*i32")
plain, narrow = [("*bf16", "*bf16"), ("*i8", "*fp16")], [("*fp8e4nv", "*fp16")]  # fp8 from 8.9 on
kinds = [(each, 80) for each in plain] + [(each, 90) for each in plain + narrow]
for (rows, scales), capability in kinds:
    for splits, block_m in ((16, 16), (1, 64)):
        found = "*fp32" if splits > 1 else "*bf16"
        build(attend_tiles, ints | {"queries": "*bf16", "rows": rows, "scales": scales, "found": found,
              "maxima": found, "totals": found},
              {"KV_HEADS": 8, "SHARED": 4, "DIM": 128, "BLOCK_D": 128, "BLOCK_M": block_m, "BLOCK_N": 64,
               "BLOCK_SIZE": 16, "SPLITS": splits, "QUANTISED": rows != "*bf16", "PRECISION": "tf32"}, capability)
for capability in (80, 90):
    build(join_splits, {"parts": "*fp32", "maxima": "*fp32", "totals": "*fp32", "found": "*bf16", "num_rows": "i32"},
          {"HEADS": 32, "DIM": 128, "BLOCK_D": 128, "SPLITS": 16}, capability)
"""


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed (pip install triton)")
def test_the_kernels_compile_for_a_device_that_is_not_here():
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_path_that_cannot_serve_is_refused_with_the_reason(monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    kv = PagedKv(tiny(258), 4, SIZE, torch.float32)
    assert choose("auto", CPU, kv).name == "plain"
    with pytest.raises(EngineError, match=r"--attention fast: (triton is not installed|.*needs a CUDA device)"):
        choose("fast", CPU, kv)
    with pytest.raises(EngineError, match="'flash' is not known"):
        choose("flash", CPU, kv)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kv_dtype", ["auto", "int8", "fp8"])
@pytest.mark.parametrize("name", list(SHAPES))
def test_the_kernel_equals_the_plain_path_on_a_device(name, kv_dtype):
    device = torch.device("cuda")
    for dtype, bound in ((torch.float32, 1e-4), (torch.bfloat16, 3e-2)):
        batch, kv, joined, _ = step(SHAPES[name], kv_dtype, device, dtype)
        plain = PlainAttention().prepare(batch, SHAPES[name], kv)
        attend = choose("fast", device, kv).prepare(batch, SHAPES[name], kv)
        for layer in (0, 2):
            assert (attend(layer, joined) - plain(layer, joined)).abs().max() < bound
