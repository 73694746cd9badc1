"""Names of autograd's nodes stand in one table, and are those that autograd gives."""

from __future__ import annotations

import re
from pathlib import Path

import torch

import nescio
from nescio.trace.backward.substitutes.batch_norm import AffineBatchNorm
from nescio.trace.backward.substitutes.channel_scale import ChannelScale
from nescio.trace.backward.substitutes.convolution import DataConvolution
from nescio.trace.backward.substitutes.layer_norm import DataLayerNorm
from nescio.trace.backward.substitutes.picked_parts import Parts
from nescio.trace.backward.substitutes.score_products import RowsSoftmax, Scores, Weighted
from nescio.trace.runtime import autograd_names

PACKAGE = Path(nescio.__file__).parent


def test_no_other_file_spells_such_a_name() -> None:
    spelled = re.compile(r"""["'](\w+Backward\d?|torch::autograd::\w+)["']""")
    files = {f.relative_to(PACKAGE).as_posix() for f in PACKAGE.rglob("*.py") if spelled.search(f.read_text("utf-8"))}
    assert files == {"trace/runtime/autograd_names.py"}


def test_our_own_operations_have_the_names_of_their_classes() -> None:
    own = (
        autograd_names.DATA_CONVOLUTION,
        autograd_names.AFFINE_BATCH_NORM,
        autograd_names.DATA_LAYER_NORM,
        autograd_names.PARTS,
        autograd_names.SCORES,
        autograd_names.ROWS_SOFTMAX,
        autograd_names.WEIGHTED,
        autograd_names.CHANNEL_SCALE,
    )
    kinds = (DataConvolution, AffineBatchNorm, DataLayerNorm, Parts, Scores, RowsSoftmax, Weighted, ChannelScale)
    assert own == tuple(f"{kind.__name__}Backward" for kind in kinds)


def test_the_names_are_those_of_this_torch() -> None:
    p = torch.ones(2, 2, requires_grad=True)
    results = {
        autograd_names.ADD: p + 1,
        autograd_names.SUB: p - 1,
        autograd_names.MUL: p * 2,
        autograd_names.MM: p @ p,
        autograd_names.ADDMM: torch.addmm(p, p, p),
        autograd_names.EXPAND: p.expand(3, 2, 2),
        autograd_names.REPEAT: p.repeat(2, 1),
        autograd_names.INDEX: p[torch.tensor([0])],
        autograd_names.INDEX_SELECT: p.index_select(0, torch.tensor([0])),
        autograd_names.EMBEDDING: torch.nn.functional.embedding(torch.tensor([0]), p),
        autograd_names.LAYER_NORM: torch.nn.functional.layer_norm(p, (2,)),
        autograd_names.GROUP_NORM: torch.nn.functional.group_norm(p, 1),
        autograd_names.CONVOLUTION: torch.nn.functional.conv1d(p.unsqueeze(0), p.unsqueeze(2)),
        autograd_names.PRELU: torch.nn.functional.prelu(p, torch.ones(1)),
    }
    assert {name: y.grad_fn.name() for name, y in results.items()} == {name: name for name in results}  # type: ignore[union-attr]
