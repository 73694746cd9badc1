"""Small models of pictures, numbers and texts, and a real server around any of them."""

import base64
import io
import math
import os
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from nescio import zoo
from nescio.guard import Guard
from nescio.models import Classifier
from nescio.models.sources import Numbers, Pictures, Source, Texts
from nescio.posteriors import InsertedDropout
from nescio.serve import Engine, Settings, application, listening
from nescio.serve.server import address, server

NAMES = tuple("abcdefghij")


class Trained(InsertedDropout):
    """Stands for a distribution that was trained, and needs no training."""

    learnt = True


def pictures(seed: int = 0) -> Source:
    """A network for grey pictures 8 × 8, with random weights."""
    model = zoo.small_cnn(1, 8, 10, 3, filters=4, units=16, seed=seed).eval()
    return Source(Classifier(model), Pictures((8, 8), channels=1), "a small network", NAMES)


def numbers(classes: int = 3) -> Source:
    """A network for five numbers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, classes)).eval()
    return Source(Classifier(model), Numbers(), "five numbers")


class Tokens:
    """A tokenizer: a token for each letter."""

    pad_token_id, padding_side = 0, "right"

    def __call__(self, text: str, truncation: bool = False, max_length: int | None = None) -> dict[str, list[int]]:
        ids = [1 + ord(letter) % 40 for letter in text][:max_length] or [1]
        return {"input_ids": ids, "attention_mask": [1] * len(ids)}

    def __len__(self) -> int:
        return 41

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f"t{one}" for one in ids]


class Bag(nn.Module):
    """The mean of the tokens' embeddings, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(41, 8), nn.Linear(8, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        weights = attention_mask.unsqueeze(2).float()
        return self.head((self.embedding(input_ids) * weights).sum(1) / weights.sum(1))


def texts() -> Source:
    """A network for texts of any length."""
    torch.manual_seed(0)
    return Source(Classifier(Bag().eval()), Texts(Tokens()), "a bag of letters", ("bad", "so so", "good"))


class Slow(nn.Module):
    """Takes its time, for five numbers of which one is larger than `above`."""

    def __init__(self, seconds: float = 0.4, above: float = -math.inf) -> None:
        super().__init__()
        self.layer, self.seconds, self.above = nn.Linear(5, 3), seconds, above

    def forward(self, x: Tensor) -> Tensor:
        if x.max() > self.above:
            time.sleep(self.seconds)
        return self.layer(x)


def slow() -> nn.Module:
    """For `nescio serve --model tests.serve.models:slow`."""
    torch.manual_seed(0)
    return Slow()


def slow_for_large() -> nn.Module:
    """For `nescio serve --model tests.serve.models:slow_for_large`, which starts at once."""
    torch.manual_seed(0)
    return Slow(3.0, above=1000)


class Held(nn.Module):
    """Makes the file `begun` when five large numbers come, and then waits for the file `go on`; both in `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.layer, self.folder = nn.Linear(5, 3), folder

    def forward(self, x: Tensor) -> Tensor:
        if x.max() > 1000:
            (self.folder / "begun").touch()
            while not (self.folder / "go on").exists():
                time.sleep(0.01)
        return self.layer(x)


def held() -> nn.Module:
    """For `nescio serve --model tests.serve.models:held`, with a folder in the environment."""
    torch.manual_seed(0)
    return Held(Path(os.environ["HELD"]))


def quick() -> nn.Module:
    """For `nescio serve --model tests.serve.models:quick`."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


def guard(source: Source, labelled: bool = True) -> Guard:
    """A guard of dim pictures of noise, or of small numbers; every third label is wrong."""
    random = torch.Generator().manual_seed(1)
    shape = (1, 8, 8) if source.kind == "pictures" else (5,)
    x = 0.3 * torch.rand(120, *shape, generator=random)
    with torch.no_grad():
        y = source.model.logits(x).argmax(1)
    y[::3] = (y[::3] + 1) % 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a small reference
        return Guard(source.model).fit((x, y) if labelled else x, nuisances=None, progress=False)


def png(seed: int = 0, size: tuple[int, int] = (8, 8)) -> bytes:
    """The file of a random grey picture."""
    array = np.random.default_rng(seed).integers(0, 256, size[::-1], dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def as_json(*files: bytes) -> dict[str, Any]:
    return {"inputs": [{"image": base64.b64encode(file).decode()} for file in files]}


@contextmanager
def served(engine: Engine, settings: Settings | None = None, **more: Any) -> Iterator[httpx.Client]:
    """A real server on a free port, and a client for it."""
    settings = settings or Settings(port=0)
    with listening(settings) as place:
        running = server(application(engine, settings, **more), settings)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [place]})
        thread.start()
        try:
            while not running.started:
                assert thread.is_alive(), "the server did not start"
                time.sleep(0.01)
            with httpx.Client(base_url=address(place), timeout=30) as client:
                yield client
        finally:
            running.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
