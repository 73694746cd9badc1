"""Sets fetched from a server on this machine: what comes whole is kept, and of anything else nothing is left."""

import contextlib
import gc
import gzip
import hashlib
import http.server
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tqdm import tqdm

from nescio.types import InputError
from nescio_papers.datasets import load_set

datasets = pytest.importorskip("torchvision.datasets")
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # see `server`

MNIST = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

STALL = 299  # what was asked for comes in part, and then nothing for a while


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def packed() -> dict[str, bytes]:
    random = np.random.default_rng(0)
    arrays = [
        array
        for count in (6, 4)
        for array in (random.integers(0, 256, (count, 28, 28), dtype=np.uint8), np.arange(count, dtype=np.uint8))
    ]
    return {f"{name}.gz": gzip.compress(idx(array)) for name, array in zip(MNIST, arrays, strict=True)}


class Server(http.server.ThreadingHTTPServer):
    """Gives `files`; `change` may give a file another status, length or content."""

    daemon_threads = True

    def __init__(self) -> None:
        self.files = packed()
        self.change: Callable[[str, bytes], tuple[int, int, bytes]] = lambda name, blob: (200, len(blob), blob)
        self.asked: list[str] = []
        self.stalled = threading.Event()
        self.go_on = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.server.asked.append(self.path[1:])
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        status, length, blob = self.server.change(self.path[1:], self.server.files[self.path[1:]])
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if body:
            self.wfile.write(blob)
            if status == STALL:
                self.wfile.flush()
                self.server.stalled.set()
                self.server.go_on.wait(30)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as found:
        threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True).start()
        sums = [(name, hashlib.md5(blob).hexdigest()) for name, blob in found.files.items()]
        monkeypatch.setattr(datasets.MNIST, "resources", sums)
        monkeypatch.setattr(datasets.MNIST, "mirrors", [found.address])
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield found
        found.go_on.set()
        found.shutdown()
    gc.collect()  # urllib's errors hold their connection; it must not be found open in the test of somebody else


def left(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_what_comes_whole_is_kept_and_not_fetched_again(server, tmp_path, capfd):
    folder = tmp_path / "new" / "data"
    got = load_set("mnist", "train", root=folder, download=True)
    assert len(got) == 6 and got.y.tolist() == [0, 1, 2, 3, 4, 5]
    assert "fetched by torchvision" in got.about
    assert "100%" in capfd.readouterr().err  # the progress bar
    assert left(folder) == sorted(f"MNIST/raw/{name}{end}" for name in MNIST for end in ("", ".gz"))
    assert [entry.name for entry in folder.iterdir()] == ["MNIST"]
    assert set(server.asked) == set(server.files)
    server.asked.clear()
    assert len(load_set("mnist", "test", root=folder, download=True)) == 4
    assert server.asked == []


def test_the_environment_asks_for_it_too(server, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="download=True or NESCIO_DOWNLOAD=1"):
        load_set("mnist", root=tmp_path)
    monkeypatch.setenv("NESCIO_DOWNLOAD", "1")
    assert len(load_set("mnist", root=tmp_path)) == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda name, blob: (200, len(blob), blob[:-1] + b"?"), "corrupted"),
        (lambda name, blob: (200, len(blob), blob[: len(blob) // 2]), "corrupted"),  # the connection breaks off
        (lambda name, blob: (200, len(blob) // 2, blob[: len(blob) // 2]), "corrupted"),  # and says nothing of it
        (lambda name, blob: (404, 0, b""), "HTTP Error 404"),
        (lambda name, blob: (503, 0, b""), "HTTP Error 503"),
    ],
    ids=["wrong checksum", "cut short", "short", "not there", "busy"],
)
@pytest.mark.parametrize("bad", [MNIST[0], MNIST[3]])
def test_of_anything_else_nothing_is_left(server, tmp_path, change, words, bad):
    server.change = lambda name, blob: change(name, blob) if name.startswith(bad) else (200, len(blob), blob)
    with pytest.raises(InputError) as caught:
        load_set("mnist", root=tmp_path, download=True)
    assert words in str(caught.value) and "could not fetch mnist test" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    server.change = lambda name, blob: (200, len(blob), blob)
    assert len(load_set("mnist", root=tmp_path, download=True)) == 4


def test_nobody_answers(tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(datasets.MNIST, "mirrors", [f"http://127.0.0.1:{port}/"])
    with pytest.raises(InputError, match=r"could not fetch mnist test: .*refused"):
        load_set("mnist", root=tmp_path, download=True)
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_there_stay_as_they_are_when_it_fails(server, tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / f"{MNIST[0]}.gz").write_bytes(server.files[f"{MNIST[0]}.gz"])  # brought by hand, and right
    (raw / f"{MNIST[1]}.gz").write_bytes(b"brought by hand, and wrong")
    server.change = lambda name, blob: (404, 0, b"") if name.startswith(MNIST[2]) else (200, len(blob), blob)
    before = {name: (tmp_path / name).read_bytes() for name in left(tmp_path)}
    with pytest.raises(InputError, match="404"):
        load_set("mnist", root=tmp_path, download=True)
    assert {name: (tmp_path / name).read_bytes() for name in left(tmp_path)} == before
    assert f"{MNIST[0]}.gz" not in server.asked
    server.change = lambda name, blob: (200, len(blob), blob)
    assert len(load_set("mnist", root=tmp_path, download=True)) == 4


def stalling(server: Server, folder: Path) -> Callable[..., None]:
    """The third file stalls in its middle; what is given sends a signal to a process once that has happened."""
    server.change = lambda name, blob: (
        (STALL, len(blob), blob[: len(blob) // 2]) if name.startswith(MNIST[2]) else (200, len(blob), blob)
    )

    def send(process: int, how: signal.Signals = signal.SIGINT) -> None:
        assert server.stalled.wait(60)
        while not any(file.endswith(f"{MNIST[2]}.gz") for file in left(folder)):
            time.sleep(0.02)
        os.kill(process, how)

    return send


def test_an_interrupt_midway_leaves_nothing(server, tmp_path):
    interrupt = threading.Thread(target=stalling(server, tmp_path), args=(os.getpid(),), daemon=True)
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        load_set("mnist", root=tmp_path, download=True)
    interrupt.join()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process that can be killed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks beside threads: the child needs none of them
def test_a_kill_midway_leaves_nothing_under_the_name_of_the_data(server, tmp_path):
    kill = stalling(server, tmp_path)
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            tqdm.set_lock(threading.RLock())  # its own is shared by forks: killed with it, the child would keep it
            load_set("mnist", root=tmp_path, download=True)
        os._exit(0)
    kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert all(file.startswith(".fetching-") for file in left(tmp_path))
    server.go_on.set()
    server.change = lambda name, blob: (200, len(blob), blob)
    assert len(load_set("mnist", root=tmp_path, download=True)) == 4
