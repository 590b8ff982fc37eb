"""The checks of `foreign_checks` against llama.cpp's server or vLLM, by hand and not in CI.

    python -m tests.foreign.run_foreign --url http://127.0.0.1:8000 -m NAME
    python -m tests.foreign.run_foreign --llama-server PATH/llama-server --gguf MODEL.gguf
    python -m tests.foreign.run_foreign --vllm-python VENV/bin/python --hf DIRECTORY

Engines are started by benchlab's own launch files, so this exercises them too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchlab.errors import BenchlabError
from benchlab.launch.base import Engine, load_launch_file
from tests.foreign.foreign_checks import check_all


@contextlib.contextmanager
def started(name: str, model: str, executable: Path, args: list[str], folder: Path) -> Iterator[str]:
    """An engine from its launch file; `executable`'s directory goes first in PATH."""
    os.environ["PATH"] = f"{executable.resolve().parent}{os.pathsep}{os.environ['PATH']}"
    with Engine.start(load_launch_file(name), log=folder / "engine.log", model=model, args=args) as engine:
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
            args = ["-t", "1", "--no-cache-prompt"]
            with started("llamacpp", str(given.gguf), given.llama_server, args, folder) as url:
                check_all(url, folder, *more)
        elif given.vllm_python and given.hf:
            os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
            args = ["--dtype", "float32", "--max-model-len", "2048", "--enforce-eager"]
            with started("vllm", str(given.hf), given.vllm_python, args, folder) as url:
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
