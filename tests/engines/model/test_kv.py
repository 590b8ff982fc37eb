"""The paged cache: what is written is what is read, in every format, and its bytes are what it says."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

from benchlab_engine.errors import EngineError  # noqa: E402
from benchlab_engine.model.config import tiny  # noqa: E402
from benchlab_engine.model.kv import PagedKv, kv_format  # noqa: E402

CONFIG, SIZE, BLOCKS = tiny(258), 4, 10
# The largest error of an element, as a share of its row's largest: half a step of the format, and of its scale.
BOUNDS = {"auto": 0.0, "int8": 0.5 / 127 + 2**-11, "fp8": 2**-4 + 2**-11}


def rows(count, seed=0, size=1.0):
    generator = torch.Generator().manual_seed(seed)
    return size * torch.randn(count, 2 * CONFIG.num_kv_heads, CONFIG.head_dim, generator=generator)


@pytest.mark.parametrize("size", [1e-3, 1.0, 300.0])
@pytest.mark.parametrize("name", list(BOUNDS))
def test_what_is_written_is_read_back(name, size):
    kv = PagedKv(CONFIG, BLOCKS, SIZE, torch.float32, name)
    written = rows(6, size=size)
    written[2] = 0.0
    blocks = torch.tensor([[7, 2]])
    slots = torch.tensor([28, 29, 30, 31, 8, 9])
    kv.write(1, slots, written)
    keys, values = kv.read(1, blocks, 6)
    assert keys.shape == values.shape == (1, CONFIG.num_kv_heads, 6, CONFIG.head_dim)
    found = torch.cat((keys, values), dim=1)[0].transpose(0, 1)
    error = (found - written).abs() / written.abs().amax(dim=-1, keepdim=True).clamp_min(1e-30)
    assert error.max() <= BOUNDS[name]
    assert (found[2] == 0).all()
    assert kv.read(0, blocks, 6)[0].abs().max() == 0  # other layers are not touched


@pytest.mark.parametrize("name", list(BOUNDS))
def test_bytes_are_those_of_the_tensors(name):
    kv = PagedKv(CONFIG, BLOCKS, SIZE, torch.float32, name)
    per_token = kv_format(name, torch.float32).bytes_per_token(CONFIG)
    assert kv.num_bytes == BLOCKS * SIZE * per_token
    values = 2 * CONFIG.num_layers * CONFIG.num_kv_heads * CONFIG.head_dim
    scales = 2 * CONFIG.num_layers * CONFIG.num_kv_heads * 2
    assert per_token == (4 * values if name == "auto" else values + scales)


@pytest.mark.parametrize("name", list(BOUNDS))
def test_blocks_are_copied_whole_in_all_layers(name):
    kv = PagedKv(CONFIG, BLOCKS, SIZE, torch.float32, name)
    slots = torch.arange(BLOCKS * SIZE)
    for layer in range(CONFIG.num_layers):
        kv.write(layer, slots, rows(len(slots), layer))
    before = [torch.cat(kv.read(layer, torch.arange(BLOCKS)[None], BLOCKS * SIZE), dim=1)[0] for layer in range(3)]
    kv.copy(((2, 5), (3, 9)))
    for layer in range(CONFIG.num_layers):
        after = torch.cat(kv.read(layer, torch.arange(BLOCKS)[None], BLOCKS * SIZE), dim=1)[0]
        expected = before[layer].clone()
        expected[:, 20:24], expected[:, 36:40] = before[layer][:, 8:12], before[layer][:, 12:16]
        assert torch.equal(after, expected)
    kv.copy(())


def test_a_spare_block_lies_behind_the_pool():
    kv = PagedKv(CONFIG, BLOCKS, SIZE, torch.float32, spare=1)
    assert kv.rows.shape[1] == (BLOCKS + 1) * SIZE
    assert kv.num_blocks == BLOCKS


def test_an_unknown_format_is_named():
    with pytest.raises(EngineError, match="'int3' is not known; use auto, int8, fp8"):
        kv_format("int3", torch.float32)
