"""The study of pixels once more, on an FCN of torchvision: its logits are resized, as those of most networks are."""

from __future__ import annotations

from functools import partial

from nescio_papers.dense.segmentation import NOTES, PARTS, program
from nescio_papers.runner.study import Study

STUDY = Study(
    "segmentation-fcn",
    "Foreign and wrong pixels, on torchvision's FCN over two stages of its ResNet18",
    PARTS,
    NOTES,
    partial(program, kind="fcn"),
)
