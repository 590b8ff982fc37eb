"""Tensors that are read from their file when they are asked for.

The one idea: a mapping of names to tensors that knows every shape without reading any, so that a model is built layer
by layer and never lies in memory twice. It must not know file formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

Reader = Callable[[], Tensor]


class LazyTensors(Mapping[str, Tensor]):
    """shapes: of every tensor. readers: how each is read; called anew at each look-up, its result is the caller's."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], readers: Mapping[str, Reader]) -> None:
        self.shapes = dict(shapes)
        self._readers = dict(readers)

    def __getitem__(self, name: str) -> Tensor:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


def shape_of(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...]:
    """The shape of a tensor, read only where there is no other way."""
    if isinstance(tensors, LazyTensors):
        return tensors.shapes[name]
    return tuple(tensors[name].shape)
