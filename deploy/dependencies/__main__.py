"""python -m deploy.dependencies update          write licences.json and sbom.cdx.json again
python -m deploy.dependencies image SERVICE      print the part of the lock for one image

After every change of requirements.lock, once its packages are installed: `update`. The second
needs the standard library only; the image builds run it.
"""

import argparse
import sys
import tomllib
from pathlib import Path

from deploy.dependencies.images import SERVICES, image_lock
from deploy.dependencies.licences import FILE, current, listed, text_of
from deploy.dependencies.lock import Pin, UnknownPackageError, read_lock
from deploy.dependencies.sbom import Jar, bill, read_ivy

ROOT = Path(__file__).resolve().parents[2]
SBOM = Path(__file__).with_name("sbom.cdx.json")


def main(arguments: list[str]) -> int:
    """Carry out one verb; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.dependencies", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("update")
    verbs.add_parser("image").add_argument("service", choices=SERVICES)
    options = parser.parse_args(arguments)
    pins = locked()
    if options.verb == "update":
        licences = current(pins, listed())
        FILE.write_text(text_of(licences))
        SBOM.write_text(bill(pins, jars(), licences, version()))
        return 0
    try:
        print(image_lock(ROOT, pins, options.service), end="")
    except UnknownPackageError as error:
        print(f"tidegauge: {error}", file=sys.stderr)
        return 1
    return 0


def locked() -> tuple[Pin, ...]:
    """The lock of this repository."""
    return read_lock((ROOT / "requirements.lock").read_text())


def jars() -> tuple[Jar, ...]:
    """The jars that this repository fetches."""
    return read_ivy((ROOT / "deploy" / "local" / "ivy.xml").read_text())


def version() -> str:
    """The version of this project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
