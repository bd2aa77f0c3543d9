"""A headless Chromium, driven over the DevTools protocol, with only the functions that tests need.

https://chromedevtools.github.io/devtools-protocol/ over the WebSocket of aiohttp, which the
services use anyway. Any installed Chromium or Chrome works, and nothing needs to be installed.
"""

import asyncio
import base64
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
START_TIMEOUT_S = 400
ANSWER_TIMEOUT_S = 400
FLAGS = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-component-update",
    "--disable-background-networking",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--mute-audio",
    "about:blank",
)


def found_browser() -> str | None:
    """Path of an installed Chromium or Chrome; TIDEGAUGE_BROWSER sets another one."""
    named = os.environ.get("TIDEGAUGE_BROWSER")
    paths = [shutil.which(name) for name in ((named,) if named else NAMES)]
    return next((path for path in (*paths, MAC) if path and Path(path).exists()), None)


class Browser:
    """One page of a browser. complaints: the errors logged to its console so far."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, loop: Any, session: str) -> None:
        self._socket, self._loop, self._session = socket, loop, session
        self._numbers = itertools.count(1000)
        self.complaints: list[str] = []

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Execute a command of the protocol; fails on an error."""
        return self._loop.run_until_complete(self._command(method, parameters))

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page. Promises are awaited."""
        found = self.command(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def open(self, url: str) -> None:
        """Navigate to an address, and return once the previous page is left; the new one may still
        be loading."""
        self.evaluate("window.leaving = true")
        found = self.command("Page.navigate", url=url)
        assert "errorText" not in found, found
        self.wait_until("!window.leaving")

    def wait_until(self, script: str, timeout_s: float = 60.0) -> None:
        """Wait until an expression is true in the page; on timeout, fails with the page's
        content."""
        deadline = time.monotonic() + timeout_s
        while not self.evaluate(f"Boolean({script})"):
            if time.monotonic() > deadline:
                text = self.evaluate("document.body.innerText")
                raise AssertionError(f"not in {timeout_s} s: {script}\n{self.complaints}\n{text}")
            time.sleep(0.1)

    def look(self, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        """Set the window size, the colour scheme, and whether to emulate a phone."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        """Write a screenshot as PNG."""
        path.parent.mkdir(parents=True, exist_ok=True)
        found = self.command("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        path.write_bytes(base64.b64decode(found["data"]))

    async def _command(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        request = {"id": number, "method": method, "params": parameters}
        await self._socket.send_json(request | {"sessionId": self._session})
        while True:
            message = await asyncio.wait_for(self._socket.receive_json(), ANSWER_TIMEOUT_S)
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message}"
                return dict(message["result"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.complaints.append(str([each.get("value") for each in parameters["args"]]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(str(parameters["entry"]))


@contextmanager
def browsing(program: str, folder: Path) -> Iterator[Browser]:
    """A browser with its own profile in the folder, stopped afterwards."""
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [program, f"--user-data-dir={folder}", *sandbox, *FLAGS]
    with (folder.parent / "browser.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        loop = asyncio.new_event_loop()
        try:
            url = _address(process, folder / "DevToolsActivePort")
            client, browser = loop.run_until_complete(_attached(url, loop))
            try:
                yield browser
            finally:
                loop.run_until_complete(client.close())
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
            loop.close()


def _address(process: "subprocess.Popen[bytes]", file: Path) -> str:
    """The WebSocket address, which the browser writes into its profile when it starts to listen."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        lines = file.read_text().split() if file.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        assert process.poll() is None, "the browser ended"
        assert time.monotonic() < deadline, "the browser does not listen in time"
        time.sleep(0.05)


async def _attached(url: str, loop: Any) -> tuple[aiohttp.ClientSession, Browser]:
    client = aiohttp.ClientSession()
    socket = await client.ws_connect(url, max_msg_size=0)

    async def ask(number: int, method: str, **parameters: Any) -> dict[str, Any]:
        await socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = await asyncio.wait_for(socket.receive_json(), ANSWER_TIMEOUT_S)
            if message.get("id") == number:
                return dict(message["result"])

    page = await ask(1, "Target.createTarget", url="about:blank")
    attached = await ask(2, "Target.attachToTarget", targetId=page["targetId"], flatten=True)
    browser = Browser(socket, loop, attached["sessionId"])
    for domain in ("Page", "Runtime", "Log"):
        await browser._command(f"{domain}.enable", {})
    return client, browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The installed browser; skips if there is none."""
    program = found_browser()
    if program is None:
        pytest.skip("no Chromium or Chrome was found; TIDEGAUGE_BROWSER can name one")
    with browsing(program, tmp_path_factory.mktemp("browser") / "profile") as found:
        yield found
