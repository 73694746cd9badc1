"""torchvision comes without the compiler of torch, which is loaded when it is asked for."""

import subprocess
import sys

import pytest

pytest.importorskip("torchvision")

CODE = """
import sys
{before}
from nescio._common.torchvision_import import torchvision_models
models = torchvision_models()
print("torch._dynamo" in sys.modules)
import torch
torch.save(models.resnet18().state_dict(), {file!r})
from nescio.models.sources import open_model
opened = open_model("torchvision:resnet18", {file!r})
print("torch._dynamo" in sys.modules)
print(all(torch.equal(opened.model.module.state_dict()[name], value) for name, value in torch.load({file!r}).items()))
from torchvision.ops import roi_align
print(roi_align(torch.ones(1, 1, 4, 4), torch.tensor([[0.0, 0, 0, 4, 4]]), 1).item())
from torchvision.ops.roi_align import is_compile_supported
print(is_compile_supported("cpu"), "torch._dynamo.utils" in sys.modules)
import torch._dynamo
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item())
"""


@pytest.mark.parametrize(("before", "there"), [("", "False"), ("import torch._dynamo", "True")])
def test_the_compiler_is_loaded_when_it_is_asked_for(tmp_path, before, there):
    code = CODE.format(before=before, file=str(tmp_path / "weights.pth"))
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.split() == [there, there, "True", "1.0", "True", "True", "2.0"], run.stderr


def test_a_version_that_needs_more_of_it_gets_it(tmp_path):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(
        "from torch._dynamo.utils import is_compile_supported, counters"
    )
    (tmp_path / "torchvision" / "models.py").write_text("")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from nescio._common.torchvision_import import torchvision_models\n"
        "print(torchvision_models().__file__, sys.modules['torch._dynamo'].__file__ is not None)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.split() == [str(tmp_path / "torchvision" / "models.py"), "True"], run.stderr
