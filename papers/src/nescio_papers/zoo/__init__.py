"""The papers' networks in plain torch, and the plans by which they are trained; also all names of `nescio.zoo`."""

from nescio.zoo import Epoch, Normalised, accuracy, small_cnn, train
from nescio_papers.zoo.plans import RECIPES, TrainingPlan
from nescio_papers.zoo.resnet import ResNet, ResNet18, resnet18, resnet18_cifar, resnet152_cifar
from nescio_papers.zoo.trained import Trained, trained
from nescio_papers.zoo.vit import SmallViT, small_vit

__all__ = [
    "small_cnn",
    "resnet18",
    "resnet18_cifar",
    "resnet152_cifar",
    "ResNet",
    "ResNet18",
    "small_vit",
    "SmallViT",
    "Normalised",
    "RECIPES",
    "TrainingPlan",
    "Trained",
    "trained",
    "train",
    "accuracy",
    "Epoch",
]
