"""Answers at every position (pixels, voxels, tokens): maps of scores, and what can be made of them.

    maps = nescio.score(model, pictures, "entropy")              # [N, H, W], higher = more uncertain
    scores = nescio.dense.DenseScores(maps, mask=inside)         # positions that do not count are left out
    scores.summary("quantile")                                   # one number for each picture, [N]
    y, u, right = nescio.dense.flatten(labels, maps, labels == predicted, ignore_index=255)
    nescio.evaluate.raulc(u, right)                              # any metric, over positions
    guard = nescio.dense.RegionGuard(model).fit(reference)       # which part of a picture does it not know?
    guard.check(pictures).words()
    nescio.dense.read(language_model, tokens).perplexity         # what it thought of every token

A model that answers at every position is a classifier of positions: its logits are ``[N, *positions, C]``
(`nescio.Classifier`), and each method gets them row by row.
"""

from nescio.dense.language import Reading, read
from nescio.dense.position_maps import PositionMap, by_position
from nescio.dense.region_guard import RegionGuard
from nescio.dense.region_verdict import RegionVerdict
from nescio.dense.sampling import Positions, labelled_positions
from nescio.dense.summaries import DenseScores, flatten
from nescio.dense.whole_network import whole_network

__all__ = [
    "DenseScores",
    "flatten",
    "labelled_positions",
    "Positions",
    "PositionMap",
    "by_position",
    "read",
    "Reading",
    "whole_network",
    "RegionGuard",
    "RegionVerdict",
]
