"""Streams of scores: numbers that do not depend on how the work was divided, and jobs that travel."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import nescio
from nescio import scores
from nescio._common.formatting import count
from nescio.batch import streaming
from nescio.batch.jobs import Job, identity, machine
from nescio.batch.streaming import Usage, score_part, stream
from nescio.data import read_table
from nescio.data.parts import Parts
from nescio.specs import DataSpec, ModelSpec, open_source
from nescio.types import InputError

MODELS = """
import torch
from torch import nn

def build():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [nn.Linear(4, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)]
        return nn.Sequential(*layers).double()

def other():
    model = build()
    nn.init.zeros_(model[0].bias)
    return model
"""
FREE = [info.name for info in nescio.methods() if info.requires != "posterior" and not info.needs_training_data]
FREE.remove("shift_entropy")  # for pictures alone
ROWS = 21


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streammodels.py").write_text(MODELS)
    x = np.random.default_rng(0).normal(size=(ROWS, 4))
    np.savez("x.npz", x=x, y=np.arange(ROWS) % 3)
    x[[4, 5, 6, 7, 18], 0] = np.nan  # all of a batch of four, and one of another
    np.savez("broken.npz", x=x)
    monkeypatch.setattr(streaming, "_last", None)
    yield tmp_path
    sys.modules.pop("streammodels", None)


def job(*methods, model="streammodels:build", data="x.npz", batch=4, **more):
    chosen = tuple(scores.get(one) for one in methods)
    return Job(ModelSpec(model), DataSpec(data, on_error="skip"), chosen, batch=batch, **more)


def streamed(asked, size, name="out"):
    """The joined table of a run with parts of this size."""
    ready = asked.open()
    with Parts(name, len(ready.rows), size, identity(asked, ready), ending=".csv") as parts:
        stream(ready, parts)
        parts.join(f"{name}.csv")
        parts.remove()
    return Path(f"{name}.csv").read_bytes()


def _noted(reads, shown):
    for read in reads:
        shown.append(read.places.start)
        yield read


def test_every_method_without_training_data_gives_the_same_bytes_in_parts_of_any_size(folder):
    assert {"regrad", "exgrad", "perturb_x", "perturb_theta", "entropy"} <= set(FREE)
    asked = job(*FREE)
    whole = streamed(asked, 40)
    assert streamed(asked, 4) == streamed(asked, 12) == whole
    table = read_table("out.csv")
    assert list(table) == ["index", *FREE, "predicted", "probability", "label"]
    assert table["index"].tolist() == list(range(ROWS))
    x = torch.from_numpy(np.load("x.npz")["x"])
    truth = nescio.score(open_source(asked.model).model, x, FREE)
    for name in FREE:
        np.testing.assert_allclose(table[name], truth[name].numpy(), rtol=1e-8, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("batch", [5, 64])
def test_another_batch_size_gives_the_same_numbers(folder, batch):
    streamed(job(*FREE, batch=4), 40, "four")
    streamed(job(*FREE, batch=batch), 320, "other")
    four, other = read_table("four.csv"), read_table("other.csv")
    for name in FREE:
        np.testing.assert_allclose(four[name], other[name], rtol=1e-8, atol=1e-12, err_msg=name)


def test_parts_made_alone_in_any_order_by_jobs_that_travelled_are_those_of_the_stream(folder):
    asked = job("regrad", "perturb_x", data="broken.npz")
    whole = streamed(asked, 8)
    ready = asked.open()
    with Parts("apart", ROWS, 8, identity(asked, ready), ending=".csv") as parts:
        for part in parts.missing[::-1]:
            found = pickle.loads(pickle.dumps(score_part(pickle.loads(pickle.dumps(asked)), part.start, part.stop)))
            parts.add(part, found.columns, found.problems, found.notes)
        assert [problem.index for problem in parts.problems] == [4, 5, 6, 7, 18]
        parts.join("apart.csv")
    assert Path("apart.csv").read_bytes() == whole
    with pytest.raises(InputError, match="expected to begin at a multiple of 4 rows"):
        score_part(asked, 6, 8)


def test_a_job_is_opened_once_in_a_process_and_warmed_with_the_first_rows(folder, monkeypatch):
    opened, shown = [], []
    real, plain = Job.open, streaming.scored
    monkeypatch.setattr(Job, "open", lambda self, *a: (opened.append(self.model.name), real(self, *a))[1])
    monkeypatch.setattr(streaming, "scored", lambda ready, reads, *more: plain(ready, _noted(reads, shown), *more))
    for start in (8, 16):
        score_part(job("entropy"), start, start + 4)
    score_part(job("entropy", model="streammodels:other"), 8, 12)
    assert opened == ["streammodels:build", "streammodels:other"]
    assert shown == [0, 8, 16, 0, 8]
    x = np.load("x.npz")["x"]
    x[:4] = np.nan
    np.savez("late.npz", x=x)
    score_part(job("entropy", data="late.npz"), 8, 12)
    assert shown[5:] == [4, 8]  # the first that can be used


def test_a_stream_that_was_cut_off_goes_on_and_ends_the_same(folder, monkeypatch):
    asked = job("regrad", "perturb_theta")
    whole = streamed(asked, 4, "whole")
    ready = asked.open()
    known = identity(asked, ready)

    class Cut(Exception):
        pass

    for most in (1, 2):
        with pytest.raises(Cut), Parts("cut", ROWS, 4, known, ending=".csv") as parts:
            before, add = parts.rows, parts.add

            def limited(*given, parts=parts, before=before, add=add, most=most):
                if parts.rows >= before + 4 * most:
                    raise Cut
                add(*given)

            parts.add = limited
            stream(asked.open(), parts)
    shown, plain = [], streaming.scored
    monkeypatch.setattr(streaming, "scored", lambda ready, reads, *more: plain(ready, _noted(reads, shown), *more))
    with Parts("cut", ROWS, 4, known, ending=".csv") as parts:
        assert parts.before == 12
        assert stream(asked.open(), parts).rows == ROWS - 12
        parts.join("cut.csv")
    assert Path("cut.csv").read_bytes() == whole
    assert shown == [0, 12, 16, 20]  # the engine sees the first batch first, as in a run that was not cut off


def test_methods_that_are_fitted_give_the_same_again_and_elsewhere(folder):
    given = DataSpec("x.npz")
    asked = job("mahalanobis", "laplace", "entropy", fit=given)
    assert streamed(asked, 4) == streamed(asked, 40)
    found = score_part(pickle.loads(pickle.dumps(asked)), 8, 16)
    table = read_table("out.csv")
    for name in ("mahalanobis", "laplace"):
        assert found.columns[name].tolist() == table[name][8:16].tolist()


def test_rows_that_cannot_be_used_stop_or_are_left_out(folder):
    skipping = job("entropy", data="broken.npz")
    streamed(skipping, 4)
    assert read_table("out.csv")["index"].tolist() == [i for i in range(ROWS) if i not in (4, 5, 6, 7, 18)]
    stopping = Job(skipping.model, DataSpec("broken.npz"), skipping.methods, batch=4)
    ready = stopping.open()
    assert identity(stopping, ready) == identity(skipping, skipping.open())  # one may go on with the other
    with Parts("kept", ROWS, 4, identity(stopping, ready)) as parts:
        with pytest.raises(InputError, match=r"cannot use broken.npz\[4\] \(row 4\)"):
            stream(ready, parts)
        assert parts.rows == 4
    with Parts("kept", ROWS, 4, identity(stopping, ready)) as parts:
        stream(skipping.open(), parts)
        assert parts.rows == ROWS - 5
        with pytest.raises(InputError, match=r"cannot use broken.npz\[4\] \(row 4\)"):
            stream(ready, parts)
    np.savez("none.npz", x=np.full((3, 4), np.nan))
    none = job("entropy", data="none.npz").open()
    with pytest.raises(InputError, match="none of the 3 rows can be used"), Parts("n", 3, 4, {}) as parts:
        stream(none, parts)


def test_identities_differ_with_what_numbers_depend_on_and_with_nothing_else(folder):
    def of(asked):
        return identity(asked, asked.open())

    plain = of(job("entropy"))
    assert of(job("entropy", workers=3)) == plain == of(job("entropy"))
    changes = {
        "weights": job("entropy", model="streammodels:other"),
        "data": job("entropy", data="broken.npz"),
        "methods": job("energy"),
        "batch size": job("entropy", batch=8),
        "training data": job(scores.KNN(k=2), fit=DataSpec("x.npz")),
    }
    for key, asked in changes.items():
        found = of(asked)
        assert key in {name for name in plain if plain[name] != found[name]}, key
    seeds = [of(job(scores.get("perturb_x", seed=seed)))["methods"] for seed in (0, 1)]
    assert seeds[0] != seeds[1]
    assert f"cpu, {count(torch.get_num_threads(), 'thread')}, " in machine(job("entropy").open())


def test_random_weights_are_the_same_again_and_random_numbers_as_they_were(folder):
    (folder / "streammodels.py").write_text(MODELS + "\ndef drawn():\n    return nn.Linear(4, 3)\n")
    asked = job("entropy", model="streammodels:drawn")
    torch.manual_seed(5)
    first = identity(asked, asked.open())
    after = torch.rand(1)
    assert identity(asked, asked.open()) == first
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1), after)


def test_names_of_classes_have_columns(folder):
    from dataclasses import replace

    ready = job("entropy").open()
    known = replace(ready, source=replace(ready.source, classes=("a", "b")))
    with Parts("named", ROWS, 4, {}) as parts:
        stream(known, parts)
        parts.join("named.parquet")
    table = read_table("named.parquet")
    truth = [{0: "a", 1: "b", 2: "2"}[i] for i in table["predicted"].tolist()]  # a class without a name is its number
    assert table["predicted_class"].tolist() == truth


def test_parts_that_cut_a_batch_are_refused(folder):
    with pytest.raises(InputError, match="expected parts of a multiple of 4 rows"):
        stream(job("entropy").open(), Parts("p", ROWS, 6, {}))


def test_the_use_of_time_adds_up(folder):
    asked = job("regrad")
    with Parts("p", ROWS, 4, {}) as parts:
        usage = stream(asked.open(), parts)
    assert usage.rows == ROWS
    assert 0 < usage.working < usage.seconds
    assert 0 < usage.waiting < usage.seconds
    assert usage.working + usage.waiting <= usage.seconds
    words = str(Usage(rows=1000, seconds=4.0, working=3.0, waiting=0.5))
    assert words == "250 rows/s in 4 s; the model worked 75% of that time and waited 0.5 s for data"
    for rows, rate in ((997, "100"), (994, "99"), (12_345, "1,234"), (3, "0.3")):
        assert str(Usage(rows=rows, seconds=10.0)).startswith(f"{rate} rows/s in 10 s")
