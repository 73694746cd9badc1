"""Small networks in plain torch and a trainer for them: what the demonstration, the benchmarks and the tests run on."""

from nescio.zoo.cnn import small_cnn
from nescio.zoo.resnet import ResNet18, resnet18, resnet18_cifar
from nescio.zoo.train import Epoch, accuracy, train
from nescio.zoo.vit import SmallViT, small_vit

__all__ = ["small_cnn", "resnet18", "resnet18_cifar", "ResNet18", "small_vit", "SmallViT", "train", "accuracy", "Epoch"]
