"""Random models of a chosen shape, made where they will run: ours, and transformers' with the same weights."""

from __future__ import annotations

from dataclasses import replace

from benchlab_engine.model.config import DecoderConfig, tiny


def shape(toy: bool) -> DecoderConfig:
    """Llama 3 8B's sizes, or a toy's of the same build."""
    if toy:
        return replace(tiny(512), tied=False, hidden=128, ffn=256, head_dim=32)
    return DecoderConfig(
        vocab_size=128_256, hidden=4096, ffn=14_336, num_layers=32, num_heads=32, num_kv_heads=8, head_dim=128,
        max_positions=8192, rope_theta=500_000.0, tied=False,
    )  # fmt: skip


def drawn(config: DecoderConfig, device):
    """Every tensor by name, drawn anew by its own seed at each look-up."""
    import torch

    from benchlab_engine.model.weights import shapes
    from benchlab_engine.model.weights_files import LazyTensors

    def reader(seed: int, wanted: tuple[int, ...]):
        def read():
            generator = torch.Generator(device).manual_seed(seed)
            found = torch.randn(wanted, generator=generator, device=device, dtype=torch.bfloat16)
            return 1 + 0.1 * found if len(wanted) == 1 else found * wanted[-1] ** -0.5

        return read

    wanted = shapes(config)
    return LazyTensors(wanted, {name: reader(seed, size) for seed, (name, size) in enumerate(wanted.items())})


def decoder_of(config: DecoderConfig, quant: str, device):
    """Ours, in bf16 or with quantised weights."""
    import torch

    from benchlab_engine.model.decoder import Decoder
    from benchlab_engine.model.quant import maker, parse

    return Decoder(config, drawn(config, device), torch.bfloat16, maker(parse(quant), device), device)


def transformers_of(config: DecoderConfig, device):
    """transformers' model with the same weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    made = LlamaConfig(
        vocab_size=config.vocab_size, hidden_size=config.hidden, intermediate_size=config.ffn,
        num_hidden_layers=config.num_layers, num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads, head_dim=config.head_dim, rms_norm_eps=config.norm_eps,
        max_position_embeddings=config.max_positions, tie_word_embeddings=config.tied,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
    )  # fmt: skip
    return LlamaForCausalLM.from_pretrained(
        None, config=made, state_dict=dict(drawn(config, device)), dtype=torch.bfloat16
    ).to(device).eval()  # fmt: skip
