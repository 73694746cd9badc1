import pytest
import torch
from torch import nn

from nescio.models import Classifier
from nescio.types import InputError, ModelError
from tests.models.examples import conv, mlp


@pytest.mark.parametrize(
    ("model", "x", "words"),
    [
        (conv(), torch.zeros(1, 3, 8, 8, dtype=torch.uint8), "floating-point inputs, got whole numbers.*divide by 255"),
        (mlp(), torch.zeros(1, 3, dtype=torch.long), "floating-point inputs, got whole numbers.*divide by 255"),
        (nn.Conv2d(3, 2, 1), torch.zeros(1, 3, 2, 2, dtype=torch.int32), "divide by 255"),
        (nn.LayerNorm(3), torch.zeros(2, 3, dtype=torch.uint8), "divide by 255"),
        (nn.Sequential(nn.Embedding(5, 3)), torch.zeros(1, 2), "whole numbers for an embedding"),
        (nn.Sequential(nn.Embedding(5, 3)), torch.tensor([[7]]), "indices within the model's vocabulary"),
        (
            mlp(),
            torch.zeros(2, 4),
            r"could not take inputs of shape \[N, 4\] \(tried with N = 2\). It says: .*mat1 and mat2 shapes",
        ),
        (
            conv(),
            torch.zeros(2, 1, 8, 8),
            "to have 3 channels, but got 1 channels instead. Expected inputs .* trained on",
        ),
        (conv(), torch.zeros(2, 8), "the shape that the model was trained on, the batch first"),
        (conv(), torch.zeros(2, 3, 2, 2), "the shape that the model was trained on"),
        (nn.BatchNorm2d(3).eval(), torch.zeros(2, 3), r"expected 4D input \(got 2D input\). Expected inputs"),
        (nn.BatchNorm1d(3).eval(), torch.zeros(2, 4), "the shape that the model was trained on"),
        (nn.LayerNorm(3), torch.zeros(2, 4), "the shape that the model was trained on"),
        (nn.GRU(3, 2), torch.zeros(2, 2, 4), "the shape that the model was trained on"),
        (lambda x: x + torch.zeros(5), torch.zeros(2, 4), "the shape that the model was trained on"),
        (lambda x: x.view(2, 5), torch.zeros(2, 4), "the shape that the model was trained on"),
        (
            nn.Bilinear(4, 4, 2),
            torch.zeros(2, 4),
            r"missing 1 required .*'input2'. Expected a mapping .* its forward\(\)",
        ),
        (mlp(), {"a": torch.zeros(2, 4)}, "unexpected keyword argument 'a'. Expected a mapping"),
        (lambda x: x.flatten(2), torch.zeros(2, 4), "the shape that the model was trained on"),
        (
            nn.Sequential(nn.MaxPool2d(4), nn.Flatten()),
            torch.zeros(2, 1, 2, 2),
            "the shape that the model was trained on",
        ),
    ],
)
def test_a_wrong_type_or_shape_is_an_input_error(model, x, words):
    with pytest.raises(InputError, match=words) as caught:
        Classifier(model).logits(x)
    assert caught.value.__cause__ is not None  # the model's own error is kept


class Strange(Exception):
    pass


@pytest.mark.parametrize(
    "error",
    [
        Strange("shape"),
        KeyboardInterrupt(),
        RuntimeError("boom"),
        ValueError("no such mode"),
        IndexError("list index out of range"),
        KeyError("shape"),
        torch.OutOfMemoryError("CUDA out of memory: input size"),
        RuntimeError("Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"),
        ModelError("a wrong shape of the model's own making"),
    ],
)
def test_other_errors_of_the_model_pass_unchanged(error):
    def model(x):
        raise error

    with pytest.raises(BaseException) as caught:
        Classifier(model).logits(torch.zeros(1, 2))
    assert caught.value is error


@pytest.mark.parametrize(
    "words", ["Wrong image height! Expected 224 but got 32!", "Input height (32) doesn't match model (224)."]
)
def test_a_transformer_that_wants_another_size(words):
    def model(x):
        raise AssertionError(words)

    with pytest.raises(InputError, match="of the shape that the model was trained on"):
        Classifier(model).logits(torch.zeros(1, 3, 32, 32))
