"""The real model against transformers reading the same GGUF file. Skipped where it has not been fetched."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")

from benchlab_engine import fetch  # noqa: E402

PATH = fetch.find("smollm2-135m")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(PATH is None, reason="not fetched: python -m benchlab_engine fetch smollm2-135m"),
]
QUESTIONS = ("What is the capital of France?", "Write 3 words about the sea.", "Is 17 a prime number?")
TRICKY = "In 2024, naïve café №5 — 你好 🙂 'tis  two  spaces\n\n\tx = y_1+42;  <|im_start|>user"
# The first question in this model's chat form: 37 ids, as llama.cpp counts them too.
CHAT_IDS = [
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198, 1,
    4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198,
]  # fmt: skip


@pytest.fixture(scope="module")
def model():
    from benchlab_engine.model.load import load

    return load(PATH, 0, "fp32", 1, 258)


@pytest.fixture(scope="module")
def vocabulary(model):
    from benchlab_engine.serve.tokens_model import vocabulary_of

    return vocabulary_of(PATH, model.metadata)


def test_the_chat_template_and_tokens_are_those_of_the_published_model(vocabulary):
    assert vocabulary.encode_chat([{"role": "user", "content": QUESTIONS[0]}]) == CHAT_IDS
    stream = vocabulary.stream()
    text = TRICKY.removesuffix("<|im_start|>user")
    assert "".join(stream.push(token) for token in vocabulary.encode(text)) + stream.flush() == text
    assert [vocabulary.encode(digit)[0] for digit in "42"] == vocabulary.encode("42")
    assert vocabulary.encode("<|im_start|>") == [1]
    assert vocabulary.end_tokens == {2}


@pytest.mark.slow
def test_the_tokenizer_equals_transformers_own_reading(vocabulary):
    from transformers import AutoTokenizer

    other = AutoTokenizer.from_pretrained(PATH.parent, gguf_file=PATH.name)
    messages = [{"role": "user", "content": QUESTIONS[0]}]
    ids = vocabulary.encode_chat(messages)
    assert len(ids) == 37
    assert ids == other(other.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)).input_ids
    # Digits stand alone in this model's pre-tokenizer; transformers' reading of GGUF files may leave that out.
    plain = "naïve café — 你好 🙂 'tis  two  spaces\n\n\tx = y;"
    assert vocabulary.encode(plain) == other(plain).input_ids


@pytest.fixture(scope="module")
def answers(model, vocabulary):
    """Prompt tokens and the engine's greedy tokens of each question, served together."""
    prompts = [tuple(vocabulary.encode_chat([{"role": "user", "content": each}])) for each in QUESTIONS]
    return list(zip(prompts, serve(model, prompts, 8), strict=True))


def serve(model, prompts, count):
    """Greedy tokens of each prompt, served together by a whole engine."""
    from benchlab_engine.core.loop import Engine
    from benchlab_engine.core.request import RequestSpec
    from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig

    blocks = len(prompts) * (-(-(max(map(len, prompts)) + count) // 16))
    scheduler = Scheduler(SchedulerConfig(num_blocks=blocks, max_seqs=len(prompts)))
    engine = Engine(scheduler, model.runner(blocks, 16), lambda: 0)
    out: dict[str, list[int]] = {str(index): [] for index in range(len(prompts))}
    for index, tokens in enumerate(prompts):
        assert engine.submit(RequestSpec(str(index), tokens, count), 0) is None
    while scheduler.requests:
        outcome = engine.step()
        assert outcome.error is None
        for emission in outcome.emissions:
            out[emission.request_id].append(emission.token)
    return list(out.values())


def check_greedy(other, answers):
    """Every one of our tokens is the one transformers finds most likely after the same tokens."""
    for tokens, ours in answers:
        with torch.inference_mode():
            found = other(torch.tensor([[*tokens, *ours]])).logits[0, len(tokens) - 1 : -1]
        assert found.argmax(dim=-1).tolist() == ours


def test_greedy_text_equals_transformers_on_the_same_weights(model, vocabulary, answers):
    stream = vocabulary.stream()
    assert "".join(stream.push(token) for token in answers[0][1]).startswith("The capital of France is Paris.")
    check_greedy(same_weights(model), answers)


def same_weights(model):
    """transformers' model with the decoder's own weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = model.decoder.config
    made = LlamaConfig(
        vocab_size=config.vocab_size, hidden_size=config.hidden, intermediate_size=config.ffn,
        num_hidden_layers=config.num_layers, num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads, max_position_embeddings=config.max_positions,
        rms_norm_eps=config.norm_eps, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
    )  # fmt: skip
    return LlamaForCausalLM.from_pretrained(None, config=made, state_dict=split(model.decoder)).eval()


def split(decoder):
    """The decoder's joined weights under their Hugging Face names."""
    config = decoder.config
    heads, shared = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    state = {"model.embed_tokens.weight": decoder.embedding, "model.norm.weight": decoder.norm}
    for index, layer in enumerate(decoder.layers):
        queries, keys, values = layer.qkv.weight.split((heads, shared, shared))
        gate, up = layer.gate_up.weight.chunk(2)
        named = {
            "input_layernorm": layer.input_norm, "self_attn.q_proj": queries, "self_attn.k_proj": keys,
            "self_attn.v_proj": values, "self_attn.o_proj": layer.output.weight, "mlp.gate_proj": gate,
            "mlp.up_proj": up, "mlp.down_proj": layer.down.weight,
            "post_attention_layernorm": layer.post_norm,
        }  # fmt: skip
        state |= {f"model.layers.{index}.{name}.weight": weight for name, weight in named.items()}
    return state


TASKS = (
    "Name three colours.", "Why is the sky blue?", "Translate 'good morning' into French.", "What is 12 times 12?",
    "Write a haiku about rain.", "List the days of the week.", "Who wrote Hamlet?", "What is a prime number?",
    "Give me a recipe for pancakes.", "What does HTTP stand for?", "Tell me a joke about cats.",
    "How do bees make honey?", "Write a Python function that adds two numbers.", "What is the largest planet?",
    "Summarise the plot of Cinderella.", "How many legs has a spider?", "Suggest a name for a bakery.",
    "What causes the tides?", "Is a tomato a fruit or a vegetable?", "Write one sentence about the desert.",
)  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_64_greedy_tokens_of_20_prompts_are_those_of_transformers_generate(model, vocabulary):
    """Served together, in chunks and batches; transformers makes them one by one."""
    prompts = [tuple(vocabulary.encode_chat([{"role": "user", "content": each}])) for each in TASKS]
    other = same_weights(model)
    for tokens, ours in zip(prompts, serve(model, prompts, 64), strict=True):
        with torch.inference_mode():
            ids = torch.tensor([tokens])
            found = other.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=64, min_new_tokens=64, do_sample=False,
                eos_token_id=None, pad_token_id=0,
            )  # fmt: skip
            logits = other(torch.tensor([[*tokens, *ours]])).logits[0, len(tokens) - 1 : -1]
        assert found[0, len(tokens) :].tolist() == ours
        assert logits.argmax(dim=-1).tolist() == ours


@pytest.mark.slow
def test_logits_of_the_real_model_are_within_a_thousandth_of_transformers(model, vocabulary):
    from benchlab_engine.core.plan import Work
    from benchlab_engine.model.batch import make_batch

    tokens = tuple(vocabulary.encode_chat([{"role": "user", "content": " ".join(TASKS)}]))
    kv = model.runner(64, 16).kv
    with torch.inference_mode():
        expected = same_weights(model)(torch.tensor([tokens])).logits[0]
        for start, end in ((0, 100), (100, len(tokens) - 1), (len(tokens) - 1, len(tokens))):
            table = tuple(range(1, 2 + (end - 1) // 16))
            batch = make_batch([Work("a", tokens[start:end], start, table, True, False)], 16)
            found = model.decoder.forward(batch, kv)[0]
            assert (found - expected[end - 1]).abs().max() < 1e-3


@pytest.mark.slow
def test_greedy_text_equals_transformers_own_reading_of_the_file(answers):
    """transformers reads and dequantises the file by itself, so that a slip in our reader cannot hide."""
    from transformers import AutoModelForCausalLM

    other = AutoModelForCausalLM.from_pretrained(PATH.parent, gguf_file=PATH.name, dtype=torch.float32).eval()
    check_greedy(other, answers)
