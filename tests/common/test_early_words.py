"""A line comes in time also where a process holds all its threads up, as it does while a large library is loaded."""

import os
import subprocess
import sys

import pytest
import torch  # noqa: F401

from nescio._common.early_words import said_in_time
from nescio.progress import READY

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
HELD_UP = """
import ctypes, os, signal, sys
from nescio import progress
from nescio._common.early_words import said_in_time

def hold(seconds):
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))  # no other thread runs meanwhile
    os.write(2, b"held up\\n")

"""


def said(code: str, status: int = 0) -> list[str]:
    done = subprocess.run([sys.executable, "-c", HELD_UP + code], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == status
    return done.stderr.splitlines()


def test_a_line_comes_while_all_threads_are_held_up() -> None:
    code = "with said_in_time('soon', 0.1) as never_mind:\n    hold(1.0)\n"
    assert said(code) == ["soon", "held up"]
    assert said(code.replace("    hold", "    never_mind()\n    hold")) == ["held up"]
    assert said(code.replace("0.1", "30.0")) == ["held up"]  # and it is not waited for


def test_a_command_says_that_it_gets_ready_while_all_threads_are_held_up() -> None:
    code = "progress.SOON = 0.2\nwith progress.speaking():\n    hold(1.0)\n"
    assert said(code) == [READY, "held up"]
    assert said(code.replace("    hold", "    progress.waiting()\n    hold")) == ["held up"]
    assert said(code.replace("    hold(1.0)", "    with progress.bar(4, description='work'):\n        hold(0.1)")) == [
        "held up"
    ]


def test_it_ends_with_the_process_that_began_it() -> None:
    code = "with said_in_time('soon', 1.0):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    assert said(code, -9) == []  # standard error is closed by then: both have ended


def test_a_large_process_is_not_forked() -> None:
    with said_in_time("soon", 0.0) as never_mind:
        assert never_mind is None  # this one has loaded torch
