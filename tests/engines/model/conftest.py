"""What the tests of the model room share. It loads where torch is not installed."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def one_thread():
    """Tiny models in one thread; what was set before comes back afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
