"""The decoder against transformers on the same weights, and against itself: batched, chunked, from a cached prefix."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

from benchlab_engine.core.loop import Engine  # noqa: E402
from benchlab_engine.core.plan import Sampling, Work  # noqa: E402
from benchlab_engine.core.request import RequestSpec  # noqa: E402
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig  # noqa: E402
from benchlab_engine.errors import EngineError  # noqa: E402
from benchlab_engine.model import weights  # noqa: E402
from benchlab_engine.model.batch import make_batch  # noqa: E402
from benchlab_engine.model.config import DecoderConfig, from_hugging_face, tiny  # noqa: E402
from benchlab_engine.model.decoder import Decoder  # noqa: E402
from benchlab_engine.model.kv import PagedKv  # noqa: E402
from benchlab_engine.model.load import load  # noqa: E402
from benchlab_engine.model.runner import TorchRunner  # noqa: E402
from tests.engines.model.serving import sample  # noqa: E402

VOCAB, SIZE, BLOCKS = 258, 4, 64


@pytest.fixture(scope="module")
def decoder(one_thread):
    config = tiny(VOCAB)
    return Decoder(config, weights.random(config, 0), torch.float32)


@pytest.fixture
def kv(decoder):
    return PagedKv(decoder.config, BLOCKS, SIZE, torch.float32)


def prompt(seed, length):
    return tuple(torch.randint(0, VOCAB, (length,), generator=torch.Generator().manual_seed(seed)).tolist())


def work(name, tokens, start, first_block, decode=False):
    count = -(-(start + len(tokens)) // SIZE)
    # blocks in descending order: a table is followed, not assumed to be a range
    table = tuple(reversed(range(first_block, first_block + 16)))[:count]
    return Work(name, tuple(tokens), start, table, True, decode)


def logits(decoder, kv, *works):
    with torch.inference_mode():
        batch = make_batch(works, SIZE)
        found = decoder.forward(batch, kv)
    by_name = {each.request_id: row for each, row in zip(batch.sampling, found, strict=True)}
    return torch.stack([by_name[each.request_id] for each in works])


def hugging_face(config: DecoderConfig, tensors, family="Llama"):
    import transformers

    made = getattr(transformers, f"{family}Config")(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden,
        intermediate_size=config.ffn,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.max_positions,
        rms_norm_eps=config.norm_eps,
        tie_word_embeddings=config.tied,
    )
    model = getattr(transformers, f"{family}ForCausalLM")(made).eval()
    missing = model.load_state_dict(tensors, strict=False)
    assert not missing.unexpected_keys
    assert set(missing.missing_keys) <= {"lm_head.weight"}
    return made, model


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Llama", {}),
        ("Llama", {"tied": False, "head_dim": 32}),
        ("Qwen2", {"qkv_bias": True}),
        ("Qwen3", {"qk_norm": True}),
    ],
)
def test_logits_equal_transformers_on_the_same_weights(family, changes):
    from dataclasses import replace

    config = replace(tiny(VOCAB), **changes)
    tensors = weights.random(config, 3)
    made, model = hugging_face(config, tensors, family)
    assert from_hugging_face(made.to_dict()) == config
    decoder = Decoder(config, tensors, torch.float32)
    kv = PagedKv(config, BLOCKS, SIZE, torch.float32)
    tokens = prompt(1, 21)
    with torch.inference_mode():
        expected = model(torch.tensor([tokens])).logits[0]
    whole = logits(decoder, kv, work("a", tokens[:20], 0, 3))[0]
    step = logits(decoder, kv, work("a", tokens[20:], 20, 3, decode=True))[0]
    assert (whole - expected[19]).abs().max() < 1e-3
    assert (step - expected[20]).abs().max() < 1e-3


def test_batched_equals_alone(decoder, kv):
    lengths = (1, 7, 19, 30)
    prompts = [prompt(index, length) for index, length in enumerate(lengths)]
    alone = torch.cat([logits(decoder, kv, work("x", tokens, 0, 40)) for tokens in prompts])
    together = logits(decoder, kv, *[work(str(i), tokens, 0, 10 * i) for i, tokens in enumerate(prompts)])
    assert (alone - together).abs().max() < 1e-4
    steps = [work(str(i), (5,), length, 10 * i, decode=True) for i, length in enumerate(lengths)]
    mixed = logits(decoder, kv, *steps, work("new", prompt(9, 12), 0, 48))
    for i, tokens in enumerate(prompts):
        fresh = PagedKv(decoder.config, BLOCKS, SIZE, torch.float32)
        assert (logits(decoder, fresh, work("x", (*tokens, 5), 0, 0))[0] - mixed[i]).abs().max() < 1e-4


def test_chunked_equals_whole(decoder, kv):
    tokens = prompt(4, 33)
    whole = logits(decoder, kv, work("a", tokens, 0, 0))
    for start, end in ((0, 5), (5, 6), (6, 20), (20, 33)):
        chunk = logits(decoder, kv, work("b", tokens[start:end], start, 20))
    assert (whole - chunk).abs().max() < 1e-4


def rows(decoder, kv, *works):
    """All rows of logits, by request id."""
    with torch.inference_mode():
        batch = make_batch(works, SIZE)
        found = decoder.forward(batch, kv).split(batch.num_rows)
    return {each.request_id: part for each, part in zip(batch.sampling, found, strict=True)}


def test_rows_of_proposals_are_the_logits_of_single_steps(decoder, kv):
    from dataclasses import replace

    tokens, other = prompt(11, 26), prompt(12, 17)
    found = {}
    for name, each, first in (("a", tokens, 0), ("b", other, 12)):
        logits(decoder, kv, work(name, each[:12], 0, first))
        steps = [logits(decoder, kv, work(name, each[at : at + 1], at, first)) for at in range(12, 16)]
        found[name] = torch.cat(steps)
    fresh = PagedKv(decoder.config, BLOCKS, SIZE, torch.float32)
    for name, each, first in (("a", tokens, 0), ("b", other, 12)):
        logits(decoder, fresh, work(name, each[:12], 0, first))
    proposing = [
        replace(work(name, each[12:16], 12, first, decode=True), num_drafts=3)
        for name, each, first in (("a", tokens, 0), ("b", other, 12))
    ]
    together = rows(decoder, fresh, *proposing, work("plain", prompt(13, 5), 0, 40))
    assert together["plain"].shape == (1, VOCAB)
    for name, expected in found.items():
        assert together[name].shape == (4, VOCAB)
        assert (together[name] - expected).abs().max() < 1e-4


@pytest.mark.parametrize("window", [3, 9, 20])
def test_a_window_equals_transformers_whole_chunked_and_stepwise(window):
    import transformers

    made = transformers.MistralConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=128, sliding_window=window,
    )  # fmt: skip
    config = from_hugging_face(made.to_dict())
    assert config.window == window
    tensors = weights.random(config, 8)
    model = transformers.MistralForCausalLM(made).eval()
    model.load_state_dict(tensors)
    decoder, kv, tokens = (
        Decoder(config, tensors, torch.float32),
        PagedKv(config, BLOCKS, SIZE, torch.float32),
        prompt(6, 40),
    )
    with torch.inference_mode():
        expected = model(torch.tensor([tokens])).logits[0]
    assert (logits(decoder, kv, work("whole", tokens, 0, 0))[0] - expected[39]).abs().max() < 1e-3
    for start, end in ((0, 5), (5, 23), (23, 30)):
        chunk = logits(decoder, kv, work("chunks", tokens[start:end], start, 20))[0]
        assert (chunk - expected[end - 1]).abs().max() < 1e-3
    for at in range(30, 40):
        near, far = work("a", tokens[:2], 0, 40), work("chunks", tokens[at : at + 1], at, 20, decode=True)
        assert (logits(decoder, kv, near, far)[1] - expected[at]).abs().max() < 1e-3


def test_a_cached_prefix_gives_the_logits_of_a_cold_start(decoder, kv):
    from dataclasses import replace

    tokens = prompt(14, 30)
    cold = logits(decoder, kv, work("cold", tokens, 0, 0))
    logits(decoder, kv, work("first", tokens[:16], 0, 20))
    warm = work("warm", tokens[16:], 16, 40)
    shared = work("first", tokens[:16], 0, 20).block_table
    warm = replace(warm, block_table=(*shared, *warm.block_table[4:]))
    assert (logits(decoder, kv, warm) - cold).abs().max() < 1e-4


def test_a_chunk_that_wants_no_logits_fills_the_cache_all_the_same(decoder, kv):
    from dataclasses import replace

    tokens = prompt(15, 20)
    whole = logits(decoder, kv, work("whole", tokens, 0, 0))
    silent = replace(work("chunk", tokens[:12], 0, 20), samples=False)
    assert rows(decoder, kv, silent) == {}
    assert (logits(decoder, kv, work("chunk", tokens[12:], 12, 20)) - whole).abs().max() < 1e-4


@pytest.mark.parametrize(("kv_dtype", "bound"), [("int8", 0.02), ("fp8", 0.12)])
def test_a_cache_in_eight_bits_is_near_the_full_one(decoder, kv, kv_dtype, bound):
    small = PagedKv(decoder.config, BLOCKS, SIZE, torch.float32, kv_dtype)
    assert small.num_bytes < 0.3 * kv.num_bytes
    for seed in range(3):
        tokens = prompt(seed, 30)
        for start, end in ((0, 20), (20, 29), (29, 30)):
            exact = logits(decoder, kv, work("a", tokens[start:end], start, 0))
            near = logits(decoder, small, work("a", tokens[start:end], start, 0))
        assert 0 < (exact - near).abs().max() < bound * (exact.max() - exact.min())


def generate(decoder, requests, **changes):
    """Token lists of requests (prompt, count, sampling) served together by a whole engine."""
    config = SchedulerConfig(block_size=SIZE, num_blocks=BLOCKS, max_model_len=256, **changes)
    scheduler = Scheduler(config)
    engine = Engine(scheduler, TorchRunner(decoder, PagedKv(decoder.config, BLOCKS, SIZE, torch.float32)), lambda: 0)
    out = {str(index): [] for index in range(len(requests))}
    for index, (tokens, count, sampling) in enumerate(requests):
        assert scheduler.submit(RequestSpec(str(index), tokens, count, sampling), 0) is None
    while scheduler.requests:
        outcome = engine.step()
        assert outcome.error is None
        scheduler.audit()
        for emission in outcome.emissions:
            out[emission.request_id].append(emission.token)
    return list(out.values()), scheduler


def test_a_prefix_hit_gives_the_tokens_of_a_cold_start(decoder):
    shared = prompt(5, 24)
    requests = [((*shared, index), 8, Sampling()) for index in range(3)]
    cold, _ = generate(decoder, requests, prefix_cache=False)
    warm, scheduler = generate(decoder, requests, max_seqs=1, max_batched_tokens=64)
    assert cold == warm
    assert scheduler.pool.hit_tokens >= 48


def test_chunks_and_preemption_change_no_token(decoder):
    requests = [(prompt(index, 20 + index), 40, Sampling(0.8, 20, 0.95, index)) for index in range(5)]
    plain, easy = generate(decoder, requests, max_batched_tokens=256)
    tight, _ = generate(decoder, requests, max_batched_tokens=16, max_prefill_tokens=5)
    assert plain == tight
    assert easy.num_preemptions > 0  # five of 60 tokens do not fit into 64 blocks of 4
    alone = [generate(decoder, [request])[0][0] for request in requests]
    assert plain == alone


def test_the_sampler_keeps_to_its_filters_and_its_law():
    row = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    count = 4000

    def drawn(sampling):
        found = sample(row.expand(count, -1).clone(), [sampling] * count, list(range(count)))
        return [found.count(token) / count for token in range(4)]

    assert sample(row[None], [Sampling()], [0]) == [0]
    assert drawn(Sampling(1.0, top_k=1)) == [1, 0, 0, 0]
    assert drawn(Sampling(1.0, top_p=0.4)) == [1, 0, 0, 0]
    two = drawn(Sampling(1.0, top_p=0.75))
    assert two[2:] == [0, 0]
    assert drawn(Sampling(1.0)) == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.03)
    assert drawn(Sampling(0.5))[0] == pytest.approx(0.25 / 0.365, abs=0.03)
    # what else is in the batch does not matter
    assert (
        sample(row[None], [Sampling(1.0, seed=4)], [9])
        == sample(torch.stack([row, row]), [Sampling(), Sampling(1.0, seed=4)], [0, 9])[1:]
    )


def test_safetensors_directories_load_and_what_is_wrong_is_named(tmp_path):
    from safetensors.torch import save_file

    config = tiny(VOCAB)
    tensors = weights.random(config, 3)
    made, _ = hugging_face(config, tensors)
    names = sorted(tensors)
    save_file({name: tensors[name] for name in names[:9]}, tmp_path / "model-1.safetensors")
    save_file({name: tensors[name] for name in names[9:]}, tmp_path / "model-2.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(made.to_dict()))
    model = load(tmp_path, 0, "fp32", 1, VOCAB)
    assert torch.equal(model.decoder.embedding, tensors["model.embed_tokens.weight"])
    (tmp_path / "model-2.safetensors").unlink()
    with pytest.raises(EngineError, match=r"lack model\.layers"):
        load(tmp_path, 0, "fp32", 1, VOCAB)
    (tmp_path / "model-1.safetensors").write_bytes(b"no tensors here")
    with pytest.raises(EngineError, match="cannot be read as a model"):
        load(tmp_path, 0, "fp32", 1, VOCAB)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("model_type", "mamba", "model_type 'mamba'"),
        ("hidden_act", "gelu", "hidden_act 'gelu'"),
        ("mlp_bias", True, "mlp_bias"),
    ],
)
def test_an_unsupported_config_is_refused_by_name(field, value, says):
    good = {
        "model_type": "llama", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 1, "max_position_embeddings": 8,
    }  # fmt: skip
    from_hugging_face(good)
    with pytest.raises(EngineError, match=says):
        from_hugging_face(good | {field: value})


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\x00\x00\x00" + b"\xff" * 64, b"not a model" * 50])
def test_a_broken_gguf_is_one_clear_message(tmp_path, content):
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(EngineError, match="cannot be read as GGUF"):
        load(path, 0, "fp32", 1, VOCAB)


def test_a_seed_names_a_model():
    one, same, other = (load(None, seed, "auto", 1, VOCAB).decoder.embedding for seed in (7, 7, 8))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
