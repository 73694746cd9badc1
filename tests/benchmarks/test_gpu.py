"""The GPU benchmark runs from end to end on a CPU, in miniature, and its tables and its plot can be made from it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nescio import trace
from nescio_papers import zoo

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
pytest.importorskip("torchvision")


@pytest.fixture(scope="module")
def result(path: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    import gpu

    def once(run: Callable[[], Any], device: torch.device, **more: Any) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    folder = tmp_path_factory.mktemp("gpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "seconds", once)  # how long it takes is not what is tested
        patch.setenv("OUT", str(folder))
        gpu.main(["--device", "cpu", "--quick"])
    return json.loads((folder / "cpu.json").read_text())


def test_every_part_measures_something_and_nothing_fails(result: dict[str, Any]) -> None:
    import gpu

    assert list(result["parts"]) == list(gpu.PARTS)
    assert result["parts"].pop("photographs") == []  # none were given
    for part, rows in result["parts"].items():
        failed = [row for row in rows if "failed" in row and row.get("way") not in ("vmap", "backpack")]
        assert rows and not failed, (part, failed)
    assert result["machine"]["device"] and result["machine"]["torch"] == torch.__version__


def test_all_ways_of_gradnorm_agree(result: dict[str, Any]) -> None:
    rows = [row for row in result["parts"]["exact"] if row["way"].startswith("gradnorm")]
    assert len(rows) == 4 and all(row["error"] < 1e-3 for row in rows)


def test_tables_hold_what_was_measured(result: dict[str, Any]) -> None:
    import plot

    text = plot.render(result)
    assert text.count("<details>") == len(plot.TABLES) - 1 and result["machine"]["device"] in text
    ratio = next(row["ratio"] for row in result["parts"]["exact"] if row["way"] == "nescio")
    assert f"| {ratio:.3g} |" in text
    failing = plot.render({**result, "parts": {"memory": [{"model": "m", "peak_gb": 1.0}, {"failed": "OSError: x"}]}})
    assert "fails: OSError" in failing and failing.count("<details>") == 1


def test_readme_is_up_to_date() -> None:
    import plot
    from readme import fill

    text = (BENCHMARKS / "README.md").read_text()
    assert fill(text, "gpu", plot.everything()) == text, "run: python benchmarks/plot.py"


def test_plot_has_four_panels_with_named_lines(result: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib")
    import plot

    panels = plot.draw(result).axes
    assert [ax.get_xlabel() for ax in panels] == list(plot.PANELS.values())
    assert {text.get_text() for text in panels[0].texts} == {"exact", "one forward pass", "classes=32"}


def test_an_error_becomes_a_row_and_keeps_those_before() -> None:
    import gpu

    def measure() -> Iterator[dict[str, Any]]:
        yield {"ms": 1.0}
        raise RuntimeError("no memory")

    assert list(gpu.collect({"model": "m"}, measure)) == [
        {"model": "m", "ms": 1.0},
        {"model": "m", "failed": "RuntimeError: no memory"},
    ]


def test_given_weights_and_images_are_used(tmp_path: Path) -> None:
    import gpu

    network = zoo.resnet18_cifar(10, seed=3)
    torch.save(
        {name: t.half() if t.is_floating_point() else t for name, t in network.state_dict().items()}, tmp_path / "w"
    )
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", x=images)
    np.savez(tmp_path / "y.npz", y=images[:, :28, :28, 0])
    whole = zoo.RECIPES["mnist"].model(seed=5)  # with its normalisation, as training keeps it
    torch.save(whole.state_dict(), tmp_path / "v")
    given = {"resnet18": str(tmp_path / "w"), "cnn": str(tmp_path / "v")}
    b = gpu.Bench(
        torch.device("cpu"), gpu.QUICK, given, [str(tmp_path / "x.npz"), str(tmp_path / "y.npz")], "", []
    )  # fmt: skip
    model, x = b.subject("resnet18", 3)
    bare, normalised = b.subject("resnet18", 3, wrapped=False)
    assert torch.equal(x[0], x[2]) and torch.equal(x[1, :, 5, 7], torch.from_numpy(images[1, 5, 7]).float() / 255)
    assert torch.equal(bare.conv1.weight, network.conv1.weight.half().float())
    assert torch.allclose(model(x), bare(normalised), atol=1e-5)
    model, x = b.subject("cnn", 2)
    assert torch.equal(x[1, 0, 5], torch.from_numpy(images[1, 5, :28, 0]).float() / 255)
    assert torch.equal(model(x), whole(x))


def test_no_gradient_of_a_made_transformer_is_zero() -> None:
    import gpu

    b = gpu.Bench(torch.device("cpu"), gpu.QUICK, {}, [], "", [])
    model, _ = b.made("vit_b_32", 3, 1, 32)
    assert model.heads.head.weight.any()


def test_regrad_and_agreement_are_what_they_say() -> None:
    import gpu

    import nescio

    torch.manual_seed(0)
    model, x = torch.nn.Linear(4, 3), torch.randn(5, 4)
    table = trace.class_gradients(model, x)
    for power in (1, 2):
        own = gpu.regrad(table, power)
        assert torch.allclose(own, nescio.score(model, x, "regrad", samples=0, power=power, layer_decay=gpu.DECAY))
    assert gpu.agreement(own, own)["rho"] == pytest.approx(1) and gpu.agreement(own, own)["max_error"] == 0
    assert gpu.agreement(-own, own)["rho"] == pytest.approx(-1)
