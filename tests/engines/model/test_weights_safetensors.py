"""A Hugging Face directory: shards by the index, every precision, and what is wrong with a file said."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

from safetensors.torch import save_file  # noqa: E402

from benchlab_engine.errors import EngineError  # noqa: E402
from benchlab_engine.model import weights, weights_safetensors  # noqa: E402
from benchlab_engine.model.decoder import Decoder  # noqa: E402
from benchlab_engine.model.weights import read_directory  # noqa: E402
from tests.engines.model.small import CONFIG, logits  # noqa: E402

JSON = {
    "model_type": "llama", "vocab_size": 90, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": True,
    "rms_norm_eps": 1e-5,
}  # fmt: skip


def shards(folder, tensors, count=3):
    """Written with an index, tensors dealt out in turn."""
    places = {
        name: f"model-{1 + index % count:05}-of-{count:05}.safetensors" for index, name in enumerate(sorted(tensors))
    }
    for file in set(places.values()):
        save_file({name: tensors[name] for name, place in places.items() if place == file}, folder / file)
    (folder / weights_safetensors.INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    (folder / "config.json").write_text(json.dumps(JSON))
    return places


def test_shards_are_found_by_the_index_and_other_files_are_not_read(tmp_path):
    tensors = weights.random(CONFIG, 1)
    shards(tmp_path, tensors)
    (tmp_path / "consolidated.safetensors").write_bytes(b"another form of the same weights")
    config, found = read_directory(tmp_path)
    assert config == CONFIG
    assert sorted(found) == sorted(tensors)
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert torch.equal(logits(Decoder(config, found, torch.float32)), logits(Decoder(CONFIG, tensors, torch.float32)))


def test_what_is_wrong_with_shards_is_named(tmp_path):
    tensors = weights.random(CONFIG, 1)
    places = shards(tmp_path, tensors)
    index = tmp_path / weights_safetensors.INDEX

    def says(text):
        with pytest.raises(EngineError, match=text):
            read_directory(tmp_path)

    index.write_text(json.dumps({"weight_map": places | {"x": "model-00001-of-00003.safetensors"}}))
    says(r"model-00001-of-00003.safetensors lacks x, which model\.safetensors\.index\.json says it holds")
    index.write_text(json.dumps({"weight_map": places | {"x": "../elsewhere.safetensors"}}))
    says("only files beside it are read")
    for text in ('{"weight_map": []}', "[]", "{", '{"weight_map": {}}'):
        index.write_text(text)
        says(r"index\.json")
    index.write_text(json.dumps({"weight_map": places}))
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    says("lacks model-00002-of-00003.safetensors, one of 3 files")


def test_a_file_that_changes_later_changes_no_model(tmp_path):
    tensors = weights.random(CONFIG, 1)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(JSON))
    decoder = Decoder(*read_directory(tmp_path), torch.float32)
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.seek(-40_000, 2)
        file.write(b"\x7f" * 40_000)
    assert torch.equal(logits(decoder), logits(Decoder(CONFIG, tensors, torch.float32)))


@pytest.mark.parametrize("source", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_precision_is_read_into_every_other(tmp_path, source, dtype):
    tensors = {name: tensor.to(source) for name, tensor in weights.random(CONFIG, 1).items()}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(JSON))
    decoder = Decoder(*read_directory(tmp_path), dtype)
    wanted = logits(Decoder(CONFIG, {name: tensor.float() for name, tensor in tensors.items()}, torch.float32))
    assert decoder.embedding.dtype == dtype
    assert (logits(decoder) - wanted).abs().max() < (1e-4 if dtype == torch.float32 else 0.3)


def test_shapes_are_known_before_anything_is_read(tmp_path, monkeypatch):
    tensors = weights.random(CONFIG, 1)
    shards(tmp_path, tensors | {"model.layers.1.mlp.down_proj.weight": torch.zeros(3, 96)})
    config, found = read_directory(tmp_path)
    monkeypatch.setattr(type(found), "__getitem__", lambda *_: pytest.fail("a tensor was read"))
    with pytest.raises(EngineError, match=r"down_proj\.weight has shape \(3, 96\), the config asks for \(64, 96\)"):
        Decoder(config, found, torch.float32)


def test_whole_numbers_are_no_weights_unless_the_config_says_how_they_are_packed(tmp_path):
    tensors = weights.random(CONFIG, 1)
    name = "model.layers.0.mlp.up_proj.weight"
    save_file(tensors | {name: tensors[name].to(torch.int32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(JSON))
    with pytest.raises(EngineError, match=rf"{name} has the type I32, and config\.json has no quantization_config"):
        Decoder(*read_directory(tmp_path), torch.float32)
