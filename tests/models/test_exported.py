"""Archives of torch.export that would run code: none is opened unless it is trusted."""

import io
import json
import pickle
import zipfile

import pytest
import torch
from torch import nn

from nescio.models.sources import open_model
from nescio.types import ModelError


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


@pytest.fixture(scope="module")
def entries(tmp_path_factory):
    """What a sound archive holds, in order."""
    file = tmp_path_factory.mktemp("sound") / "model.pt2"
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval()
    torch.export.save(torch.export.export(model, (torch.rand(2, 4),)), file)
    with zipfile.ZipFile(file) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def attacks(entries, mark):
    """By name: archives each of which runs the payload in some version of torch."""
    files = dict(entries)

    def named(ending):
        return next((name for name in files if name.endswith(ending)), f"model/{ending}")

    def with_entry(name, content):
        return list((files | {name: content}).items())

    weights, graph = named("weights_config.json"), named("model.json")
    evil = json.loads(files.get(weights, '{"config": {}}'))
    for entry in evil["config"].values():
        entry |= {"use_pickle": True, "path_name": "evil"}
    pickled = io.BytesIO()
    torch.save(Payload(mark), pickled)
    payload = (weights.replace("model_weights_config.json", "evil"), pickled.getvalue())
    second = (weights, json.dumps(evil).encode())
    for place in range(len(entries) + 1):  # which of two entries is read depends on the order of all
        yield f"twice-{place}", [*entries[:place], second, *entries[place:], payload]
    guarded = json.loads(files.get(graph, "{}")) | {"guards_code": [f"open({str(mark)!r}, 'w')"]}
    yield "guard", with_entry(graph, json.dumps(guarded).encode())
    yield (
        "upper-case",
        [
            (name.replace("model.json", "model.JSON"), content)
            for name, content in with_entry(graph, json.dumps(guarded))
        ],
    )
    yield "sample inputs", with_entry(named("sample_inputs/model.pt"), pickled.getvalue())
    constant = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    config = named("constants_config.json")
    yield (
        "constant",
        [
            *with_entry(config, json.dumps({"config": {"x": constant}}).encode()),
            (config.replace("model_constants_config.json", "opaque_obj_0"), pickle.dumps(Payload(mark))),
        ],
    )
    # an operator of torch itself that makes and changes a file
    target = b"torch.ops.aten.from_file.default"
    yield "operator", with_entry(graph, files.get(graph, b"").replace(b"torch.ops.aten.flatten.using_ints", target))


def test_no_archive_runs_anything_unless_it_is_trusted(entries, tmp_path):
    mark = tmp_path / "ran"
    for name, content in [*attacks(entries, mark), ("sound", entries)]:
        file = tmp_path / f"{name}.pt2"
        with zipfile.ZipFile(file, "w") as archive, pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *_, **__: None)  # an entry that is there twice
            for entry, text in content:
                archive.writestr(entry, text)
        with pytest.raises(ModelError, match=r"expected trust_pickle=True \(--trust-pickle\) .* can execute any code"):
            open_model(str(file))
        assert not mark.exists(), name
