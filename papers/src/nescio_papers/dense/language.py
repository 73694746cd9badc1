"""A small language model: the doubt before each character, wrong predictions, and texts that are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nescio import evaluate
from nescio.dense import read, whole_network
from nescio.models import Classifier
from nescio_papers.dense import texts
from nescio_papers.dense.segmentation import METHODS
from nescio_papers.runner.cells import digest, kept_json, kept_tensors
from nescio_papers.runner.program import Job, Made
from nescio_papers.runner.study import Column, Part, Row, Study

LENGTH, PROMPT = 64, 8
"""Characters of a text, and how many of them are not looked at: there is too little before them."""
WHOLE = ("exgrad", "regrad")
CHANGES = ("characters shuffled", "words shuffled", "code")


@dataclass(frozen=True)
class Size:
    """The width of the network, steps of training, texts in a step; texts for tests, for the whole network; seeds."""

    width: int
    steps: int
    batch: int
    tests: int
    whole: int
    seeds: tuple[int, ...]
    modules: int | None = None


SIZES = {
    "smoke": Size(16, 4, 8, 12, 4, (0,), 30),
    "small": Size(64, 500, 48, 400, 20, (0,)),
    "quick": Size(128, 1000, 48, 1000, 60, (0, 1, 2)),
    "paper": Size(256, 10_000, 64, 4000, 1000, (0, 1, 2, 3, 4)),
}
SCORES = tuple(Row(name, name) for name in METHODS)
PARTS = (
    Part("Wrong predictions of the next character", "program", (Column("docstrings"),), SCORES, ("auroc", "raulc")),
    Part("Texts told from docstrings by the mean over their characters", "program",
         tuple(Column(name) for name in CHANGES),
         (Row("nll", "nll", note="looks at the text itself"), *SCORES,
          *(Row(f"{name}, whole network", name, note="of fewer texts") for name in WHOLE)),
         ("auroc",), averages="each"),
)  # fmt: skip


class Writer(nn.Module):
    """A causal transformer of two layers over characters: logits ``[N, T, C]``.

    Args:
        width: Of its layers.
        classes: How many characters there are.
    """

    def __init__(self, width: int = 128, classes: int = len(texts.ALPHABET)) -> None:
        super().__init__()
        self.table = nn.Embedding(classes, width)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        """Compute the logits of the character after each."""
        length = ids.shape[1]
        later = torch.full((length, length), -torch.inf, device=ids.device).triu(1)
        x = self.table(ids) + self.places[:length]
        for block in self.blocks:
            x = block(x, src_mask=later)
        logits: Tensor = self.head(self.norm(x))
        return logits


def train(pieces: tuple[str, ...], size: Size, seed: int, say: Callable[[str], object]) -> Writer:
    """Train by the log-loss of the next character, with AdamW and one cycle of learning rates.

    Args:
        pieces: The texts.
        size: Of the network and of the training.
        seed: Of the first weights and of the windows.
        say: Is told how it goes.
    """
    ids = texts.tokens(texts.windows(pieces, LENGTH, size.steps * size.batch, seed))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Writer(size.width).train()
        optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=size.steps)
        for step, rows in enumerate(ids.split(size.batch)):
            loss = F.cross_entropy(model(rows)[:, :-1].flatten(0, 1), rows[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            cycle.step()
            if (step + 1) % 200 == 0:
                say(f"  step {step + 1} of {size.steps}: loss {float(loss.detach()):.3f}")
    return model.eval()


def program(job: Job) -> Made:
    """Train, read and measure, seed after seed."""
    size = SIZES[job.parts.scale.name]
    seeds = job.seeds or size.seeds
    corpus = texts.texts(size.modules)
    mark = digest(str(size), *corpus.training, *corpus.docstrings)
    folder = job.work / "language" / mark
    cells: list[list[dict[str, Any]]] = [[] for _ in PARTS]
    models = []
    for seed in seeds:
        job.check()

        def trained(seed: int = seed) -> dict[str, Tensor]:
            return train(corpus.training, size, seed, job.say).state_dict()

        state, seconds = kept_tensors(folder / f"writer-{seed}.pt", trained, job.check)
        model = Writer(size.width).eval()
        model.load_state_dict(state)

        def numbers(model: Writer = model, seed: int = seed) -> dict[str, Any]:
            return measured(model, corpus, size, seed, job.check)

        made = kept_json(folder / f"cells-{seed}.json", numbers)
        for at, rows in zip(cells, made["cells"], strict=True):
            at += [{**row, "seed": seed} for row in rows]
        about = f"two layers of width {size.width}; {made['nll']:.3f} nats a character"
        models.append({"plan": "language", "seed": seed, "accuracy": made["right"], "seconds": seconds, "about": about})
        job.say(f"seed {seed}: {100 * made['right']:.1f} % of characters right, {about}")
    sets = [
        {"name": name, "about": f"{sum(map(len, pieces)):,} characters", "pictures": len(pieces)}
        for name, pieces in vars(corpus).items()
    ]
    settings = {"size": asdict(size), "seeds": {"language": list(seeds)}}
    return Made(cells, (), settings, models, sets, (f"Sizes: {asdict(size)}.",))


def measured(model: Writer, corpus: texts.Texts, size: Size, seed: int, check: Callable[[], None]) -> dict[str, Any]:
    """Return the cells of both parts, the share of right predictions and the nats of a character."""
    lines = texts.windows(corpus.docstrings, LENGTH, size.tests, seed)
    changed = {
        CHANGES[0]: texts.shuffled_characters(lines, seed),
        CHANGES[1]: texts.shuffled_words(lines, seed),
        CHANGES[2]: texts.windows(corpus.code, LENGTH, size.tests, seed),
    }
    classifier = Classifier(model, output="dense", class_dim=-1)
    own = texts.tokens(lines)
    reading = read(classifier, own, list(METHODS.values()), prompt=PROMPT)
    with torch.no_grad():
        answers = torch.cat([model(part).argmax(2) for part in own.split(100)])
    right = (answers[:, :-1] == own[:, 1:])[:, PROMPT - 1 :]
    wrong: list[dict[str, Any]] = []
    for row in SCORES:
        values = reading.scores[row.method].maps[:, PROMPT:]
        auroc = evaluate.ood(values[right], values[~right], bootstrap=0).auroc
        raulc = evaluate.raulc(values.flatten(), right.flatten())
        wrong.append({"row": row.label, "column": "docstrings", "metrics": {"auroc": auroc, "raulc": raulc}})
    known = _means(reading) | _whole(classifier, own[: size.whole])
    apart: list[dict[str, Any]] = []
    for name, others in changed.items():
        check()
        ids = texts.tokens(others)
        foreign = _means(read(classifier, ids, list(METHODS.values()), prompt=PROMPT))
        foreign |= _whole(classifier, ids[: size.whole])
        for label, values in foreign.items():
            told = evaluate.ood(known[label], values, bootstrap=0).auroc
            apart.append({"row": label, "column": name, "metrics": {"auroc": told}})
    return {"cells": [wrong, apart], "right": float(right.double().mean()), "nll": float(known["nll"].mean())}


def _means(reading: Any) -> dict[str, Tensor]:
    return {name: reading.summary(name, "mean") for name in ("nll", *METHODS)}


def _whole(classifier: Classifier, ids: Tensor) -> dict[str, Tensor]:
    where = torch.ones(ids.shape, dtype=torch.bool)
    where[:, : PROMPT - 1] = where[:, -1] = False  # the positions whose next characters are looked at
    return {f"{name}, whole network": whole_network(classifier, ids, name, where=where, samples=0) for name in WHOLE}


STUDY = Study(
    "language",
    "A small language model: entropy and gradients, wrong characters and texts that are none",
    PARTS,
    (
        "Settings and hypotheses were written down before the run (`dense/protocol.md`).",
        "Gradient scores are those of the last layer at each character, in closed form; `whole network` is one number "
        "for a text, from the mean log-probability over its characters.",
        "A small model and one kind of text: nothing here is said of large language models.",
    ),
    program,
)
