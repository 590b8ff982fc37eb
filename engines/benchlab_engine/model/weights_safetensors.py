"""A Hugging Face directory: config.json and safetensors, in one file or in shards.

The one idea: the index, where there is one, says which file holds which tensor, and only those files are opened; a
tensor is read when it is asked for. It must not know the decoder.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from benchlab_engine.errors import EngineError
from benchlab_engine.model.checkpoint import packed_tensors, scheme_of
from benchlab_engine.model.config import DecoderConfig, from_hugging_face
from benchlab_engine.model.weights_files import LazyTensors, Reader

INDEX = "model.safetensors.index.json"
_FLOATS = ("F32", "F16", "BF16", "F64")


def read_directory(path: Path) -> tuple[DecoderConfig, LazyTensors]:
    """EngineError names the file that is missing or broken, or what the config asks for in vain."""
    config = read_config(path)
    shape, scheme = from_hugging_face(config), scheme_of(config)
    tensors = open_tensors(path, _FLOATS if scheme is None else ())
    return shape, tensors if scheme is None else packed_tensors(scheme, tensors, shape.qkv_bias)


def read_config(path: Path) -> dict[str, Any]:
    """The config.json of a directory."""
    file = path / "config.json"
    if not file.is_file():
        raise EngineError(f"{path} has no config.json; a Hugging Face model directory is expected")
    return _read_json(file)


def open_tensors(path: Path, kinds: tuple[str, ...] = ()) -> LazyTensors:
    """Every tensor of the directory, by name; their shapes are read, their contents not yet.

    kinds: reading one of another type is an EngineError; (): any will do.
    """
    places = _places(path)
    shapes: dict[str, tuple[int, ...]] = {}
    readers: dict[str, Reader] = {}
    for file in sorted(set(places.values())) if places else _whole_files(path):
        wanted = {name for name, place in places.items() if place == file} if places else None
        found = _open(file, kinds)
        if wanted is not None and not wanted <= set(found):
            raise EngineError(f"{file} lacks {min(wanted - set(found))}, which {INDEX} says it holds")
        for name, (shape, reader) in found.items():
            if wanted is None or name in wanted:
                shapes[name], readers[name] = shape, reader
    return LazyTensors(shapes, readers)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text("utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise EngineError(
            f"{file} cannot be read as a model's JSON ({type(error).__name__}: {error}); is it whole? fetch it again"
        ) from error
    if not isinstance(value, dict):
        raise EngineError(f"{file} holds {type(value).__name__}, not a JSON object")
    return value


def _places(path: Path) -> dict[str, Path]:
    """Which file holds which tensor, by the index; empty without one."""
    index = path / INDEX
    if not index.is_file():
        return {}
    places = _read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise EngineError(f"{index} has no weight_map")
    files = sorted({str(place) for place in places.values()})
    for name in files:
        if Path(name).name != name:
            raise EngineError(f"{index} names {name!r}; only files beside it are read")
        if not (path / name).is_file():
            raise EngineError(f"{path} lacks {name}, one of {len(files)} files that {INDEX} lists; fetch it again")
    return {str(name): path / str(place) for name, place in places.items()}


def _whole_files(path: Path) -> list[Path]:
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise EngineError(
            f"{path} has no .safetensors file; weights are read from those, or from a FILE.gguf given by name"
        )
    return files


def _open(file: Path, kinds: tuple[str, ...]) -> dict[str, tuple[tuple[int, ...], Reader]]:
    """name -> (shape, reader). The file stays mapped as long as a reader lives."""
    from safetensors import SafetensorError, safe_open

    try:
        handle: Any = safe_open(str(file), framework="pt")
        names = list(handle.keys())
        shapes = {name: tuple(int(size) for size in handle.get_slice(name).get_shape()) for name in names}
    except (SafetensorError, ValueError, OSError) as error:
        raise EngineError(
            f"{file} cannot be read as a model ({type(error).__name__}: {error}); is the file whole? fetch it again"
        ) from error
    return {name: (shapes[name], _reader(file, handle, name, kinds)) for name in names}


def _reader(file: Path, handle: Any, name: str, kinds: tuple[str, ...]) -> Callable[[], Tensor]:
    def read() -> Tensor:
        from safetensors import SafetensorError

        try:
            kind = str(handle.get_slice(name).get_dtype())
            if kinds and kind not in kinds:
                raise EngineError(
                    f"{file}: {name} has the type {kind}, and config.json has no quantization_config that says how to "
                    f"read it; plain weights are {', '.join(kinds)}"
                )
            # A copy: what safetensors gives is the mapped file itself, and would change with it.
            tensor: Tensor = handle.get_tensor(name).clone()
        except (SafetensorError, ValueError, OSError, RuntimeError) as error:
            raise EngineError(f"{file}: {name} cannot be read: {type(error).__name__}: {error}") from error
        return tensor

    return read
