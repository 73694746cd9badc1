"""Docstrings of Python's standard library and code of the same modules, as characters; modules train or test."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nescio_papers.runner.cells import digest

ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
_PLACE = {character: at for at, character in enumerate(ALPHABET)}


@dataclass(frozen=True)
class Texts:
    """What was read: docstrings for training, docstrings and code for tests."""

    training: tuple[str, ...]
    docstrings: tuple[str, ...]
    code: tuple[str, ...]


def texts(most: int | None = None) -> Texts:
    """Read the modules of the standard library in the order of their names; one in five is for tests.

    Args:
        most: How many modules at most; None for all.
    """
    training: list[str] = []
    docstrings: list[str] = []
    code: list[str] = []
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:most]:
        tested = int(digest(file.name), 16) % 5 == 0
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):  # as some tests of the library are meant to be
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                continue
            if (text := ast.get_docstring(node)) is not None:
                (docstrings if tested else training).append(text)
                node.body = node.body[1:]
            if tested and isinstance(node, ast.FunctionDef) and node.body:
                code.append("\n".join(map(ast.unparse, node.body)))
    return Texts(*(tuple(map(cleaned, one)) for one in (training, docstrings, code)))


def cleaned(text: str) -> str:
    """Return the text without characters that are not in the alphabet."""
    return "".join(character for character in text if character in _PLACE)


def windows(pieces: tuple[str, ...], length: int, count: int, seed: int) -> list[str]:
    """Return windows of so many characters, each from a random place of a random piece, by length."""
    draw = np.random.default_rng(seed)
    long = [piece for piece in pieces if len(piece) >= length]
    room = np.array([len(piece) - length + 1 for piece in long], float)
    chosen = draw.choice(len(long), count, p=room / room.sum())
    starts = [int(draw.integers(0, len(long[at]) - length + 1)) for at in chosen]
    return [long[at][start : start + length] for at, start in zip(chosen, starts, strict=True)]


def tokens(lines: list[str]) -> Tensor:
    """Return the characters' places in the alphabet, int64 ``[N, T]``."""
    return torch.tensor([[_PLACE[character] for character in line] for line in lines])


def shuffled_characters(lines: list[str], seed: int) -> list[str]:
    """Return each line with its characters in random order."""
    draw = np.random.default_rng(seed)
    return ["".join(draw.permutation(list(line))) for line in lines]


def shuffled_words(lines: list[str], seed: int) -> list[str]:
    """Return each line with its words in random order, what lies between them in place."""
    draw = np.random.default_rng(seed)
    return ["".join(_mixed(line, draw)) for line in lines]


def _mixed(line: str, draw: np.random.Generator) -> Iterator[str]:
    words = line.split(" ")
    for at, place in enumerate(draw.permutation(len(words))):
        yield (" " if at else "") + words[place]
