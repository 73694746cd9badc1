"""A headless Chromium over its debugging pipe: enough to open a page, click, give files, read, look and listen.

Messages are JSON with a zero byte after each, on the file descriptors 3 (to the browser) and 4 (from it).
"""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def found() -> str | None:
    """The program, where there is one: $NESCIO_CHROMIUM, or by its usual names."""
    return os.environ.get("NESCIO_CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in a browser of its own; requests holds every address that the page asked for."""

    def __init__(self, program: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="nescio-chromium-", ignore_cleanup_errors=True)
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        def fds() -> None:
            """In the child: the ends of the pipes where Chromium looks for them."""
            high = [os.dup(to_read), os.dup(to_write)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        flags += ["--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self._folder.name}"]
        self._process = subprocess.Popen(
            [program, *flags, "about:blank"], preexec_fn=fds, close_fds=False, stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, None
        self.requests: list[str] = []
        self.console: list[str] = []
        targets = self.do("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session = self.do("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        self.do("Emulation.setFocusEmulationEnabled", enabled=True)
        for domain in ("Page", "Network", "Runtime", "DOM", "Log"):
            self.do(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(Exception):
            self._session = None
            self.do("Browser.close", seconds=5)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)
        self._folder.cleanup()

    def do(self, method: str, seconds: float = 30, **params: Any) -> dict[str, Any]:
        """A command of the DevTools protocol, and its result."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + seconds
        while True:
            answer = self._next(until, method)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def open(self, url: str) -> None:
        """Go there."""
        self.do("Page.navigate", url=url)

    def eval(self, script: str) -> Any:
        """The value of an expression on the page."""
        result = self.do("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, script: str, seconds: float = 30) -> None:
        """Wait until the expression is true on the page."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.eval(f"!!({script})"):
                return
            time.sleep(0.05)
        raise AssertionError(f"never true within {seconds} s: {script}\n{self.eval('document.body.innerText')[:2000]}")

    def give(self, selector: str, file: Path) -> None:
        """Put a file into an <input type=file>."""
        root = self.do("DOM.getDocument")["root"]["nodeId"]
        node = self.do("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        assert node, f"there is no {selector}"
        self.do("DOM.setFileInputFiles", files=[str(file)], nodeId=node)

    def look(self, width: int, height: int, dark: bool, file: Path) -> None:
        """A picture of the whole page."""
        self.resize(width, height, dark)
        time.sleep(0.5)
        data = self.do("Page.captureScreenshot", captureBeyondViewport=True, format="png")["data"]
        file.write_bytes(base64.b64decode(data))

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """Another window, light or dark."""
        self.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])

    def _next(self, until: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"the browser did not answer {what} in time"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        params = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif message.get("method") == "Log.entryAdded":
            self.console.append(f"{params['entry']['level']}: {params['entry']['text']}")
        elif message.get("method") == "Runtime.exceptionThrown":
            self.console.append(f"error: {params['exceptionDetails'].get('text')}")
        return message
