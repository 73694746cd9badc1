"""Models, inputs and settings that cannot be: the error says what was expected, what came and what to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import nescio
from nescio import trace
from nescio.models import Classifier
from nescio.types import InputError, ModelError, NescioError, NormSettings
from tests.trace.test_model_kinds import net, pictures

ERRORS: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "one class": (lambda: net(classes=1), pictures, ModelError, r"C >= 2 columns.*output='binary'"),
    "empty batch": (net, lambda: pictures(0), InputError, "expected at least one input; got an empty batch"),
    "NaN": (net, lambda: pictures() * torch.nan, InputError, "expected finite inputs, got NaN.*inputs 0, 1, 2, 3"),
    "infinite": (net, lambda: pictures() / 0, InputError, "infinite values.*nan_to_num"),
    "integers": (net, lambda: torch.randint(0, 255, (2, 1, 4, 4)), InputError, "divide by 255"),
    "maps of logits": (lambda: net(lambda z: z.view(-1, 3, 1, 1)), pictures, ModelError, "average over the positions"),
    "no parameters": (nn.Flatten, pictures, ModelError, "gradients need parameters, and Flatten has none; use a score"),
    "a function": (lambda: len, pictures, ModelError, "gradients need an nn.Module with parameters; got len"),
    "infinite logits": (lambda: net(lambda z: z / 0), pictures, ModelError, "expected finite logits, got NaN or inf"),
    "wrong shape": (net, lambda: torch.randn(2, 3, 4, 4), InputError, r"could not take inputs.*\[N, 3, 4, 4\]"),
    "rows lost": (lambda: net(lambda z: z[:1]), pictures, ModelError, "one row for each input, in order"),
    "text": (net, lambda: "picture.png", InputError, "expected a tensor"),
    "a list": (net, lambda: [1.0, 2.0], InputError, r"make it a tensor first: torch.tensor"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_was_expected_and_what_to_do(name: str) -> None:
    model, x, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        trace.class_gradients(model(), x())


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"norm": 3}, "expected norm to be 1 or 2, got 3"),
        ({"layers": "block"}, "expected layers='module' or layers='tensor'; got 'block'"),
        ({"select": ["conv9"]}, "select='conv9' matches no layer; the layers are: conv, norm, head"),
        ({"select": []}, "expected at least one layer in select"),
        ({"sigma": -1.0, "samples": 2}, "expected sigma to be a finite number of at least 0, got -1.0"),
        ({"sigma": 0.1, "samples": 1.5}, "expected samples to be a whole number"),
        ({"classes": 2}, "expected classes to be a whole number of at least 3, got 2; or give 'exact' or 'auto'"),
        ({"precision": "float16"}, "expected precision to be None or 'bfloat16', got 'float16'"),
        ({"memory_gb": 0}, "expected memory_gb to be a finite number above 0, got 0"),
        ({"smoothing": "median"}, "expected smoothing to be 'log' or 'mean', got 'median'"),
        ({"chunk": 0}, "expected chunk to be a whole number of at least 1, got 0"),
    ],
    ids=str,
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        trace.class_gradients(net(), pictures(), **settings)
    with pytest.raises(NescioError):
        trace.class_gradients(net(), pictures(), **settings)


def test_pairs_are_even() -> None:
    request = NormSettings("classes", sigma=0.1, samples=3, pairs=True)
    with pytest.raises(InputError, match="expected samples to be even, since copies come in pairs, got 3"):
        trace.gradient_norms(Classifier(net()), pictures(), request)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"tolerance": -1}, "expected tolerance to be a finite number of at least 0 and below 1"),
        ({"tolerance": 1.0}, "expected tolerance to be"),
        ({"classes": 1}, "expected classes to be a whole number of at least 3"),
        ({"samples": "many"}, "expected samples to be a whole number of at least 0"),
        ({"precision": "float16"}, "expected precision to be None or 'bfloat16'"),
    ],
)
def test_settings_of_scores_are_checked(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        nescio.scores.REGrad(**settings)
    assert words in str(error.value)
