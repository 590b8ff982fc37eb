"""Hugging Face's `transformers serve` as a real foreign server: no [DONE], usage in the finish event, no /metrics.

The model is a seeded random Llama of a few thousand weights with a byte-level tokenizer, saved where the test runs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.foreign.foreign_checks import check_records, sweep
from tests.running import benchlab, environment

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "fastapi", "uvicorn")),
        reason="transformers[serving] is not installed",
    ),
]
_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
_MAKE = """
import sys, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
folder, template = sys.argv[1:]
names = ["<unk>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
tokenizer = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, [], unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
fast.chat_template = template
fast.save_pretrained(folder)
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(names), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=4096, bos_token_id=1, eos_token_id=2, pad_token_id=2,
)
LlamaForCausalLM(config).save_pretrained(folder)
"""


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-llama")
    done = subprocess.run(
        [sys.executable, "-c", _MAKE, str(folder), _TEMPLATE],
        env=_environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"the tiny model cannot be made: {done.stderr.strip().splitlines()[-1:]}")
    return folder


def _environment() -> dict[str, str]:
    return environment({"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"})


@pytest.fixture(scope="session")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = "import sys; from transformers.cli.transformers import main; sys.exit(main())"
    argv = [
        sys.executable,
        "-c",
        code,
        "serve",
        str(model),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--device",
        "cpu",
    ]
    log = tmp_path_factory.mktemp("serve") / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(argv, env=_environment(), stdout=file, stderr=file, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 120
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > end:
                pytest.skip(f"transformers serve did not start: {log.read_text(errors='replace')[-300:]}")
            time.sleep(0.3)
        yield url
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + "/health", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_sweep(server: str, model: Path, tmp_path: Path) -> None:
    rows = check_records(tmp_path / "run", sweep(server, tmp_path / "run", "-m", str(model)))
    assert {row["http_status"] for row in rows} == {200}
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["endpoint"]["model"] == str(model)
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000


def test_the_model_list_is_asked_or_told(server: str, tmp_path: Path) -> None:
    """Without -m the first of /v1/models is asked for; where the list does not help, the error says what to do."""
    done = benchlab(
        "run", "-u", server, "-d", "chat-short", "-c", "1", "-n", "1", "--warmup", "none", "--format", "json",
        "-o", tmp_path / "run", timeout=120,
    )  # fmt: skip
    assert done.code in (0, 2, 3, 4), done
    assert "Traceback" not in done.err
    if done.code in (2, 3):
        assert "-m" in done.err


def test_unknown_model_is_told(server: str, tmp_path: Path) -> None:
    done = benchlab(
        "run", "-u", server, "-m", "no/such-model", "-c", "1", "-n", "1", "-o", tmp_path / "run", timeout=120
    )
    assert done.code == 3, done
    assert "no/such-model" in done.err
    assert not (tmp_path / "run").exists()
