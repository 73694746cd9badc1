"""Texts before a model: the tokens of each, and a batch padded to its longest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nescio.inputs import Inputs, describe
from nescio.models.sources.base import Preprocess
from nescio.types import InputError


@dataclass(frozen=True)
class Texts(Preprocess):
    """Make tokens of a text, by a tokenizer of transformers.

    Args:
        tokenizer: The tokenizer.
        length: Longer texts are cut to so many tokens; None cuts none.

    Examples:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import PreTrainedTokenizerFast
        >>> words = Tokenizer(models.WordLevel({"[UNK]": 0, "good": 1, "film": 2}, unk_token="[UNK]"))
        >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> texts = Texts(PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[UNK]"))
        >>> texts("good film")["input_ids"]
        tensor([1, 2])
    """

    kind = "texts"
    tokenizer: Any
    length: int | None = None

    def __post_init__(self) -> None:
        self("x")  # the first call settles the tokenizer's state: later ones change nothing and may run together

    def __call__(self, row: object) -> Inputs:
        pair = row if isinstance(row, Mapping) else {"text": row}
        if not set(pair) <= {"text", "text_pair"} or not all(isinstance(text, str) for text in pair.values()):
            raise InputError(f"expected a text, or a mapping of text and text_pair, got {describe(row)}")
        encoded = self.tokenizer(**pair, truncation=self.length is not None, max_length=self.length)
        return {name: torch.tensor(value) for name, value in encoded.items()}

    def collate(self, rows: Sequence[Any]) -> Inputs:
        """Padded on the tokenizer's side; the attention mask says where."""
        longest = max(len(row["input_ids"]) for row in rows)
        fill = {
            "input_ids": self.tokenizer.pad_token_id or 0,
            "token_type_ids": getattr(self.tokenizer, "pad_token_type_id", 0),
        }
        left = self.tokenizer.padding_side == "left"
        return {
            name: torch.stack([_padded(row[name], longest, fill.get(name, 0), left) for row in rows])
            for name in rows[0]
        }

    def __str__(self) -> str:
        most = "" if self.length is None else f", at most {self.length} tokens"
        return f"tokens of the model's own tokenizer ({len(self.tokenizer)} words){most}"


def _padded(values: Tensor, length: int, fill: int, left: bool) -> Tensor:
    missing = values.new_full((length - len(values),), fill)
    return torch.cat([missing, values] if left else [values, missing])
