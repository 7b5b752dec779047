"""A headless browser driven through a pipe by the DevTools protocol: messages are JSON, each ended by a zero byte."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe", "--hide-scrollbars"),
)


def find_browser() -> Optional[str]:
    """The path of a Chromium; None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page of a browser.

    Attributes:
        events: what the page reported: console messages, exceptions, network requests.
    """

    def __init__(self, profile_folder: Path) -> None:
        """Start it with an empty profile and an empty page."""
        path = find_browser()
        assert path is not None
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()

        def give_pipes() -> None:
            # The protocol wants descriptors 3 and 4; moved up first, so that neither covers the other.
            high = [os.dup2(to_browser, 60), os.dup2(from_browser, 61)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [path, *FLAGS, f"--user-data-dir={profile_folder}", "about:blank"], preexec_fn=give_pipes, close_fds=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._left = b""
        self._count = 0
        self._session = ""
        self.events: List[Dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def call(self, method: str, **parameters: Any) -> Dict[str, Any]:
        """Call a method of the protocol and wait for its answer; events on the way are kept."""
        self._count += 1
        message: Dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._count:
                assert "error" not in found, f"{method}: {found['error']}"
                return found["result"]

    def open(self, url: str, width: int, height: int, dark: bool = False) -> None:
        """Open a page in a window of that size and wait until it has loaded."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        before = len(self.events)
        self.call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events[before:]):
            self._next()

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, as plain values."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def move_mouse(self, x: float, y: float) -> None:
        """Move the mouse to a place in the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def _next(self) -> Dict[str, Any]:
        while b"\0" not in self._left:
            part = os.read(self._in, 1 << 16)
            assert part, "the browser went away"
            self._left += part
        text, _, self._left = self._left.partition(b"\0")
        message = json.loads(text.decode("utf-8"))
        if "method" in message:
            self.events.append(message)
        return message
