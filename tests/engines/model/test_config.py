"""Configs in every spelling, each family against transformers reading the same directory, and refusals by name."""

from __future__ import annotations

import copy
import json

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from benchlab_engine.core.plan import Work  # noqa: E402
from benchlab_engine.errors import EngineError  # noqa: E402
from benchlab_engine.model.batch import make_batch  # noqa: E402
from benchlab_engine.model.config import RopeScaling, from_hugging_face  # noqa: E402
from benchlab_engine.model.decoder import Decoder  # noqa: E402
from benchlab_engine.model.kv import PagedKv  # noqa: E402
from benchlab_engine.model.rope import rotary_tables  # noqa: E402
from benchlab_engine.model.weights import read_directory  # noqa: E402

GOOD = {
    "model_type": "llama", "vocab_size": 90, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
COUNT = 60
FAMILIES = {
    "llama2": {"num_key_value_heads": 4},
    "llama3.1": {"rope_theta": 500_000.0, "rope_scaling": LLAMA3},
    "llama3.2, tied, wide heads": {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}, "tie_word_embeddings": True,
                                   "head_dim": 16},
    "linear, old spelling": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "yarn": {"rope_scaling": YARN, "max_position_embeddings": 16},
    "yarn, its own factors": {"rope_scaling": YARN | {"attention_factor": 1.3, "beta_fast": 8, "beta_slow": 0.5,
                                                      "truncate": False}},
    "yarn, mscale": {"rope_scaling": YARN | {"mscale": 1.2, "mscale_all_dim": 0.6}},
    "mistral, no window": {"model_type": "mistral", "sliding_window": None},
    "qwen2": {"model_type": "qwen2", "rope_theta": 1e6, "use_sliding_window": False, "sliding_window": 8},
    "qwen2.5, yarn": {"model_type": "qwen2", "rope_theta": 1e6, "rope_scaling": YARN, "max_position_embeddings": 16},
    "qwen3": {"model_type": "qwen3", "head_dim": 16, "tie_word_embeddings": True, "rope_theta": 1e6},
}  # fmt: skip
WINDOWS = {
    "mistral": {"model_type": "mistral", "sliding_window": 8},
    "qwen2": {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2},
    "qwen3": {"model_type": "qwen3", "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
}


def save(folder, changes, seed=0, dtype=None):
    """A seeded model of this config as transformers writes it; biases and norms are not left at their start values."""
    import transformers

    made = transformers.AutoConfig.for_model(**copy.deepcopy(GOOD | changes))  # which writes into its tables
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(made).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn(weight.shape) * 0.3 + (1.0 if "norm" in name else 0.0))
    model.to(dtype or torch.float32).save_pretrained(folder)
    return model.float()


def our_logits(decoder, tokens, cut):
    """Of the last position of each part: the tokens before cut as one chunk, the rest one by one."""
    kv = PagedKv(decoder.config, 40, 4, decoder.dtype)
    found = []
    with torch.inference_mode():
        for start, end in [(0, cut), *((i, i + 1) for i in range(cut, len(tokens)))]:
            works = [Work("a", tuple(tokens[start:end]), start, tuple(range(-(-end // 4))), True, end - start == 1)]
            found.append(decoder.forward(make_batch(works, 4), kv)[0])
    return torch.stack(found)


def difference(folder, model, count=COUNT):
    """Largest difference of logits at the end of a chunk and at every step after it."""
    tokens = torch.randint(0, 90, (count,), generator=torch.Generator().manual_seed(5))
    config, tensors = read_directory(folder)
    decoder = Decoder(config, tensors, torch.float32)
    with torch.inference_mode():
        expected = model(tokens[None]).logits[0, count - 7 :]
    return float((our_logits(decoder, tokens.tolist(), count - 6) - expected).abs().max())


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_equals_transformers_beyond_its_trained_length(tmp_path, name):
    model = save(tmp_path, FAMILIES[name])
    assert difference(tmp_path, model) < 1e-4


@pytest.mark.parametrize("name", WINDOWS)
def test_a_sliding_window_hides_what_transformers_hides(tmp_path, name):
    model = save(tmp_path, WINDOWS[name])
    assert difference(tmp_path, model) < 1e-4


@pytest.mark.parametrize("name", WINDOWS)
def test_the_window_is_read_with_its_first_layer(name):
    config = from_hugging_face(GOOD | WINDOWS[name])
    assert config.window == 8
    assert config.first_window_layer == {"mistral": 0, "qwen2": 2, "qwen3": 1}[name]


@pytest.mark.parametrize(
    ("changes", "window"),
    [
        ({"model_type": "mistral", "sliding_window": None}, 0),
        ({"model_type": "mistral", "sliding_window": 64}, 0),  # sees all of 64 positions
        ({"model_type": "qwen2", "sliding_window": 8}, 0),  # use_sliding_window is off where it is not said
        ({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3}, 0),
        (WINDOWS["qwen2"] | {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}, 8),
        ({"sliding_window": 8}, 0),  # llama has none, whatever its config says
    ],
)
def test_a_window_that_changes_nothing_is_none(changes, window):
    assert from_hugging_face(GOOD | changes).window == window


def test_old_and_new_spellings_are_the_same_config():
    old = {"rope_theta": 5e5, "rope_scaling": {"type": "yarn"} | {k: v for k, v in YARN.items() if k != "rope_type"}}
    new = {"rope_parameters": YARN | {"rope_theta": 5e5}}
    assert from_hugging_face(GOOD | old) == from_hugging_face(GOOD | new)
    assert from_hugging_face(GOOD | old).rope_theta == 5e5
    assert from_hugging_face(GOOD | {"max_position_embeddings": 16} | old).max_positions == 64
    plain = from_hugging_face(GOOD | {"rope_scaling": None, "rope_theta": None})
    assert (plain.rope, plain.rope_theta) == (None, 10_000.0)
    assert from_hugging_face(GOOD | {"rope_scaling": {"type": "linear", "factor": 2}}).rope == RopeScaling(
        "linear", 2.0
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
            "rope scaling 'dynamic' is not supported; supported",
        ),
        ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "rope scaling 'longrope'"),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [1]}}, "rope scaling 'mrope'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "lacks factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "makes no sense"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "two"}}, "factor = 'two'; a number"),
        ({"rope_scaling": LLAMA3 | {"low_freq_factor": 4.0}}, "0 < low_freq_factor < high_freq_factor"),
        ({"rope_scaling": "yarn"}, "not a table"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "by layer type"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"attention_bias": True}, "attention_bias=true"),
        ({"model_type": "qwen3", "attention_bias": True}, "qwen3 with attention_bias"),
        ({"model_type": "mixtral"}, "model_type 'mixtral' is not supported; supported: llama"),
        (
            {"model_type": "mistral", "sliding_window": 8, "layer_types": ["full_attention"] * 3},
            "mistral with layer_types",
        ),
        (
            WINDOWS["qwen3"] | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
            "other orders are not supported",
        ),
        ({"num_attention_heads": 0}, "num_heads is 0"),
        ({"num_key_value_heads": 3}, "4 query heads cannot share 3"),
        ({"head_dim": 7}, "odd"),
        ({"vocab_size": None}, "lacks vocab_size"),
        ({"hidden_size": 32.5}, "hidden_size = 32.5; a whole number"),
        ({"max_position_embeddings": 0}, "0 positions"),
        ({"max_position_embeddings": 10**9}, "1000000000 positions; 1 to"),
        ({"num_hidden_layers": 10**9}, "1000000000 layers"),
        ({"hidden_size": 10**400}, "hidden_size = 1000"),
        ({"intermediate_size": float("nan")}, "intermediate_size = nan"),
        ({"rope_theta": 0}, "rope_theta 0.0 makes no frequencies"),
        ({"model_type": ["llama"]}, r"model_type \['llama'\]"),
        (WINDOWS["qwen3"] | {"layer_types": 3}, "layer_types 3 are not a list"),
        ({"rope_scaling": YARN | {"beta_fast": -1}}, "0 < beta_slow < beta_fast"),
        ({"rope_scaling": YARN | {"attention_factor": 0}}, "attention_factor 0.0 makes no sense"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(changes, says):
    with pytest.raises(EngineError, match=says):
        from_hugging_face(GOOD | changes)


FIELDS = (*GOOD, "head_dim", "rms_norm_eps", "rope_theta", "sliding_window", "layer_types", "max_window_layers",
          "use_sliding_window")  # fmt: skip
ANYTHING = st.sampled_from([None, True, -1, 0, 1, 10**9, 10**400, 1.5, float("nan"), float("inf"), "x", [], [1], {}])


@given(
    st.sampled_from(["llama", "mistral", "qwen2", "qwen3"]),
    st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=2),
    st.sampled_from([{}, YARN, LLAMA3, {"type": "linear", "factor": 2}]),
    st.dictionaries(st.sampled_from([*YARN, *LLAMA3, "beta_fast", "mscale", "attention_factor"]), ANYTHING, max_size=2),
)
def test_any_values_give_a_shape_with_finite_angles_or_a_refusal(family, changes, rope, rope_changes):
    scaling = {"rope_scaling": rope | rope_changes} if rope else {}
    try:
        found = from_hugging_face(GOOD | {"model_type": family, "use_sliding_window": True} | changes | scaling)
        if found.head_dim < 1000:
            assert all(table.isfinite().all() for table in rotary_tables(found, 9, torch.float32))
    except EngineError as error:
        assert str(error)


def test_tensors_that_the_config_has_no_place_for_are_refused(tmp_path):
    save(tmp_path, {"model_type": "qwen2"})
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "llama"}))
    config, tensors = read_directory(tmp_path)
    with pytest.raises(EngineError, match=r"the weights hold model\.layers\.0\.self_attn\.[qkv]_proj\.bias"):
        Decoder(config, tensors, torch.float32)
