"""Readiness of a store that runs as a separate process."""

import subprocess
import time
import urllib.request

from services.runtime.settings import ServiceSettings
from tests.integration.service_process import DEADLINE_S


def is_ready(settings: ServiceSettings) -> bool:
    """Whether its readiness endpoint returns 200."""
    try:
        url = f"http://127.0.0.1:{settings.port('store')}/health/ready"
        with urllib.request.urlopen(url, timeout=1) as answer:
            return int(answer.status) == 200
    except OSError:
        return False


def until_ready(settings: ServiceSettings, process: "subprocess.Popen[bytes]") -> None:
    """Wait until it is ready; fails if the process ends first."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_ready(settings):
        assert process.poll() is None, "the store ended"
        assert time.monotonic() < deadline, "the store is not ready in time"
        time.sleep(0.05)
