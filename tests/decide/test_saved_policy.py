"""Each kind of policy comes back from its file as it was, and a file that is damaged is refused in words."""

import json

import pytest
import torch

from nescio import decide
from nescio.types import InputError

P = torch.rand(60, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(-1)
MAPS = torch.rand(40, 4, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(-1)
ABOUT = {"model": "mine"}
POLICIES = {
    "quantile": decide.quantile(P[:, 0], about=ABOUT),
    "conformal": decide.conformal(P, P.argmax(1), about=ABOUT),
    "risk_control": decide.risk_control(MAPS, MAPS.argmax(-1), about=ABOUT),
    "misses": decide.risk_control(MAPS, MAPS.argmax(-1), kind="misses", sought=1, about=ABOUT),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_policy_comes_back_from_its_file(policy, tmp_path):
    policy.save(tmp_path / "policy.json")
    assert type(policy).load(tmp_path / "policy.json") == policy
    assert str(policy).endswith(" (model: mine)")


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threshold": None, "n": "many"}, "damaged: its (numbers|counts) do not fit together"),
        ({"kind": "another"}, "damaged: its"),
        ({"about": {"model": 1}}, "damaged: its field about does not hold words by name"),
        ({"about": None}, "damaged: its field about does not hold words by name"),
    ],
)
def test_a_damaged_file_is_refused_in_words(policy, change, message, tmp_path):
    file = tmp_path / "policy.json"
    policy.save(file)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=message):
        type(policy).load(file)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_file_that_lacks_a_field_names_it(policy, tmp_path):
    file = tmp_path / "policy.json"
    policy.save(file)
    record = json.loads(file.read_text())
    del record["threshold"]
    file.write_text(json.dumps(record))
    with pytest.raises(InputError, match="damaged: threshold is missing"):
        type(policy).load(file)
