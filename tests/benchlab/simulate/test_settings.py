"""The simulated engine as it is asked for: what fits, what is refused, and in which words."""

from __future__ import annotations

import pytest

from benchlab.errors import UsageError
from benchlab.simulate.settings import EngineSettings, parse_speculate


def test_a_roofline_knows_its_blocks_and_others_have_a_default():
    config, costs = EngineSettings("roofline:l4:llama-3-8b", {"block_size": 32}).build()
    assert config.num_blocks == costs.num_kv_blocks(32) == 1700
    assert EngineSettings("teaching").build()[0].num_blocks == 8192
    assert EngineSettings("roofline:l4:llama-3-70b", {"num_blocks": 7}).build()[0].num_blocks == 7


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (EngineSettings("slow"), "--profile: profile 'slow': not known; use teaching"),
        (EngineSettings("roofline:l4:llama-3-70b"), "gpus=4"),
        (EngineSettings("teaching", {"max_seqs": 600}), "max_batched_tokens 512 is below max_seqs 600"),
        (EngineSettings("teaching", {"policy": "best"}), "policy 'best'"),
    ],
)
def test_what_cannot_be_is_refused(settings, says):
    with pytest.raises(UsageError) as error:
        settings.build()
    assert says in str(error.value)


def test_ways_to_speculate():
    assert parse_speculate("none") == {}
    assert parse_speculate("runner:3") == {"speculate": "runner", "num_drafts": 3}
    for wrong in ("", "ngram", "ngram:0", "ngram:65", "draft:tiny:3", "ngram:three", "ngram:-1"):
        with pytest.raises(UsageError, match="no way to speculate"):
            parse_speculate(wrong)


def test_facts_hold_the_cost_model_in_numbers():
    facts = EngineSettings("roofline:h100:llama-3-8b,eff=0.6", max_wait_ns=5).facts()
    assert facts["costs"]["device"]["bytes_per_s"] == 3.35e12
    assert facts["costs"]["eff"] == 0.6
    assert (facts["max_wait_ns"], facts["max_seqs"]) == (5, 16)
