"""Triton's interpreter, for kernels where there is no GPU.

The one idea: whether a kernel is compiled or interpreted is decided when it is decorated, for Triton's own library at
its first import; so that import happens here, under the switch, whichever test comes first. With a GPU there is
nothing to interpret: the same kernels are tested on it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

SWITCH = "TRITON_INTERPRET"


def _why_not() -> str | None:
    import torch

    if importlib.util.find_spec("triton") is None:
        return "triton is not installed (pip install triton)"
    if torch.cuda.is_available():
        return "the kernel is tested on the CUDA device"
    if "triton" in sys.modules:
        return "triton was imported without its interpreter before"
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = "1"
    try:
        importlib.import_module("benchlab_engine.model.attention_triton")
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before
    return None


NO_INTERPRETER = _why_not()
"""Why kernels cannot be interpreted in this process, or None. Set SWITCH to 1 around what chooses a path."""
