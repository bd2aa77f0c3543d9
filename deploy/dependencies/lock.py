"""`requirements.lock` as data: every package with its version, hashes and dependents.

    python -m deploy.dependencies.lock      print the part of the lock for the image of the services

The lock states for every package why it is included (`# via …`), so dependencies follow from the
lock alone. Standard library only: an installation and the build of the image begin with it.
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIRECT = "tidegauge (pyproject.toml)"
IMAGE_EXTRAS = ("run", "otlp")  # not `test`
_PIN = re.compile(r"^(?P<name>[a-z0-9.-]+)==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\]+))?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Pin:
    """One locked package. marker: environment marker, empty for everywhere; sha256: of each of its
    files, in the order of the lock; via: names of its dependents, DIRECT for Tidegauge itself."""

    name: str
    version: str
    marker: str
    sha256: tuple[str, ...]
    via: tuple[str, ...]
    text: str


def read_lock(text: str) -> tuple[Pin, ...]:
    """All packages of a lock, in its order."""
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if _PIN.match(line):
            blocks.append([line])
        elif blocks and line.startswith(" "):
            blocks[-1].append(line)
    return tuple(_pin(block) for block in blocks)


def _pin(lines: list[str]) -> Pin:
    match = _PIN.match(lines[0])
    assert match is not None
    comments = [line.strip().removeprefix("#").strip() for line in lines if line.strip()[0] == "#"]
    via = tuple(filter(None, (comment.removeprefix("via").strip() for comment in comments)))
    kept = [line for line in lines if not line.strip().startswith("#")]
    marker = (match["marker"] or "").strip()
    hashes = tuple(_HASH.findall("\n".join(lines)))
    return Pin(match["name"], match["version"], marker, hashes, via, "\n".join(kept) + "\n")


def needs(pins: Iterable[Pin]) -> dict[str, tuple[str, ...]]:
    """Direct dependencies of each package, by name, sorted."""
    result: dict[str, set[str]] = {pin.name: set() for pin in pins}
    for pin in pins:
        for parent in pin.via:
            if parent in result:
                result[parent].add(pin.name)
    return {name: tuple(sorted(children)) for name, children in result.items()}


def subset(pins: tuple[Pin, ...], wanted: Iterable[str]) -> tuple[Pin, ...]:
    """The requested packages and all their dependencies, in the order of the lock.

    Raises ValueError if one is not in the lock.
    """
    children = needs(pins)
    chosen: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name not in children:
            raise ValueError(f"requirements.lock has no package {name!r}")
        if name not in chosen:
            chosen.add(name)
            waiting.extend(children[name])
    return tuple(pin for pin in pins if pin.name in chosen)


def needed_by(project: str, extras: Iterable[str] = ()) -> tuple[str, ...]:
    """Names of the packages that a `pyproject.toml` needs with these extras."""
    content = tomllib.loads(project)["project"]
    of_extras = (content["optional-dependencies"][extra] for extra in extras)
    named = [*content["dependencies"], *(each for extra in of_extras for each in extra)]
    return tuple(re.split(r"[^A-Za-z0-9._-]", each, maxsplit=1)[0] for each in named)


def needed_lock(root: Path, extras: Iterable[str] = ()) -> str:
    """The part of the lock of a repository that its project needs with these extras."""
    wanted = needed_by((root / "pyproject.toml").read_text(), extras)
    pins = read_lock((root / "requirements.lock").read_text())
    return "".join(pin.text for pin in subset(pins, wanted))


if __name__ == "__main__":
    sys.stdout.write(needed_lock(ROOT, IMAGE_EXTRAS))
