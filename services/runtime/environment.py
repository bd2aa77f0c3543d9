"""The environment of a run: versions, host, Java, revision. Stored with every run."""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from services.runtime.engines import load_engines
from services.runtime.limits import limits
from services.runtime.settings import ROOT

PACKAGES = ("faust-streaming", "confluent-kafka", "fastavro", "pyruhvro", "chdb-core")


def environment() -> dict[str, Any]:
    """Versions, and the machine: kernel, and the cores and the memory in bytes that may be used."""
    allowed = limits()
    return {
        "tidegauge": _revision(),
        "python": platform.python_version(),
        "java": _first_line(["java", "-version"]),
        "packages": dict(_versions()),
        "broker": _broker_version(),
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": allowed.cores,
        "memory_bytes": allowed.memory_bytes,
    }


def _versions() -> Iterator[tuple[str, str]]:
    """Versions of installed packages: the console's container lacks those of other services."""
    of_engines = (name for one in load_engines().values() for name in one.spec.install.versions)
    for name in (*of_engines, *PACKAGES):
        with suppress(importlib.metadata.PackageNotFoundError):
            yield name, importlib.metadata.version(name)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not here"  # an image contains only the packages of its service


def _revision() -> str:
    """The revision of the checkout, or the installed version."""
    if (ROOT / ".git").exists():
        return _first_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]) or "unknown"
    return _version("tidegauge")


def _broker_version() -> str:
    folder = Path(os.environ.get("TIDEGAUGE_JARS") or ROOT / ".jars")
    jars = sorted((folder / "broker").glob("kafka_*.jar"))
    return jars[0].stem if jars else "unknown"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    text = (done.stdout or done.stderr).strip()
    return text.splitlines()[0] if text and done.returncode == 0 else ""
