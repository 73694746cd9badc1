"""Small models that the tests of this folder share."""

from pathlib import Path

import torch
from torch import nn


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)).eval()


def conv() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))


class Returns(nn.Module):
    """Gives the logits inside of something else."""

    def __init__(self, wrap):
        super().__init__()
        self.body, self.wrap = mlp(), wrap

    def forward(self, x):
        return self.wrap(self.body(x))


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 3)

    def forward(self, input_ids, attention_mask):
        return self.head((self.embed(input_ids) * attention_mask[..., None]).sum(1))


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def save(model: nn.Module, file: Path, kind: str) -> Path:
    """Weights in a file of that kind: safetensors, torch or legacy (torch before 1.6)."""
    state = model.state_dict()
    if kind == "safetensors":
        from safetensors.torch import save_file

        save_file(state, file)
    elif kind == "legacy":
        torch.save(state, file, _use_new_zipfile_serialization=False)
    else:
        torch.save(state, file)
    return file


def never(*_):
    """A compiler that must not be called."""
    raise AssertionError("the model was compiled")
