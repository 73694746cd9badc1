"""Specs travel: to other processes as pickles, to files as JSON; and what one leaves open another fills in."""

import json
import pickle
from dataclasses import FrozenInstanceError, asdict, fields

import pytest

from nescio.specs import DataSpec, GuardSpec, ModelSpec

SPECS = [
    ModelSpec("timm:resnet18", "w.safetensors", size=(8, 16), mean=(0.5,), std=(), device="cuda", trust_pickle=True),
    DataSpec("x.csv", ("a", "b"), None, "id", "skip"),
    GuardSpec("guard", 0.01),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_a_spec_is_frozen_and_survives_pickle_and_json(spec):
    assert pickle.loads(pickle.dumps(spec)) == spec and hash(spec) == hash(pickle.loads(pickle.dumps(spec)))
    record = json.loads(json.dumps(asdict(spec)))
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}
    assert type(spec)(**plain) == spec
    with pytest.raises(FrozenInstanceError):
        setattr(spec, fields(spec)[0].name, "other")


def test_what_is_given_goes_before_what_is_remembered():
    kept = ModelSpec("m:f", "old.pt", size=4, mean=(0.5,), output="binary", class_names="names.txt")
    filled = ModelSpec("m:f", "new.pt", size=0, std=()).filled_from(kept)
    assert filled == ModelSpec(
        "m:f", "new.pt", size=0, mean=(0.5,), std=(), output="binary", class_names="names.txt"
    )  # 0 and () are said too
    assert repr(filled).startswith("ModelSpec(name='m:f', weights='new.pt', class_names='names.txt'")
