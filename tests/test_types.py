"""The shared words: errors of the right kind and requests that can be compared."""

import torch

from nescio import types
from nescio.quantities import GradientNorms, Logits, NoisyInputLogits, NoisyParameterLogits, Request
from nescio.scores import Method


def test_errors_are_caught_as_what_they_are() -> None:
    for error, builtin in [
        (types.InputError, ValueError),
        (types.ModelError, ValueError),
        (types.MissingExtra, ImportError),
    ]:
        assert issubclass(error, types.NescioError) and issubclass(error, builtin)


def test_equal_requests_are_one() -> None:
    requests = [
        Logits(),
        Logits(),
        GradientNorms("classes"),
        GradientNorms("classes", norm=2),
        GradientNorms("uniform"),
    ]
    assert len(set(requests)) == 3
    assert NoisyInputLogits(0.1) == NoisyInputLogits(0.1, 100, 0) != NoisyParameterLogits(0.1, 100, 0)
    assert all(isinstance(request, Request) for request in requests)


def test_the_protocol_of_a_method() -> None:
    class Own:
        name = "own"
        needs = (Logits(),)

        def __call__(self, logits: torch.Tensor) -> torch.Tensor:
            return logits[:, 0]

    assert isinstance(Own(), Method) and not isinstance("own", Method)
