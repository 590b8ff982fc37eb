"""Decode steps in fixed buffers: what is padded, what is refused, and that the answer is the decoder's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

from benchlab_engine.core.plan import Work  # noqa: E402
from benchlab_engine.errors import EngineError  # noqa: E402
from benchlab_engine.model import weights  # noqa: E402
from benchlab_engine.model.attention import choose  # noqa: E402
from benchlab_engine.model.batch import make_batch  # noqa: E402
from benchlab_engine.model.config import tiny  # noqa: E402
from benchlab_engine.model.decoder import Decoder  # noqa: E402
from benchlab_engine.model.graphs import Buffers, DecodeGraphs, sizes  # noqa: E402
from benchlab_engine.model.kv import PagedKv  # noqa: E402
from tests.support.triton_interpreter import NO_INTERPRETER, SWITCH  # noqa: E402

SIZE, BLOCKS, WIDTH = 4, 32, 8
CONFIG = tiny(258)


def cache(device="cpu", dtype=torch.float32):
    kv = PagedKv(CONFIG, BLOCKS, SIZE, dtype, "auto", device, spare=1)
    kv.rows.copy_(torch.randn(kv.rows.shape, generator=torch.Generator().manual_seed(2)))
    return kv


def decodes(count, length=9, samples=True):
    return make_batch(
        [Work(str(n), (n + 1,), length + n, tuple(range(5 * n, 5 * n + 5)), samples, True) for n in range(count)], SIZE
    )


@pytest.mark.parametrize(("most", "expected"), [(1, (1,)), (2, (1, 2)), (5, (1, 2, 4, 8)), (8, (1, 2, 4, 8))])
def test_sizes_are_powers_of_two_up_to_the_first_that_holds_all(most, expected):
    assert sizes(most) == expected


def test_rows_that_fill_up_hold_the_spare_block_also_after_a_fuller_step():
    kv = cache()
    buffers = Buffers(4, WIDTH, kv)
    buffers.fill(decodes(4))
    batch = decodes(2)
    buffers.fill(batch)
    assert buffers.tokens.tolist() == [1, 2, 0, 0]
    assert buffers.positions.tolist() == [9, 10, 0, 0]
    assert buffers.slots.tolist() == [*batch.slots.tolist(), BLOCKS * SIZE, BLOCKS * SIZE]
    tables = buffers.tiles.tables
    assert tables[:2, :3].tolist() == [[0, 1, 2], [5, 6, 7]]
    assert tables[2:, 0].tolist() == [BLOCKS, BLOCKS]
    assert buffers.tiles.count.tolist() == [1, 1, 1, 1]
    assert buffers.tiles.row.tolist() == [0, 1, 2, 3]


def test_only_plain_decode_steps_that_have_room_fit():
    buffers = Buffers(2, 3, cache())
    assert buffers.fits(decodes(2))
    assert not buffers.fits(decodes(3))
    assert not buffers.fits(decodes(1, length=12))  # a fourth block
    assert not buffers.fits(decodes(1, samples=False))
    assert not buffers.fits(make_batch([Work("a", (1, 2), 3, (0, 1), True, True, num_drafts=1)], SIZE))
    assert not buffers.fits(make_batch([Work("a", (1, 2), 3, (0, 1), True, False)], SIZE))


def test_a_capture_that_fails_names_its_phase(monkeypatch):
    decoder, kv = Decoder(CONFIG, weights.random(CONFIG, 0), torch.float32), cache()

    def out_of_memory(self, buffers, pool):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(DecodeGraphs, "_capture", out_of_memory)
    with pytest.raises(EngineError, match=r"graph capture: no memory: lower --max-seqs .*CUDA out of memory"):
        DecodeGraphs(decoder, kv, 4, WIDTH)
    monkeypatch.undo()
    if not torch.cuda.is_available():  # and one that cannot be is an error of the same phase, not a traceback
        with pytest.raises(EngineError, match=r"graph capture: a decode step of 4 sequences cannot be captured"):
            DecodeGraphs(decoder, kv, 4, WIDTH)


@pytest.mark.skipif(NO_INTERPRETER is not None, reason=str(NO_INTERPRETER))
def test_padded_steps_give_the_decoders_logits_and_touch_no_block_but_their_own(monkeypatch):
    monkeypatch.setenv(SWITCH, "1")
    decoder, kv, other = Decoder(CONFIG, weights.random(CONFIG, 0), torch.float32), cache(), cache()
    steps = DecodeGraphs(decoder, kv, 4, WIDTH, capture=False)
    kv.rows.copy_(other.rows)  # as before the padded steps that a capture runs
    with torch.inference_mode():
        for count in (3, 1, 4):
            batch = decodes(count)
            assert (steps.forward(batch, kv) - decoder.forward(batch, other)).abs().max() < 1e-4
        assert steps.replays == 3
        assert (kv.rows - other.rows)[:, : BLOCKS * SIZE].abs().max() < 1e-5
        chunk = make_batch([Work("a", (1, 2, 3), 0, (30,), True, False)], SIZE)
        assert (steps.forward(chunk, kv) - decoder.forward(chunk, other)).abs().max() < 1e-5
        assert (steps.forward(decodes(2), other) - decoder.forward(decodes(2), other)).abs().max() < 1e-5
        assert steps.replays == 3  # neither a chunk nor another cache is replayed


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_replayed_steps_give_the_decoders_logits_on_a_device():
    decoder = Decoder(CONFIG, weights.random(CONFIG, 0), torch.bfloat16, device="cuda")
    kv, other = cache("cuda", torch.bfloat16), cache("cuda", torch.bfloat16)
    decoder.attention = choose("fast", kv.device, kv)
    steps = DecodeGraphs(decoder, kv, 8, WIDTH)
    kv.rows.copy_(other.rows)
    with torch.inference_mode():
        for count in (3, 1, 6, 5):
            batch = decodes(count)
            assert (steps.forward(batch, kv) - decoder.forward(batch, other)).abs().max() < 5e-2
    assert steps.replays == 4
