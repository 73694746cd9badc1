"""Attention in all its shapes: projections in one piece or three, cross attention, masks, encoder layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio import modes
from nescio.models import Classifier
from nescio.trace.backward.substitutes import attention
from nescio.trace.probe import passes
from tests.trace.helpers import SMOOTH, ready, same_as_reference, slow

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:The PyTorch API of nested tensors")


class Attention(nn.Module):
    """Self or cross attention over a sequence [N, T, 6] of which the first positions are the query."""

    def __init__(self, cross: bool = False, weights: bool = True, **options: Any) -> None:
        super().__init__()
        self.cross, self.weights, self.first = cross, weights, options.get("batch_first", False)
        self.kdim, self.vdim = options.get("kdim", 6), options.get("vdim", 6)
        self.attention = nn.MultiheadAttention(6, 2, **options)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.first else x.transpose(0, 1)
        time = 1 if self.first else 0
        query = x.narrow(time, 0, 2) if self.cross else x
        key, value = x[..., : self.kdim], x[..., : self.vdim]
        if not self.cross and self.kdim == self.vdim == 6:
            key = value = query
        y, _ = self.attention(query, key, value, need_weights=self.weights)
        return self.head(torch.tanh(y).mean(time))


@pytest.mark.parametrize("first, weights", [(True, False), (False, True), (False, False)])
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"kdim": 4, "vdim": 5}, {"add_bias_kv": True}, {"add_zero_attn": True}],
    ids=str,
)
def test_multihead_attention(first: bool, weights: bool, cross: bool, options: dict[str, Any]) -> None:
    model = ready(Attention(cross, weights, batch_first=first, **options))
    x = torch.randn(4, 5, 6, dtype=torch.float64)
    same_as_reference(model, x, **({} if weights else {"norm": 1, **SMOOTH}))
    with attention.plain(True):
        general = slow(model, x)
    assert general == ({"attention.bias_k", "attention.bias_v"} if "add_bias_kv" in options else set())


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("first", [True, False], ids=["batch first", "sequence first"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_encoder_layer(norm_first: bool, first: bool, bias: bool) -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(6, 2, 8, norm_first=norm_first, batch_first=first, bias=bias)
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.layer(x if first else x.transpose(0, 1))
            return self.head(h[:, 0] if first else h[0])

    model, x = ready(Encoder()), torch.randn(4, 5, 6, dtype=torch.float64)
    assert slow(model, x) == set()
    same_as_reference(model, x)
    same_as_reference(model, x, **SMOOTH)


def test_decoder_layer_and_masks() -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(9, 6, padding_idx=0)
            self.layer = nn.TransformerDecoderLayer(6, 2, 8, batch_first=True)
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.table(x)
            causal = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=h.dtype)
            y = self.layer(h, h, tgt_mask=causal, memory_key_padding_mask=x == 0)
            return self.head(y[:, -1])

    x = torch.randint(1, 9, (5, 6))
    x[1, 4:] = 0
    x[3, 2:] = 0
    model = ready(Decoder())
    assert slow(model, x) == set()
    same_as_reference(model, x)
    same_as_reference(model, x[:1])


def test_encoder_with_nested_tensors_for_padding() -> None:
    """Under no_grad the encoder takes another road, with gradients it must not."""

    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
            self.table, self.head, self.unused = nn.Embedding(9, 6), nn.Linear(6, 3), nn.Linear(2, 2)
            self.encoder = nn.TransformerEncoder(layer, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.encoder(self.table(x), src_key_padding_mask=x == 0)
            keep = (x != 0).unsqueeze(2)
            return self.head((h * keep).sum(1) / keep.sum(1))

    x = torch.randint(1, 9, (5, 6))
    x[1, 4:] = 0
    same_as_reference(ready(Padded()), x)


def test_fused_attention_is_taken_apart_where_it_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ready(Attention(cross=True, batch_first=True, weights=False))
    x = torch.randn(4, 5, 6, dtype=torch.float64)
    classifier = Classifier.of(model)
    with modes.preserved(classifier), modes.tracing(classifier):
        fused = passes.forward(classifier, x).graph
        with attention.plain(True):
            apart = passes.forward(classifier, x).graph
    assert any(n.name().startswith("ScaledDotProduct") for n in fused.nodes)
    assert not any(n.name().startswith("ScaledDotProduct") for n in apart.nodes)
    assert [attention.short(fused.nodes), attention.short(apart.nodes)] == [True, False]
    short = same_as_reference(model, x)
    monkeypatch.setattr(attention, "LONGEST", 2)
    assert not attention.short(fused.nodes)
    torch.testing.assert_close(same_as_reference(model, x), short, rtol=1e-9, atol=0)
