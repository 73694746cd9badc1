"""A run that was killed goes on, and ends as if nothing had happened."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from nescio.training import Recipe, train
from nescio.training.checkpoint import FILE, stable_name
from nescio.types import InputError
from tests.training.helpers import network, same

RECIPE = Recipe(epochs=5, batch_size=16, lr=0.05, optimizer="sgd", weight_decay=1e-3, schedule="cosine")

PROGRAM = """
import os, signal, sys
import torch
from tests.training.test_checkpoint import RECIPE, data, network
from nescio.training import train

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

def on_epoch(epoch):
    if epoch.number == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

train(network(), *data(), recipe=RECIPE, seed=3, folder=sys.argv[1], on_epoch=on_epoch)
"""


def data():
    source = torch.Generator().manual_seed(0)
    y = torch.arange(90) % 3
    x = torch.randn(90, 2, generator=source) + torch.eye(3)[y][:, :2] * 2
    return (x[:60], y[:60]), (x[60:], y[60:])


class Stop(Exception):
    pass


def stop_at(number, error=Stop):
    def on_epoch(epoch):
        if epoch.number == number:
            raise error

    return on_epoch


def test_after_kill_9_the_weights_are_those_of_a_run_that_was_left_alone(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), "4"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    begun = (tmp_path / FILE).read_bytes()
    resumed, alone, seen = network(), network(), []
    history = train(resumed, *data(), recipe=RECIPE, seed=3, folder=tmp_path, on_epoch=seen.append)
    assert [epoch.number for epoch in seen] == [4, 5]  # three epochs were there
    assert train(alone, *data(), recipe=RECIPE, seed=3) == history
    assert same(resumed, alone) and not resumed.training
    assert (tmp_path / FILE).read_bytes() != begun


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt])
def test_every_optimizer_goes_on_after_an_interrupt(tmp_path, optimizer, error):
    recipe = replace(RECIPE, optimizer=optimizer, patience=4, choose="loss")
    resumed, alone = network(), network()
    with pytest.raises(error):
        train(resumed, *data(), recipe=recipe, folder=tmp_path, on_epoch=stop_at(3, error))
    assert not resumed.training
    resumed = network()
    assert train(resumed, *data(), recipe=recipe, folder=tmp_path) == train(alone, *data(), recipe=recipe)
    assert same(resumed, alone)


def test_a_loader_with_a_generator_of_its_own_goes_on_too(tmp_path):
    (x, y), _ = data()

    def loader():
        own = torch.Generator().manual_seed(7)
        return DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True, generator=own)

    resumed, alone = network(), network()
    with pytest.raises(Stop):
        train(network(), loader(), recipe=RECIPE, folder=tmp_path, on_epoch=stop_at(3))
    train(resumed, loader(), recipe=RECIPE, folder=tmp_path)
    train(alone, loader(), recipe=RECIPE)
    assert same(resumed, alone)


def test_a_finished_run_is_loaded_at_once(tmp_path):
    first, again = network(), network()
    history = train(first, *data(), recipe=RECIPE, folder=tmp_path / "new" / "run")

    def never(epoch):
        raise AssertionError("nothing is left to do")

    assert train(again, *data(), recipe=RECIPE, folder=tmp_path / "new" / "run", on_epoch=never) == history
    assert same(first, again) and not again.training
    assert sorted(p.name for p in (tmp_path / "new" / "run").iterdir()) == [FILE]


def test_other_arguments_are_refused_and_named(tmp_path):
    pair, held_out = data()
    train(network(), pair, held_out, recipe=replace(RECIPE, epochs=1), folder=tmp_path)
    given = {"recipe": replace(RECIPE, epochs=1), "folder": tmp_path}
    for model, source, validation, more, named_in_error in (
        (
            network(),
            pair,
            held_out,
            {"recipe": replace(RECIPE, epochs=1, lr=0.1)},
            r"recipe.lr \(0.05 there, 0.1 here\)",
        ),
        (network(), pair, held_out, {"seed": 1}, r"seed \(0 there, 1 here\)"),
        (network(), pair, held_out, {"loss": lambda z, y, s: z.sum()}, "loss .None there"),
        (network(1), pair, held_out, {}, "model .Sequential with weights"),
        (network(), (pair[0] + 1, pair[1]), held_out, {}, "data .60 inputs"),
        (network(), pair, None, {}, "validation .30 inputs .* there, none here"),
    ):
        before = {name: value.clone() for name, value in model.state_dict().items()}
        with pytest.raises(InputError, match=named_in_error):
            train(model, source, validation, **{**given, **more})
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / FILE).write_bytes(b"not a checkpoint")
    with pytest.raises(InputError, match=r"cannot be read .*delete it to begin again"):
        train(network(), *data(), recipe=RECIPE, folder=tmp_path)


def test_callables_have_names_that_last():
    assert stable_name(stop_at) == f"{__name__}.stop_at"
    assert stable_name(partial(stop_at, 3, error=None)) == f"{__name__}.stop_at(3, error=None)"
    assert stable_name(RECIPE) == repr(RECIPE)
    assert stable_name(nn.ReLU()) == "torch.nn.modules.activation.ReLU"
