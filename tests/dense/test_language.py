"""A language model reads texts: against a plain loop over tokens, and what counts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio.dense import DenseScores, Reading
from nescio.types import InputError, ModelError

transformers = pytest.importorskip("transformers")


def llama(seed: int = 0, classes: int = 31) -> nn.Module:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=classes, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).double().eval()


def tokens(count: int = 3, length: int = 7, classes: int = 31) -> Tensor:
    return torch.randint(classes, (count, length), generator=torch.Generator().manual_seed(1))


def test_nll_and_entropy_are_those_of_a_loop_over_tokens():
    model, ids = llama(), tokens()
    reading = nescio.dense.read(model, ids, ["entropy", "energy"])
    with torch.no_grad():
        p = model(ids).logits.softmax(-1)
    for n in range(3):
        for t in range(1, 7):
            before = p[n, t - 1]
            assert float(reading.nll.maps[n, t]) == pytest.approx(-math.log(before[ids[n, t]]))
            assert float(reading.scores["entropy"].maps[n, t]) == pytest.approx(float(-(before * before.log()).sum()))
    assert bool(reading.nll.maps[:, 0].isnan().all())
    assert reading.lengths.tolist() == [6, 6, 6]
    with torch.no_grad():
        loss = model(ids, labels=ids).loss  # the mean over all tokens, by transformers itself
    assert float(reading.nll.maps[:, 1:].mean()) == pytest.approx(float(loss))


def test_exgrad_is_the_expected_norm_of_the_heads_gradient_at_the_token_before():
    model, ids = llama(), tokens(1, 4)
    found = nescio.dense.read(model, ids, "exgrad").scores["exgrad"].maps
    weight = model.lm_head.weight
    log_p = model(ids).logits.log_softmax(-1)
    for t in range(1, 4):
        norms = [
            torch.autograd.grad(log_p[0, t - 1, c], weight, retain_graph=True)[0].norm() for c in range(weight.shape[0])
        ]
        expected = (log_p[0, t - 1].exp().detach() * torch.stack(norms)).sum()
        assert float(found[0, t]) == pytest.approx(float(expected), rel=1e-9)


def test_the_prompt_padding_and_what_follows_padding_do_not_count():
    model, ids = llama(), tokens(2, 6)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]])
    reading = nescio.dense.read(model, {"input_ids": ids, "attention_mask": mask}, "entropy")
    assert reading.nll.mask.tolist() == [[False, True, True, True, False, False], [False] * 3 + [True] * 3]
    answers = nescio.dense.read(
        model, {"input_ids": ids, "attention_mask": mask}, "entropy", prompt=torch.tensor([2, 4])
    )
    assert answers.lengths.tolist() == [2, 2]
    with torch.no_grad():
        alone = model(ids[:1, :4]).logits.log_softmax(-1)
    assert float(reading.nll.maps[0, 3]) == pytest.approx(-float(alone[0, 2, ids[0, 3]]))


def test_summaries():
    nan = torch.nan
    reading = Reading(
        DenseScores(torch.tensor([[nan, 1.0, 3.0], [nan, 2.0, nan]])),
        {"entropy": DenseScores(torch.tensor([[nan, 0.5, 0.1], [nan, 0.75, nan]]))},
    )
    torch.testing.assert_close(reading.perplexity, torch.tensor([2.0, 2.0], dtype=torch.float64).exp())
    assert reading.summary(how="sum").tolist() == [4.0, 2.0]
    assert reading.summary("entropy", "max").tolist() == [0.5, 0.75]
    with pytest.raises(InputError, match="entropy"):
        reading.summary("energy")


def test_it_does_not_depend_on_the_chunk_and_leaves_the_model_alone():
    model, ids = llama().train(), tokens(5)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    whole = nescio.dense.read(model, ids, ["entropy", "regrad"])
    parts = nescio.dense.read(model, ids, ["entropy", "regrad"], chunk=2)
    for name in whole.scores:
        torch.testing.assert_close(
            whole.scores[name].maps, parts.scores[name].maps, rtol=1e-9, atol=1e-12, equal_nan=True
        )
    assert model.training and not model._forward_hooks
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("x", "more", "words"),
    [
        (torch.rand(2, 5), {}, "token indices"),
        (torch.zeros(2, 1, dtype=torch.long), {}, "at least two tokens"),
        (tokens(), {"prompt": 7}, "leaves a token"),
        (tokens(), {"prompt": -1}, "leaves a token"),
        (tokens(), {"prompt": torch.tensor([1, 2])}, "one for each text"),
        (tokens(), {}, "below 31"),
    ],
)
def test_what_cannot_be_read_is_said(x, more, words):
    class Wide(nn.Module):  # takes more tokens than it has classes
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(40, 4), nn.Linear(4, 31)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embed(ids))

    if words == "below 31":
        x = torch.full((2, 3), 39)
    with pytest.raises(InputError, match=words):
        nescio.dense.read(Wide(), x, "entropy", **more)


def test_a_model_with_one_answer_for_a_text_is_refused():
    model = nn.Sequential(nn.Embedding(31, 4), nn.Flatten(), nn.Linear(28, 3))
    with pytest.raises((InputError, ModelError), match="position"):
        nescio.dense.read(model, tokens(), "entropy")
