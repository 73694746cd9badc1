"""What an audit says to do: a check that works as it is written, and numbers that are so."""

import math

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from nescio import limits
from nescio.limits import advice


def network(features: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 3))
        with torch.no_grad():
            model[3].weight.mul_(20)
    return model


def table(features: int = 3) -> pd.DataFrame:
    x = torch.randn(50, features, generator=torch.Generator().manual_seed(1))
    return pd.DataFrame(x.numpy(), columns=[f"x{at}" for at in range(features)])


def run(code: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(code, names)
    return names


def audited(x: object, **more: object) -> limits.Audit:
    count = x.shape[1] if isinstance(x, pd.DataFrame) else x[0].numel()  # type: ignore[index]
    return limits.audit(network(count), x, starts=3, count=2, progress=False, **more)  # type: ignore[arg-type]


def test_the_nearest_are_certain_and_come_soonest_first() -> None:
    found = audited(table())
    near = found.nearest()
    assert 0 < len(near) <= 10
    assert all(row.certain >= 0.5 for row in near)
    keys = [(-row.certain, row.sure_from) for row in near]
    assert keys == sorted(keys)
    assert [row.direction for row in near] == list(found.sentences())[: len(near)]
    assert found.nearest(2) == near[:2]


def test_the_columns_of_a_data_frame_are_the_names() -> None:
    found = audited(table())
    assert {"x0 +", "x2 -"} <= set(found.moves)
    assert list(found.ranges) == ["x0", "x1", "x2"]


def test_the_check_of_ranges_runs_and_refuses_what_is_outside_alone() -> None:
    rows = table()
    found = audited(rows)
    outside = run(advice.code(found.nearest(), found.moves, found.ranges, True))["outside"]
    assert all(outside(row) == [] for _, row in rows.iterrows())  # type: ignore[operator]
    far = rows.iloc[0].to_dict() | {"x1": 1e3, "x2": -1e3}
    assert outside(far) == ["x1", "x2"]  # type: ignore[operator]
    plain = audited(torch.tensor(rows.to_numpy().copy()))
    by_place = run(advice.code(plain.nearest(), plain.moves, plain.ranges, False))["outside"]
    assert by_place([0.0, 1e3, 0.0]) == [1]  # type: ignore[operator]


def test_of_many_features_those_of_the_nearest_directions_are_written_out() -> None:
    found = audited(table(60), directions="features")
    code = advice.code(found.nearest(3), found.moves, found.ranges, True)
    names = run(code)["RANGES"]
    assert set(names) == {row.direction[:-2] for row in found.nearest(3)}  # type: ignore[call-overload]


def test_a_check_of_pictures_has_one_range() -> None:
    x = torch.rand(20, 1, 3, 3, generator=torch.Generator().manual_seed(0))
    found = audited(x)
    outside = run(advice.code(found.nearest(), found.moves, found.ranges, False))["outside"]
    assert not outside(x)  # type: ignore[operator]
    assert outside(x - 1)  # type: ignore[operator]
    assert "A picture from a file is never outside." in found.advice()[0]


def test_the_sentence_counts_what_the_check_refuses_in_time() -> None:
    found = audited(table())
    near = found.nearest()
    early = sum(found.moves[row.direction].leaves <= row.sure_from for row in near)
    many = f"all {len(near)}" if early == len(near) else f"{early} of the {len(near)}"
    assert f"along {many} nearest directions it refuses an input before the model is certain" in found.advice()[0]
    assert "at most 12 % by chance (3 features, 50 inputs)" in found.advice()[0]  # 2 · 3 / 51
    assert found.advice()[1] == advice.GUARD


def test_by_chance_no_more_are_refused_than_is_said() -> None:
    draw = torch.Generator().manual_seed(3)
    outside: list[Tensor] = []
    for _ in range(200):
        x = torch.randn(51, 3, generator=draw)
        outside.append(((x[-1] < x[:-1].amin(0)) | (x[-1] > x[:-1].amax(0))).any())
    share = torch.stack(outside).double().mean()
    assert 0.05 < share < 6 / 51 + 3 * math.sqrt(6 / 51 / 200)


def test_where_it_is_certain_nowhere_there_is_nothing_to_check() -> None:
    flat = nn.Sequential(nn.Linear(2, 3))
    with torch.no_grad():
        flat[0].weight.zero_()
        flat[0].bias.zero_()
    found = limits.audit(flat, torch.rand(5, 2), "features", progress=False)
    assert found.nearest() == []
    assert found.advice() == [
        "The model is certain along none of these directions. A guard still tells inputs that are foreign."
    ]


@pytest.mark.parametrize("classes", [None, ["cat", "dog", "<b>cow</b>"]])
def test_classes_have_their_names(classes: list[str] | None) -> None:
    found = audited(table(), classes=classes)
    text = found.text()
    assert ("class " not in text.replace("a class that", "")) == (classes is not None)
    assert any(name in text for name in classes or ["class 0", "class 1", "class 2"])
    assert "max_probability (one minus the largest probability; proven)" in text
