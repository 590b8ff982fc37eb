"""What a matrix product costs in each way that torch offers on a CPU: why dense weights are packed, and int8 is ours.

    python -m tests.benchmarks.engine_products [--threads 2] [--repeats 15]

Milliseconds, fp32, the best of the repeats: 30 products, each with a matrix of its own, as a pass through 30 layers has
them. "int8 ours" is Int8Linear, by integers where this CPU multiplies them exactly; "int8pack" is torch's
`_weight_int8pack_mm`, at one row only: at 512 it takes seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from benchlab_engine.model.linear import DenseLinear
from benchlab_engine.model.quant_int8 import Int8Linear, integer_products, rounded

_LAYERS = 30
_ONE_ROW = "int8pack"


def _left(weight: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.mm(weight, x.t()).t().contiguous()


def _int8pack(weight: Tensor) -> Callable[[Tensor], Tensor]:
    levels, scales = rounded(weight)
    return lambda x: torch._weight_int8pack_mm(x, levels, scales)


WAYS: dict[str, Callable[[Tensor], Callable[[Tensor], Tensor]]] = {
    "F.linear": lambda weight: lambda x: F.linear(x, weight),
    "left operand": _left,
    "oneDNN, plain": lambda weight: DenseLinear(weight, keep=True),
    "oneDNN, packed": DenseLinear,
    "int8 ours": Int8Linear,
    _ONE_ROW: _int8pack,
}


def _best_ms(products: Sequence[Callable[[Tensor], Tensor]], x: Tensor, repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats + 1):
        start = time.perf_counter()
        for product in products:
            product(x)
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"torch {torch.__version__}, {given.threads} threads; exact integer products: {integer_products()}")
    print(f"{'matrix':<12} {'rows':>5} " + " ".join(f"{way:>15}" for way in WAYS))
    with torch.inference_mode():
        for out_features, in_features in ((960, 576), (3072, 576)):
            made = {
                way: [make(torch.randn(out_features, in_features)) for _ in range(_LAYERS)]
                for way, make in WAYS.items()
            }
            for rows in (1, 8, 32, 512):
                x = torch.randn(rows, in_features)
                cells = [
                    "" if way == _ONE_ROW and rows > 1 else f"{_best_ms(products, x, given.repeats):.1f}"
                    for way, products in made.items()
                ]
                title = f"{out_features} x {in_features}"
                print(f"{title:<12} {rows:>5} " + " ".join(f"{cell:>15}" for cell in cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
