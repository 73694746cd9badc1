"""Training plans: a data set, an architecture, its normalisation and a recipe, under one name.

Those named as a data set follow the REGrad paper (supplement B.1). Those that end in -fast reach about the same
accuracy in a fraction of the steps: a one-cycle schedule (Smith 2018) with larger batches, in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor, nn

from nescio.training import Recipe, augment
from nescio.zoo import Normalised, small_cnn
from nescio_papers.zoo.resnet import resnet18_cifar, resnet152_cifar
from nescio_papers.zoo.vit import small_vit

STATISTICS: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "mnist": ((0.1307,), (0.3081,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "svhn": ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
    "digits": ((0.3053,), (0.3760,)),
}
"""Mean and standard deviation of each channel of the training pictures, with values in [0, 1]."""


def to_floats(x: Tensor) -> Tensor:
    """Return pictures of bytes as floats in [0, 1]."""
    return x.float() / 255


@dataclass(frozen=True)
class TrainingPlan:
    """What is trained on what, and how; `about` says it in words."""

    name: str
    data: str
    network: Callable[..., nn.Module]
    """Makes the network from a `seed`."""
    recipe: Recipe
    about: str
    validation: float = 0.1
    """The share of the training pictures, drawn by the seed, that chooses between epochs."""
    normalised: bool = True
    """Whether pictures are brought to mean 0 and spread 1 before the network."""

    def model(self, seed: int) -> Normalised:
        """Return the network with random weights, taking pictures in [0, 1]."""
        mean, spread = STATISTICS[self.data]
        if not self.normalised:
            mean, spread = (0.0,) * len(mean), (1.0,) * len(spread)
        return Normalised(self.network(seed=seed), mean, spread)


SGD = Recipe(optimizer="sgd", momentum=0.9, weight_decay=5e-4, lr=1e-2, schedule="constant", transform=to_floats)
"""SGD 0.01, momentum 0.9, weight decay 5e-4, batches of 128, no augmentation: what the papers' trainings share."""
_STANDARD = augment.compose(augment.random_crop(4), augment.horizontal_flip())
_TURNED = augment.compose(augment.random_rotation(15), augment.random_crop(4), augment.horizontal_flip())


_CYCLE = replace(SGD, schedule="one-cycle", nesterov=True, precision="bfloat16", batch_size=512)
_ADAM = Recipe(
    optimizer="adamw", schedule="cosine", lr=1e-3, weight_decay=0.05, warmup=5, batch_size=512, clip=1.0,
    precision="bfloat16", transform=to_floats, augment=_STANDARD,
)  # fmt: skip


def literal_svhn_cnn(seed: int | None = None) -> nn.Sequential:
    """Build the paper's SVHN network as its layers are printed: no ReLU between the last two dense layers, one on top.

    Dense-ReLU-Dense-Dense-ReLU-Softmax: the logits are cut off at zero.
    """
    layers = dict(small_cnn(channels=3, size=32, hidden=2, seed=seed).named_children())
    names = list(layers)
    last_relu = max(at for at, name in enumerate(names) if isinstance(layers[name], nn.ReLU))
    del layers[names[last_relu]]
    return nn.Sequential(*layers.values(), nn.ReLU())


PLANS: tuple[TrainingPlan, ...] = (
    TrainingPlan(
        "mnist", "mnist", small_cnn, replace(SGD, epochs=30, batch_size=128),
        "the paper's CNN and schedule: SGD 0.01, momentum 0.9, 30 epochs of batches of 128",
    ),
    TrainingPlan(
        "svhn", "svhn", partial(small_cnn, channels=3, size=32, hidden=2),
        replace(SGD, epochs=50, batch_size=64, lr=0.05, schedule="steps", milestones=(15, 30)),
        "the paper's CNN and schedule: SGD 0.05, a tenth after epochs 15 and 30, 50 epochs of batches of 64",
    ),
    TrainingPlan(
        "cifar10", "cifar10", resnet18_cifar,
        replace(SGD, epochs=100, lr=0.1, schedule="steps", milestones=(30, 60, 90), augment=_TURNED),
        "the paper's ResNet18 and schedule: SGD 0.1, a tenth after epochs 30, 60 and 90, 100 epochs of batches of 128; "
        "crops, flips and rotations up to 15°",
    ),
    TrainingPlan(
        "cifar100", "cifar100", resnet152_cifar,
        replace(SGD, epochs=120, batch_size=64, lr=0.1, schedule="steps", milestones=(40, 70, 100), augment=_TURNED),
        "the paper's ResNet152 and schedule: SGD 0.1, a tenth after epochs 40, 70 and 100, 120 epochs of batches of 64,"
        " with crops, flips and rotations up to 15°",
    ),
    TrainingPlan(
        "mnist-fast", "mnist", small_cnn, replace(_CYCLE, epochs=15, lr=0.1, precision=None),
        "the paper's CNN; one-cycle SGD up to 0.1, 15 epochs of batches of 512",
    ),
    TrainingPlan(
        "svhn-fast", "svhn", partial(small_cnn, channels=3, size=32, hidden=2),
        replace(_CYCLE, epochs=20, batch_size=256, lr=0.05, precision=None),
        "the paper's CNN; one-cycle SGD up to 0.05, 20 epochs of batches of 256",
    ),
    TrainingPlan(
        "cifar10-fast", "cifar10", resnet18_cifar, replace(_CYCLE, epochs=40, lr=0.4, warmup=10, augment=_STANDARD),
        "ResNet18; one-cycle SGD up to 0.4, 40 epochs of batches of 512, bfloat16; crops and flips",
    ),
    TrainingPlan(
        "cifar100-fast", "cifar100", resnet152_cifar,
        replace(_CYCLE, epochs=30, lr=0.3, warmup=8, augment=_STANDARD),
        "ResNet152; one-cycle SGD up to 0.3, 30 epochs of batches of 512, bfloat16; crops and flips",
    ),
    TrainingPlan(
        "resnet-svhn-fast", "svhn", resnet18_cifar,
        replace(_CYCLE, epochs=12, lr=0.2, warmup=3, augment=augment.random_crop(4)),
        "ResNet18; one-cycle SGD up to 0.2, 12 epochs of batches of 512, bfloat16; crops",
    ),
    TrainingPlan(
        "resnet-cifar100-fast", "cifar100", partial(resnet18_cifar, classes=100),
        replace(_CYCLE, epochs=24, lr=0.3, warmup=6, augment=_STANDARD),
        "ResNet18; one-cycle SGD up to 0.3, 24 epochs of batches of 512, bfloat16; crops and flips",
    ),
    TrainingPlan(
        "cifar10-brief", "cifar10", resnet18_cifar, replace(_CYCLE, epochs=16, lr=0.4, warmup=4, augment=_STANDARD),
        "ResNet18; one-cycle SGD up to 0.4, 16 epochs of batches of 512, bfloat16; crops and flips",
    ),
    TrainingPlan(
        "cifar100-brief", "cifar100", partial(resnet18_cifar, classes=100),
        replace(_CYCLE, epochs=16, lr=0.3, warmup=4, augment=_STANDARD),
        "ResNet18; one-cycle SGD up to 0.3, 16 epochs of batches of 512, bfloat16; crops and flips",
    ),
    TrainingPlan(
        "vit-cifar10", "cifar10", small_vit, replace(_ADAM, epochs=200),
        "a small ViT (6 layers of width 192, patches of 4); AdamW 0.001, cosine, 200 epochs of batches of 512",
    ),
    TrainingPlan(
        "vit-cifar10-fast", "cifar10", small_vit, replace(_ADAM, epochs=60),
        "a small ViT (6 layers of width 192, patches of 4); AdamW 0.001, cosine, 60 epochs of batches of 512",
    ),
    TrainingPlan(
        "vit-cifar10-brief", "cifar10", small_vit, replace(_ADAM, epochs=20),
        "a small ViT (6 layers of width 192, patches of 4); AdamW 0.001, cosine, 20 epochs of batches of 512",
    ),
    TrainingPlan(
        "vit-cifar100", "cifar100", partial(small_vit, classes=100), replace(_ADAM, epochs=200),
        "a small ViT (6 layers of width 192, patches of 4); AdamW 0.001, cosine, 200 epochs of batches of 512",
    ),
    TrainingPlan(
        "vit-cifar100-fast", "cifar100", partial(small_vit, classes=100), replace(_ADAM, epochs=60),
        "a small ViT (6 layers of width 192, patches of 4); AdamW 0.001, cosine, 60 epochs of batches of 512",
    ),
    TrainingPlan(
        "plain-mnist-fast", "mnist", small_cnn, replace(_CYCLE, epochs=15, lr=0.1, precision=None),
        "the paper's CNN on pictures in [0, 1], not normalised; one-cycle SGD up to 0.1, 15 epochs of batches of 512",
        normalised=False,
    ),
    TrainingPlan(
        "digits", "digits", partial(small_cnn, size=8, kernel=3), replace(SGD, epochs=30, batch_size=128),
        "the paper's CNN with 3×3 kernels on bundled 8×8 digits: SGD 0.01, 30 epochs of batches of 128",
    ),
)  # fmt: skip
PLANS += (
    *(replace(plan, name=f"own-{plan.name}") for plan in PLANS if plan.name in ("mnist", "svhn")),
    *(
        replace(
            plan, name="own-cifar10", recipe=replace(plan.recipe, precision="bfloat16"), about=f"{plan.about}; bfloat16"
        )
        for plan in PLANS
        if plan.name == "cifar10"
    ),
    *(
        replace(plan, name="literal-svhn", network=literal_svhn_cnn, about=f"{plan.about}; layers read literally")
        for plan in PLANS
        if plan.name == "svhn"
    ),
)
"""Under names of their own, the paper's schedules are used at every scale."""
RECIPES: Mapping[str, TrainingPlan] = {plan.name: plan for plan in PLANS}
"""The plans by name."""
