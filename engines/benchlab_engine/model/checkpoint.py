"""What a config.json says about weights that come quantised, and the tensors of such a checkpoint.

The one idea: each packed module stands in the mapping under the name of the weight it replaces, so that the decoder
asks for it as for any other; here the schemes are told apart and what is not read is refused by name. It must not know
how integers lie in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchlab_engine.errors import EngineError
from benchlab_engine.model.checkpoint_words import unpack_awq, unpack_compressed, unpack_gptq
from benchlab_engine.model.quant_groups import Groups, Packed
from benchlab_engine.model.weights_files import LazyTensors, PackedReader, Reader

SUPPORTED = (
    "awq (4 bits, gemm), gptq (4 or 8 bits, checkpoint_format gptq or gptq_v2), "
    "compressed-tensors (format pack-quantized, 4 or 8 bits, weights only)"
)


@dataclass(frozen=True, slots=True)
class Scheme:
    """method: awq, gptq or compressed. group: weights a group, 0: a whole row. offset: added to stored zeros."""

    method: str
    bits: int
    group: int
    offset: int = 0

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of a module's tensors beside its bias; the first says that the module is packed."""
        if self.method == "compressed":
            return ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx")
        return ("qweight", "qzeros", "scales", "g_idx")


def scheme_of(config: Mapping[str, Any]) -> Scheme | None:
    """From a config.json; None for plain weights. EngineError says what is supported."""
    asked = config.get("quantization_config") or config.get("compression_config")
    if not asked:
        return None
    if not isinstance(asked, Mapping):
        raise EngineError(f"quantization_config is {asked!r}, not a table; supported: {SUPPORTED}")
    for name in ("kv_cache_scheme", "transform_config", "sparsity_config", "dynamic"):
        if asked.get(name):
            raise EngineError(f"quantization_config: {name} is not supported; supported: {SUPPORTED}")
    method = asked.get("quant_method")
    if method == "awq":
        return _awq(asked)
    if method == "gptq":
        return _gptq(asked)
    if method == "compressed-tensors":
        return _compressed(asked)
    raise EngineError(f"quantization_config: quant_method {method!r} is not supported; supported: {SUPPORTED}")


def _whole(asked: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    for name in names:
        value = asked.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if value is not None:
            raise EngineError(f"quantization_config: {name} is {value!r}; a whole number is expected")
    if default is None:
        raise EngineError(f"quantization_config lacks {names[0]}")
    return default


def _group(asked: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    group = _whole(asked, *names, default=default)
    if group != -1 and (group < 8 or group % 8):
        raise EngineError(f"quantization_config: {names[0]} {group} is not supported; -1 or a multiple of 8")
    return max(0, group)


def _awq(asked: Mapping[str, Any]) -> Scheme:
    bits, version = _whole(asked, "bits", "w_bit"), str(asked.get("version", "gemm")).lower()
    if bits != 4:
        raise EngineError(f"quantization_config: awq with {bits} bits is not supported; only 4")
    if version != "gemm":
        raise EngineError(f"quantization_config: awq version {version!r} is not supported; only gemm")
    return Scheme("awq", 4, _group(asked, "group_size", "q_group_size"))


def _gptq(asked: Mapping[str, Any]) -> Scheme:
    bits, form = _whole(asked, "bits"), str(asked.get("checkpoint_format") or "gptq").lower()
    if bits not in (4, 8):
        raise EngineError(f"quantization_config: gptq with {bits} bits is not supported; only 4 and 8")
    if form not in ("gptq", "gptq_v2"):
        raise EngineError(f"quantization_config: checkpoint_format {form!r} is not supported; gptq or gptq_v2")
    return Scheme("gptq", bits, _group(asked, "group_size"), 1 if form == "gptq" else 0)


def _compressed(asked: Mapping[str, Any]) -> Scheme:
    form, found = asked.get("format"), asked.get("config_groups")
    if form != "pack-quantized":
        raise EngineError(f"quantization_config: format {form!r} is not supported; only pack-quantized")
    if not isinstance(found, Mapping) or len(found) != 1:
        raise EngineError("quantization_config: exactly one of config_groups is supported")
    group = next(iter(found.values()))
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping) or group.get("input_activations") or group.get("output_activations"):
        raise EngineError("quantization_config: config_groups must quantise weights and nothing else")
    bits, strategy = _whole(weights, "num_bits"), weights.get("strategy")
    if bits not in (4, 8) or weights.get("type", "int") != "int":
        raise EngineError(f"quantization_config: {bits} bits of {weights.get('type')} are not supported; 4 or 8 of int")
    if strategy not in ("group", "channel"):
        raise EngineError(f"quantization_config: strategy {strategy!r} is not supported; group or channel")
    size = _group(weights, "group_size") if strategy == "group" else 0
    return Scheme("compressed", bits, size)


def packed_tensors(scheme: Scheme, plain: LazyTensors, qkv_bias: bool) -> LazyTensors:
    """The mapping with packed modules under the names of their weights. EngineError names what is not whole.

    qkv_bias: whether the model has biases there; zeros elsewhere are dropped: old GPTQ writers give all modules one.
    """
    mark, suffixes = f".{scheme.parts[0]}", tuple(f".{part}" for part in scheme.parts)
    modules = [name.removesuffix(mark) for name in plain if name.endswith(mark)]
    if not modules:
        raise EngineError(f"quantization_config says {scheme.method}, but no tensor is named *{mark}")
    shapes = {name: plain.shapes[name] for name in plain if not name.endswith(suffixes)}
    readers: dict[str, Reader] = {name: plain.reader(name) for name in shapes}
    packed: dict[str, PackedReader] = {}
    for module in modules:
        name, shape = f"{module}.weight", _shape(scheme, plain, module)
        shapes[name], packed[name] = shape, _reader(scheme, plain, module, shape)
        bias = f"{module}.bias"
        own = qkv_bias and module.endswith((".q_proj", ".k_proj", ".v_proj"))
        if bias in readers and not own and not bool(plain[bias].any()):
            shapes.pop(bias), readers.pop(bias)
    return LazyTensors(shapes, readers, packed)


def _shape(scheme: Scheme, plain: LazyTensors, module: str) -> tuple[int, int]:
    """(out, in), from the packed tensor's own shape."""
    words = plain.shapes[f"{module}.{scheme.parts[0]}"]
    if len(words) != 2:
        raise EngineError(f"{module}.{scheme.parts[0]} has shape {words}; two dimensions are expected")
    count = 32 // scheme.bits
    if scheme.method == "awq":
        return words[1] * count, words[0]
    if scheme.method == "gptq":
        return words[1], words[0] * count
    found = plain.get(f"{module}.weight_shape")
    return (words[0], words[1] * count) if found is None else (int(found[0]), int(found[1]))


def _reader(scheme: Scheme, plain: LazyTensors, module: str, shape: tuple[int, int]) -> PackedReader:
    unpackers = {"awq": unpack_awq, "gptq": unpack_gptq, "compressed": unpack_compressed}

    def read() -> Packed:
        parts = {part: plain[f"{module}.{part}"] for part in scheme.parts if f"{module}.{part}" in plain}
        try:
            groups, order = unpackers[scheme.method](parts, scheme.bits, scheme.offset)
        except (KeyError, ValueError, RuntimeError, IndexError) as error:
            raise EngineError(f"{module} cannot be unpacked as {scheme.method}: {error}") from error
        _check(module, scheme, groups, shape)
        return Packed(groups, order)

    return read


def _check(module: str, scheme: Scheme, groups: Groups, shape: tuple[int, int]) -> None:
    rows, columns = groups.levels.shape
    if (rows, columns) != shape:
        raise EngineError(f"{module} unpacks to {(rows, columns)}, not {shape}")
    count = columns // (scheme.group or columns)
    wanted = (rows, max(1, count))
    zeros = wanted if groups.zeros is None else tuple(groups.zeros.shape)
    if tuple(groups.scales.shape) != wanted or zeros != wanted:
        raise EngineError(
            f"{module} has scales {tuple(groups.scales.shape)} and zeros {zeros}; groups of {scheme.group or columns} "
            f"ask for {wanted}"
        )
