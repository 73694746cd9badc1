import os
import pickle
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from nescio import models
from nescio.models.weights import fill
from nescio.types import InputError, MissingExtra, ModelError
from tests.models.examples import equal, net, save


def test_names_of_wrapped_parts_match_in_both_directions():
    trained = net()
    target = net()
    target[0] = torch.compile(target[0])
    target[2] = nn.DataParallel(target[2])
    fill(target, trained.state_dict())
    assert torch.equal(target[0]._orig_mod.weight, trained[0].weight)
    assert torch.equal(target[2].module.weight, trained[2].weight)
    back = net()
    fill(back, torch.compile(target).state_dict())
    assert equal(back, trained)


def test_a_module_named_like_a_wrapper_keeps_its_weights_apart():
    def build():
        model = nn.Module()
        model.weight = nn.Parameter(torch.rand(2))
        model.module = nn.Module()
        model.module.weight = nn.Parameter(torch.rand(2))
        return model

    trained, target = build(), build()
    fill(target, trained.state_dict())
    assert equal(target, trained)
    again = build()
    fill(again, {f"_orig_mod.{name}": value for name, value in trained.state_dict().items()})
    assert equal(again, trained)


def test_tied_weights_that_were_saved_once_are_enough():
    def build():
        model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
        model[1].weight = model[0].weight
        return model

    trained, target = build(), build()
    fill(target, {"1.weight": trained[1].weight.detach()})
    assert equal(target, trained) and target[1].weight is target[0].weight


def test_old_files_without_a_count_of_batches_are_enough():
    trained, target = net(), net()
    fill(target, {name: v for name, v in trained.state_dict().items() if "num_batches" not in name})
    assert equal(target, trained)


def test_a_module_that_renames_old_weights_is_let_to():
    class Renamed(nn.Linear):
        def _load_from_state_dict(self, state, prefix, *args):
            if prefix + "gamma" in state:
                state[prefix + "weight"] = state.pop(prefix + "gamma")
            super()._load_from_state_dict(state, prefix, *args)

    target = Renamed(2, 2)
    fill(target, {"gamma": torch.ones(2, 2), "bias": torch.zeros(2)})
    assert target.weight.sum() == 4


def test_all_that_does_not_fit_is_listed():
    state = net().state_dict()
    del state["0.bias"], state["2.bias"]
    state["fc.weight"] = torch.zeros(1)
    words = (
        r"expected weights that fit Sequential, got others from w.pt. the file lacks what the model has: "
        r"'0.bias', '2.bias'; the model lacks what the file has: 'fc.weight'. Build the model as it was trained"
    )
    with pytest.raises(ModelError, match=words):
        fill(net(), state, "w.pt")
    state["2.weight"] = torch.zeros(10, 4)
    state["1.running_mean"] = torch.zeros(5)
    words = (
        r"lacks what the model has: '0.bias', '2.bias'; .*'fc.weight'; the shape differs: "
        r"'1.running_mean' \(the model has \[4\], the file \[5\]\), "
        r"'2.weight' \(the model has \[2, 4\], the file \[10, 4\]\)"
    )
    with pytest.raises(ModelError, match=words):
        fill(net(), state)
    with pytest.raises(ModelError, match=r"'x0', .*'x9' and 2 more"):
        fill(net(), net().state_dict() | {f"x{i}": torch.zeros(1) for i in range(12)})


def test_a_path_that_is_no_file(tmp_path):
    with pytest.raises(InputError, match=r"there is no none.pt \(seen from .*\); check the path"):
        models.read_weights("none.pt")
    with pytest.raises(InputError, match=r"got the folder .*; name the file in it"):
        models.read_weights(tmp_path)
    (tmp_path / "pointer.pt").write_text("version https://git-lfs\noid sha256:0")
    with pytest.raises(InputError, match="only a Git LFS pointer; fetch it with: git lfs pull"):
        models.read_weights(tmp_path / "pointer.pt")


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt", "w.pth"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.99])
@pytest.mark.parametrize("trust", [False, True])
def test_a_file_that_is_cut_short(tmp_path, name, share, trust):
    file = save(net(), tmp_path / name, {"w.safetensors": "safetensors", "w.pt": "torch", "w.pth": "legacy"}[name])
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    kind = "safetensors" if name == "w.safetensors" else "torch"
    words = rf"expected a {kind} file of weights, but .*{name} \(\d+ bytes\) is cut short, damaged .*download it again"
    with pytest.raises(ModelError, match=words):
        models.read_weights(file, trust_pickle=trust)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
@pytest.mark.parametrize("trust", [False, True])
def test_a_file_of_another_kind(tmp_path, name, trust):
    (tmp_path / name).write_text("<html><body>not found</body></html>")
    with pytest.raises(ModelError, match="damaged or of another kind"):
        models.read_weights(tmp_path / name, trust_pickle=trust)


class Trap:
    """Runs code when it is read from a pickle."""

    def __init__(self, sign: Path):
        self.sign = sign

    def __reduce__(self):
        return os.mkdir, (str(self.sign),)


def test_a_pickle_is_not_executed_unless_it_is_trusted(tmp_path):
    sign = tmp_path / "executed"
    torch.save({"state_dict": net().state_dict(), "extra": Trap(sign)}, tmp_path / "w.pt")
    words = (
        r"expected tensors alone in .*w.pt, but it is a pickle that names other things \(posix.mkdir\), and "
        r"reading those executes code; save the weights alone .*if you trust .*trust_pickle=True \(--trust-pickle\)"
    )
    with pytest.raises(ModelError, match=words):
        models.read_weights(tmp_path / "w.pt")
    assert not sign.exists()
    assert set(models.read_weights(tmp_path / "w.pt", trust_pickle=True)) == set(net().state_dict())
    assert sign.exists()


def test_a_plain_pickle_is_not_executed_either(tmp_path):
    sign = tmp_path / "executed"
    with (tmp_path / "w.pkl").open("wb") as file:
        pickle.dump(Trap(sign), file)
    with pytest.raises(ModelError, match="it is a pickle that names other things"):
        models.read_weights(tmp_path / "w.pkl")
    assert not sign.exists()


def test_damage_inside_of_a_whole_archive_is_named(tmp_path):
    file = save(net(), tmp_path / "w.pt", "torch")
    content = file.read_bytes()
    start = content.index(b"collections")
    file.write_bytes(content[:start] + b"\xff" * 40 + content[start + 40 :])
    with pytest.raises(ModelError, match="damaged"):
        models.read_weights(file)


@pytest.mark.filterwarnings("ignore")  # of TorchScript, that it will be gone
def test_a_torchscript_file_is_named(tmp_path):
    torch.jit.save(torch.jit.script(net()), tmp_path / "script.pt")
    with pytest.raises(ModelError, match=r"got a whole TorchScript model; load it with torch.jit.load in the factory"):
        models.read_weights(tmp_path / "script.pt")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"epoch": 3, "lr": 0.1}, "got a mapping with 'epoch', 'lr'; save it with"),
        ({}, "got a mapping with nothing"),
        (torch.zeros(3), r"under 'state_dict', 'model_state_dict', 'model', got a tensor of float32 and shape \[3\]"),
        ({"model": {"epoch": 1}}, "got a mapping with 'epoch'"),
    ],
)
def test_a_file_without_weights_is_named(tmp_path, content, words):
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(ModelError, match=words):
        models.read_weights(tmp_path / "w.pt")


def test_a_missing_safetensors_is_named_with_its_extra(tmp_path, monkeypatch):
    file = save(net(), tmp_path / "w.safetensors", "safetensors")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MissingExtra, match=r"pip install 'nescio\[files\]'"):
        models.read_weights(file)
