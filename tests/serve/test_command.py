"""`nescio serve` as people start it: a process of its own."""

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import numpy as np
import pytest
import torch

from nescio import serve
from nescio.cli import main, parser
from nescio.cli.app import _backend
from nescio.cli.serve import _amount, _engine, _seconds
from nescio.specs import ModelSpec, remember
from nescio.types import InputError, ModelError

SECRET = 271828.1828


@contextmanager
def started(*arguments, **environment):
    """The process, its address, and what it writes."""
    command = [sys.executable, "-m", "nescio", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **environment}
    )
    lines: list[str] = []
    try:
        for line in process.stderr:
            lines.append(line)
            if found := re.match(r"Serving on http://[^:]+:(\d+)", line):
                break
        else:
            pytest.fail("".join(lines))
        rest = threading.Thread(target=lambda: lines.extend(process.stderr))
        rest.start()
        yield process, f"http://127.0.0.1:{found[1]}", lines
        rest.join(20)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def until(happened, seconds=60):
    """Wait for it; a minute is for a machine that is busy."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def refused(url):
    """Whether no new connection is taken; one that was taken just before may be broken off."""
    try:
        httpx.get(f"{url}/health")
    except httpx.TransportError as error:
        return isinstance(error, httpx.ConnectError)
    return False


@pytest.mark.parametrize("how", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_what_has_begun_is_finished_and_nothing_is_logged(how, tmp_path):
    body, found = {"inputs": [{"numbers": [SECRET] * 5}]}, []
    model = ["--model", "tests.serve.models:held", "--method", "entropy"]
    arguments = ["--host", "0.0.0.0"] if how == signal.SIGTERM else []
    with started(*model, *arguments, HELD=str(tmp_path)) as (process, url, lines):
        assert httpx.get(f"{url}/health").json()["status"] == "ok"
        ask = threading.Thread(target=lambda: found.append(httpx.post(f"{url}/predict", json=body, timeout=60)))
        ask.start()
        until((tmp_path / "begun").exists)
        process.send_signal(how)
        until(lambda: refused(url))
        (tmp_path / "go on").touch()
        ask.join(60)
        assert process.wait(60) == 0
    assert found[0].status_code == 200
    text = "".join(lines)
    assert "Ended; every request that had begun was answered." in text
    assert ("can be reached by other machines, and no token" in text) == (how == signal.SIGTERM)
    assert "271828" not in text and "/predict" not in text


def test_a_map_that_takes_long_is_broken_off_at_the_end():
    body, found = {"inputs": [{"numbers": [1e9] * 5}]}, []
    model = ["--model", "tests.serve.models:slow_for_large", "--method", "entropy", "--grace", "0.3s"]
    with started(*model) as (process, url, lines):
        ask = threading.Thread(target=lambda: found.append(httpx.post(f"{url}/explain", json=body, timeout=90)))
        ask.start()
        until(lambda: "nescio_waiting_inputs 1.0" in httpx.get(f"{url}/metrics").text)
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert time.monotonic() - start < 30  # the model would be at work for a minute
        ask.join(60)
    assert found[0].status_code == 503
    assert "Ended; 1 requests that had begun were not answered in time, and were told so." in "".join(lines)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--weights", "w.pt"], "--weights: expected --model with it"),
        (["--class-names", "names.txt"], "--class-names: expected --model with it"),
        (["--model", "tests.serve.models:slow", "--monitor", "m.json"], "--monitor: expected a policy"),
        (["--model", "tests.serve.models:slow", "--policy", "none.json"], "none.json"),
        (["--model", "tests.serve.models:slow", "--method", "mutual_information"], "needs a distribution"),
        (["--token", " "], "token: expected some characters"),
        (["--token", ""], "token: expected some characters"),
        (
            ["--allow-origin", "*"],
            "origins: expected the beginning of an address, such as https://example.org, got '*'",
        ),
        (
            ["--model", "tests.serve.models:slow", "--method", "entropy", "--host", "203.0.113.1"],
            "expected to listen on",
        ),
    ],
)
def test_wrong_arguments_are_told(arguments, words, capsys):
    assert main(["serve", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "app"])
def test_classes_by_the_names_of_a_file(command, tmp_path):
    (tmp_path / "names.txt").write_text("cat\ndog\nfox\n")
    given = ["--model", "tests.serve.models:slow", "--class-names", str(tmp_path / "names.txt")]
    args = parser().parse_args([command, *given])
    source = _engine(args).source if command == "serve" else _backend(args).engine.source
    assert source.classes == ("cat", "dog", "fox")


def test_a_model_that_cannot_be_stopped_does_not_hold_the_process(monkeypatch, capsys):
    def ended(engine, settings, **more):
        raise serve.Ended(broken_off=2, busy=True)

    exits = []
    monkeypatch.setattr(serve, "run", ended)
    monkeypatch.setattr(os, "_exit", exits.append)
    assert main(["serve", "--model", "tests.serve.models:slow", "--method", "entropy", "--port", "0"]) == 0
    assert exits == [0]
    assert "Ended; 2 requests that had begun were not answered in time" in capsys.readouterr().err


def test_an_empty_token_in_the_environment_is_no_open_service(monkeypatch, capsys):
    monkeypatch.setenv("NESCIO_TOKEN", "")
    assert main(["serve"]) == 2
    assert "token: expected some characters, got none" in capsys.readouterr().err


def test_sizes_and_times():
    assert [_amount(text) for text in ("10MB", "500k", "25M", "12", "1.5 kb")] == [10**7, 500_000, 25 * 10**6, 12, 1500]
    assert [_seconds(text) for text in ("5ms", "30s", "2min", "0.5")] == [0.005, 30.0, 120.0, 0.5]
    for call, text in ((_amount, "ten"), (_amount, "-1"), (_seconds, "1h"), (_seconds, "")):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a"):
            call(text)


def test_a_guard_is_made_of_a_reference_or_loaded(tmp_path, capsys):
    torch.manual_seed(0)
    np.savez(tmp_path / "x.npz", x=torch.randn(120, 5).numpy(), y=np.arange(120) % 3)
    model = ["serve", "--model", "tests.serve.models:quick", "--method", "entropy"]
    known = [*model, "--reference", str(tmp_path / "x.npz")]
    with pytest.warns(UserWarning, match="the reference has 120 different inputs"):
        engine = _engine(parser().parse_args(known))
    assert engine.guard.fitted.count == 120 and engine.guard.fitted.mistakes is not None
    assert "a guard is fitted to" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="the reference has 120 different inputs"):
        assert _engine(parser().parse_args([*known, "--label", "none"])).guard.fitted.mistakes is None
    engine.guard.save(tmp_path / "guard")
    loaded = _engine(parser().parse_args([*model, "--guard", str(tmp_path / "guard")]))
    assert loaded.guard.fitted.count == 120
    remember(tmp_path / "guard", ModelSpec("tests.serve.models:quick"))  # as `nescio guard` does
    alone = ["serve", "--guard", str(tmp_path / "guard")]
    with pytest.raises(ModelError, match=r"names the function .*models:quick, and opening it would run that"):
        _engine(parser().parse_args(alone))
    assert _engine(parser().parse_args([*alone, "--trust-pickle"])).guard.fitted.count == 120
    for wrong, words in (
        ([*known, "--guard", str(tmp_path / "guard")], "--reference: expected either --reference or --guard, got both"),
        ([*model, "--watch", "w.json"], "--watch: expected a guard whose verdicts are watched, got none"),
        (["serve", "--reference", "x.npz"], "--reference: expected --model with it, got none"),
    ):
        with pytest.raises(InputError, match=words):
            _engine(parser().parse_args(wrong))
