"""Training of classifiers: one loop that is seeded, goes on after a kill, and keeps the best weights on validation."""

from nescio.training import augment
from nescio.training.loop import accuracy, train
from nescio.training.recipe import Recipe
from nescio.training.run import Epoch, Loss, Step
from nescio.training.seeding import seeded, spawned

__all__ = ["train", "Recipe", "Epoch", "Step", "Loss", "accuracy", "augment", "seeded", "spawned"]
