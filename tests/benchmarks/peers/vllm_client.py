"""`vllm bench serve` without the engine: vllm's own `vllm/benchmarks`, unchanged, with stand-ins for what it imports
beside it.

The client imports a few names of the engine that would bring torch and CUDA; none is used on its way with text. The
stand-ins keep their behaviour: the tokenizer is transformers', the argument parser is vllm's own file. Runs in vllm's
environment: `python vllm_client.py FOLDER ARGUMENTS...`, FOLDER being where the install step put those files.
"""

from __future__ import annotations

import gc
import importlib.util
import logging
import sys
import types
from typing import Any


class _Anything:
    """Stands for what is imported and never used."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return _Anything()

    def __call__(self, *_: Any, **__: Any) -> Any:
        return _Anything()


def _stand_in(name: str, **names: Any) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(names)
    module.__path__ = []
    sys.modules[name] = module
    if "." in name:
        parent, child = name.rsplit(".", 1)
        setattr(sys.modules[parent], child, module)


def _tokenizer(name: str, *_: Any, **__: Any) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name)


def _freeze() -> None:
    for generation in range(3):
        gc.collect(generation)
    gc.freeze()


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def main() -> None:
    folder = sys.argv.pop(1)
    _stand_in("vllm")
    sys.modules["vllm"].__path__ = [f"{folder}/vllm"]
    for name, names in {
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.inputs": {"MultiModalDataDict": dict},
        "vllm.lora": {},
        "vllm.lora.request": {"LoRARequest": _Anything},
        "vllm.lora.utils": {"get_adapter_absolute_path": _Anything()},
        "vllm.multimodal": {},
        "vllm.multimodal.audio": {"get_audio_duration": _Anything()},
        "vllm.multimodal.image": {"convert_image_mode": _Anything()},
        "vllm.multimodal.utils": {"encode_image_url": _Anything(), "fetch_image": _Anything()},
        "vllm.tokenizers": {"TokenizerLike": object, "get_tokenizer": _tokenizer},
        "vllm.transformers_utils": {},
        "vllm.transformers_utils.repo_utils": {"hf_api": _Anything()},
        "vllm.utils": {},
        "vllm.utils.gc_utils": {"freeze_gc_heap": _freeze},
        "vllm.utils.network_utils": {"join_host_port": _host_port},
        "vllm.utils.import_utils": {"PlaceholderModule": _Anything},
        "vllm.utils.mistral": {"is_mistral_tokenizer": lambda _: False},
    }.items():
        _stand_in(name, **names)
    spec = importlib.util.spec_from_file_location("vllm.utils.argparse_utils", f"{folder}/argparse_utils.py")
    assert spec is not None and spec.loader is not None
    arguments = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = arguments
    spec.loader.exec_module(arguments)
    from vllm.benchmarks.serve import add_cli_args
    from vllm.benchmarks.serve import main as serve

    parser = arguments.FlexibleArgumentParser()
    add_cli_args(parser)
    serve(parser.parse_args())


if __name__ == "__main__":
    main()
