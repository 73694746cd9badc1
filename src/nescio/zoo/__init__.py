"""Networks in plain torch, the plans by which they are trained, and a trainer for small ones."""

from nescio.zoo.cnn import small_cnn
from nescio.zoo.plans import RECIPES, Normalised, TrainingPlan
from nescio.zoo.resnet import ResNet, ResNet18, resnet18, resnet18_cifar, resnet152_cifar
from nescio.zoo.train import Epoch, accuracy, train
from nescio.zoo.trained import Trained, trained
from nescio.zoo.vit import SmallViT, small_vit

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
