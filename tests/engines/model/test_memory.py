"""Shortages name their phase; peaks are seen, not estimated; a pool's size is arithmetic."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

from benchlab_engine.errors import EngineError  # noqa: E402
from benchlab_engine.model.memory import (  # noqa: E402
    RESERVE,
    SHARE,
    available,
    blocks_on_cpu,
    blocks_that_fit,
    check_room,
    is_shortage,
    peak,
    phase,
)

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize("name", ["load", "kv", "prefill", "graph capture"])
@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB\nmore lines"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_a_shortage_names_its_phase_and_what_would_need_less(name, error):
    with pytest.raises(EngineError, match=rf"^{name}: no memory: \w+ .*--") as caught, phase(name):
        raise error
    assert "\n" not in str(caught.value)


def test_what_is_no_shortage_passes():
    assert not is_shortage(RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes differ"), phase("kv"):
        raise RuntimeError("shapes differ")


def test_a_real_allocation_that_is_too_large_is_told():
    with pytest.raises(EngineError, match="kv: no memory"), phase("kv"):
        torch.zeros(1 << 50)


def test_memory_that_is_only_promised_is_not_taken():
    cpu = torch.device("cpu")
    check_room(1, cpu)
    if available() is None:
        pytest.skip("this system does not say what is available")
    with pytest.raises(EngineError, match=r"kv: no memory: .* are asked for, .* MiB are available"), phase("kv"):
        check_room(2 * available() + GIB, cpu)


def test_a_peak_is_what_was_held_at_once():
    def run():
        first = torch.ones(64 * MIB // 4)
        first += torch.ones(64 * MIB // 4)

    found = peak(torch.device("cpu"), run)
    if not found.method.startswith("peak of"):
        pytest.skip("this system does not let a process reset its high-water mark")
    assert 120 * MIB < found.num_bytes < 200 * MIB
    assert peak(torch.device("cpu"), lambda: None).num_bytes < 16 * MIB


def test_the_blocks_of_a_device_are_what_is_left():
    free, most, block = 20 * GIB, 2 * GIB, 2 * MIB
    room = int(free * SHARE) - most - RESERVE
    assert blocks_that_fit(free, most, block, 10**6) == room // block
    assert blocks_that_fit(free, most, block, 100) == 400
    with pytest.raises(EngineError, match=r"kv: no memory: of 2,048 MiB free .* the largest step needs 2,048 MiB"):
        blocks_that_fit(2 * GIB, most, block, 10)


def test_the_blocks_of_a_cpu_are_what_is_wanted_up_to_a_limit():
    assert blocks_on_cpu(MIB, 10) == 10
    assert blocks_on_cpu(MIB, 10**6) == 1024
    assert blocks_on_cpu(2 * GIB, 10) == 1
