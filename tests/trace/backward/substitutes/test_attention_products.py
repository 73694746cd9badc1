"""The gradients of attention in matrix products."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nescio import modes
from nescio.models import Classifier
from nescio.trace.backward.substitutes import attention_products
from nescio.trace.probe import passes
from nescio.trace.runtime import autograd_names as names

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")


@pytest.mark.parametrize("queries", [1, 3, 9], ids=lambda n: f"{n} queries")
@pytest.mark.parametrize("live", [1, None], ids=["one reached", "all reached"])
def test_attention_in_products_has_the_gradients_of_autograd(queries: int, live: int | None) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, t, 4, dtype=torch.float64, requires_grad=True) for t in (queries, 9, 9))
    g = torch.randn(5, 2, 3, queries, 4, dtype=torch.float64)
    if live is not None:
        g[:, :, :, live:] = 0
    y = nn.functional.scaled_dot_product_attention(q, k, v, scale=0.3)
    wanted = [torch.autograd.grad(y, (q, k, v), own, retain_graph=True) for own in g]
    found = attention_products.pulled(g, q.detach(), k.detach(), v.detach(), 0.3)
    for ours, theirs in zip(found, zip(*wanted, strict=True), strict=True):
        torch.testing.assert_close(ours, torch.stack(theirs), rtol=1e-12, atol=1e-13)


def test_plain_self_attention_is_one_operation_on_a_cpu() -> None:
    torch.manual_seed(0)
    layer, x = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), torch.randn(3, 9, 6)
    classifier = Classifier.of(nn.Sequential(layer, nn.Flatten(), nn.Linear(54, 3)))
    with modes.preserved(classifier), modes.tracing(classifier):
        found = [node.name() for node in passes.forward(classifier, x).graph.nodes]
    assert found.count(names.PACKED_ATTENTION) == 1
    assert not any(name.startswith(names.FUSED_ATTENTION) or name == "SoftmaxBackward0" for name in found)
