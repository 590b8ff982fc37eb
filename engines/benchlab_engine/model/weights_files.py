"""Tensors that are read from their file when they are asked for.

The one idea: a mapping of names to tensors that knows every shape without reading any, so that a model is built layer
by layer and never lies in memory twice. It must not know file formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

from benchlab_engine.model.quant_groups import Packed

Reader = Callable[[], Tensor]
PackedReader = Callable[[], Packed]


class LazyTensors(Mapping[str, Tensor]):
    """shapes: of every tensor. readers: how each is read; called anew at each look-up, its result is the caller's.

    packed: weights that lie quantised in the file; looked up as the others are, they come as floats.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        readers: Mapping[str, Reader],
        packed: Mapping[str, PackedReader] | None = None,
    ) -> None:
        self.shapes = dict(shapes)
        self._readers = dict(readers)
        self._packed = dict(packed or {})

    def __getitem__(self, name: str) -> Tensor:
        if name in self._packed:
            return self._packed[name]().floats()
        return self._readers[name]()

    def __contains__(self, name: object) -> bool:
        return name in self.shapes  # without reading

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def reader(self, name: str) -> Reader:
        """How a tensor is read."""
        return self._readers[name]


def shape_of(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...]:
    """The shape of a tensor, read only where there is no other way."""
    if isinstance(tensors, LazyTensors):
        return tensors.shapes[name]
    return tuple(tensors[name].shape)


def packed_of(tensors: Mapping[str, Tensor], name: str) -> Packed | None:
    """The weight as it lies quantised in the file; None for plain floats."""
    if isinstance(tensors, LazyTensors) and name in tensors._packed:
        return tensors._packed[name]()
    return None
