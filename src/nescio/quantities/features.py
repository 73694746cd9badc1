"""Features of a batch, float64 [N, D]: the input of the last linear layer, or the output of a module."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nescio.quantities.forward_pass import ForwardPass, ForwardRequest


@dataclass(frozen=True)
class Features(ForwardRequest):
    """Request features, float64 ``[N, D]``; positions and tokens are averaged.

    Args:
        layer: None for the input of the last `nn.Linear` that the model calls, or the name of the module whose output
            is taken.

    Examples:
        >>> model = nescio.Classifier(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 3)))
        >>> nescio.quantities.compute(model, torch.tensor([[-1.0, 2.0]]), [Features()])[Features()]
        tensor([[0., 2.]], dtype=torch.float64)
    """

    layer: str | None = None

    @property
    def listens_at(self) -> tuple[str | None, ...]:
        """The one layer that is listened to."""
        return (self.layer,)

    def read(self, forward: ForwardPass) -> Tensor:
        """Return the features of one forward pass."""
        return forward.features(self.layer)
