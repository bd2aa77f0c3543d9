"""`requirements.lock` as data: every package with its version, hashes and dependents. Pure.

The lock states for every package why it is included (`# via …`), so dependencies follow from the
lock alone.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

DIRECT = "tidegauge (pyproject.toml)"
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


class UnknownPackageError(ValueError):
    """A requested package is not in the lock; the text is one sentence."""


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
    found = _PIN.match(lines[0])
    assert found is not None
    comments = [line.strip().removeprefix("#").strip() for line in lines if line.strip()[0] == "#"]
    via = tuple(filter(None, (comment.removeprefix("via").strip() for comment in comments)))
    kept = [line for line in lines if not line.strip().startswith("#")]
    marker = (found["marker"] or "").strip()
    hashes = tuple(_HASH.findall("\n".join(lines)))
    return Pin(found["name"], found["version"], marker, hashes, via, "\n".join(kept) + "\n")


def needs(pins: Iterable[Pin]) -> dict[str, tuple[str, ...]]:
    """Direct dependencies of each package, by name, sorted."""
    found: dict[str, set[str]] = {pin.name: set() for pin in pins}
    for pin in pins:
        for parent in pin.via:
            if parent in found:
                found[parent].add(pin.name)
    return {name: tuple(sorted(children)) for name, children in found.items()}


def subset(pins: tuple[Pin, ...], wanted: Iterable[str]) -> tuple[Pin, ...]:
    """The requested packages and all their dependencies, in the order of the lock.

    Raises UnknownPackageError.
    """
    children = needs(pins)
    chosen: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name not in children:
            raise UnknownPackageError(f"requirements.lock has no package {name!r}")
        if name not in chosen:
            chosen.add(name)
            waiting.extend(children[name])
    return tuple(pin for pin in pins if pin.name in chosen)
