"""The scores: pure functions from quantities to one float64 per input, where higher means more uncertain.

    nescio.scores.REGrad(layer_decay=0.2)     # a method as an object, to be passed where its name can be
    nescio.scores.get("regrad", sigma=0.01)   # the same by name
    nescio.methods()                          # all of them, as a table

One file a family. A file that is put into this folder is found by itself.
"""

from nescio.scores.ash import ASH
from nescio.scores.base import FittedScore, Method, Score
from nescio.scores.default import default_method
from nescio.scores.even import EvenGrad
from nescio.scores.fdbd import FDBD
from nescio.scores.feature_scores import KNN, Mahalanobis
from nescio.scores.gradients import ExGrad, GradNorm, NEGrad, REGrad, UNGrad
from nescio.scores.max_logit import MaxLogit
from nescio.scores.nnguide import NNGuide
from nescio.scores.odin import ODIN
from nescio.scores.perturbations import MCAA, InsertedDropout, PerturbTheta, PerturbX
from nescio.scores.posterior import Laplace, MutualInformation
from nescio.scores.probabilities import GEN, Energy, Entropy, ExGradV, MaxProbability
from nescio.scores.pytorch_ood_scores import from_pytorch_ood
from nescio.scores.react import ReAct
from nescio.scores.registry import MethodInfo, MethodTable, discover, get, methods, names, register
from nescio.scores.relative_mahalanobis import RelativeMahalanobis
from nescio.scores.scale import Scale
from nescio.scores.she import SHE
from nescio.scores.shift_entropy import ShiftEntropy
from nescio.scores.squared import Squared
from nescio.scores.vim import ViM

discover(__name__, __path__)

__all__ = [
    "methods",
    "names",
    "get",
    "default_method",
    "register",
    "from_pytorch_ood",
    "Method",
    "Score",
    "FittedScore",
    "MethodInfo",
    "MethodTable",
    "NEGrad",
    "UNGrad",
    "GradNorm",
    "ExGrad",
    "REGrad",
    "EvenGrad",
    "Squared",
    "PerturbX",
    "PerturbTheta",
    "MCAA",
    "InsertedDropout",
    "ODIN",
    "ShiftEntropy",
    "Entropy",
    "ExGradV",
    "MaxProbability",
    "Energy",
    "GEN",
    "MaxLogit",
    "ASH",
    "Scale",
    "Mahalanobis",
    "KNN",
    "RelativeMahalanobis",
    "ViM",
    "FDBD",
    "NNGuide",
    "ReAct",
    "SHE",
    "Laplace",
    "MutualInformation",
]
