"""The checks of `foreign_checks` against llama.cpp's server or vLLM, by hand and not in CI.

    python -m tests.foreign.run_foreign --url http://127.0.0.1:8000 -m NAME
    python -m tests.foreign.run_foreign --llama-server PATH/llama-server --gguf MODEL.gguf
    python -m tests.foreign.run_foreign --vllm-python VENV/bin/python --hf DIRECTORY

Engines are started by benchlab's own launch files, so this exercises them too.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchlab.errors import BenchlabError
from benchlab.launch.base import Engine, load_launch_file
from tests.foreign.foreign_checks import check_all


@contextlib.contextmanager
def started(name: str, model: str, folder: Path, args: list[str], **more: Any) -> Iterator[str]:
    """An engine from its launch file; `more`: options of `Engine.start`."""
    with Engine.start(load_launch_file(name), log=folder / "engine.log", model=model, args=args, **more) as engine:
        print(f"{name} ready at {engine.url} after {engine.ready_s or 0:.1f} s")
        yield engine.url


def main() -> int:
    """Run the checks; 0 when all hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("-m", "--model", help="its model's name (default: the first of /v1/models)")
    parser.add_argument("--llama-server", type=Path, help="llama.cpp's server, with --gguf")
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--vllm-python", type=Path, help="a Python that has vLLM, with --hf")
    parser.add_argument("--hf", type=Path, help="a directory in Hugging Face's form")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="foreign-"))
    more = ["-m", given.model] if given.model else []
    try:
        if given.url:
            check_all(given.url, folder, *more)
        elif given.llama_server and given.gguf:
            values = {"program": str(given.llama_server)}
            with started("llamacpp", str(given.gguf), folder, [], threads=1, values=values) as url:
                check_all(url, folder, *more)
        elif given.vllm_python and given.hf:
            args = ["--dtype", "float32", "--max-model-len", "2048", "--max-num-seqs", "16", "--enforce-eager"]
            more_env = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}  # GiB
            python = str(given.vllm_python)
            with started("vllm", str(given.hf), folder, args, python=python, env=more_env) as url:
                check_all(url, folder, *more)
        else:
            parser.error("give --url, --llama-server with --gguf, or --vllm-python with --hf")
    except (BenchlabError, AssertionError) as error:
        print(f"FAILED ({folder}): {error}", file=sys.stderr)
        return 1
    print(f"all checks hold; runs in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
