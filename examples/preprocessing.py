"""My model wants normalised inputs, and ends in a softmax.

A Classifier says so once. Noise is added to inputs before the normalisation, so that `sigma` is in the units of the
picture in [0, 1]. Run with: python examples/preprocessing.py
"""

import torch
from torch import Tensor, nn

import nescio


def normalise(x: Tensor) -> Tensor:
    return (x - 0.5) / 0.25


def main() -> None:
    network = nescio.zoo.small_cnn(channels=1, size=28, classes=10, seed=0)
    model = nn.Sequential(network, nn.Softmax(dim=1))
    classifier = nescio.Classifier(model, output="probabilities", preprocess=normalise)

    pictures = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    uncertainty = nescio.score(classifier, pictures, "regrad", sigma=0.02, samples=10)
    print("REGrad of four pictures of noise:", ", ".join(f"{u:.3g}" for u in uncertainty.tolist()))


if __name__ == "__main__":
    main()
