"""The picture sets of the benchmarks under one name each, labels by several people, and common corruptions."""

from nescio_papers.datasets.corruptions import CORRUPTIONS, corrupt
from nescio_papers.datasets.sets import SETS, load_set
from nescio_papers.datasets.soft_labels import soft_labels

__all__ = ["load_set", "SETS", "soft_labels", "corrupt", "CORRUPTIONS"]
