"""What a check does on a GPU, tested without one: on tensors without values, which cannot be mixed across devices."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from nescio import Classifier, Guard, quantities
from nescio.guard.fitted_witnesses import FittedWitnesses
from nescio.quantities import Budget, ForwardRequest
from tests.guard.conftest import FEW, conv, pictures

pytestmark = pytest.mark.filterwarnings(FEW)


class Copies(TorchDispatchMode):
    """Counts the copies from the GPU to the host."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = [value for value in args if isinstance(value, torch.Tensor) and value.is_cuda]
        self.count += bool(given) and isinstance(result, torch.Tensor) and result.device.type == "cpu"
        return result


def on_gpu(value):
    """A tensor of the same shape and type on a GPU, or a tuple or a mapping of such."""
    if isinstance(value, tuple):
        return tuple(on_gpu(one) for one in value)
    if isinstance(value, dict):
        return {key: on_gpu(one) for key, one in value.items()}
    return torch.empty(value.shape, dtype=value.dtype, device="cuda")


@pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="PyTorch was built without CUDA")
@pytest.mark.parametrize("count", [40, 400])
def test_the_witnesses_work_on_the_gpu_and_one_copy_comes_to_the_host(count, monkeypatch):
    guard = Guard(conv().eval()).fit(pictures(count), nuisances=None)
    answers = quantities.compute(guard.classifier, pictures(5, seed=1), guard.requests)
    monkeypatch.setattr(FittedWitnesses, "to", lambda self, device: FittedWitnesses(on_gpu(self.states), self.scales))
    with FakeTensorMode(allow_non_fake_inputs=True), Copies() as copies:
        verdict = guard.judge(on_gpu(answers))
    assert copies.count == 1
    assert verdict.p_value.device.type == verdict.score.device.type == verdict.predicted.device.type == "cpu"
    assert verdict.p_value.shape == (5,)


@pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="PyTorch was built without CUDA")
def test_the_host_does_not_wait_in_the_forward_pass():
    model = conv().eval()
    requests = Guard(model).fit(pictures(40), nuisances=None).requests
    with FakeTensorMode(), Copies() as copies:  # it has no values, so that to look at one is an error
        for module in model.modules():
            module._parameters |= {name: nn.Parameter(on_gpu(p)) for name, p in module._parameters.items()}
            module._buffers |= {name: on_gpu(buffer) for name, buffer in module._buffers.items()}
        classifier, x = Classifier(model), torch.empty(5, 3, 12, 12, dtype=torch.float64, device="cuda")
        answers = ForwardRequest.answer_together(requests, classifier, x, Budget(chunk=5, on_device=True))
        with pytest.raises(Exception, match="_local_scalar_dense"):
            ForwardRequest.answer_together(requests, classifier, x, Budget(chunk=5))
    flat = [t for one in answers for t in (one if isinstance(one, tuple) else (one,))]
    assert copies.count == 0 and len(flat) > 3 and all(t.is_cuda for t in flat)
