"""`requirements.lock` as data: every package with its version, hashes and dependents. Pure.

The lock states for every package why it is included (`# via …`), so dependencies follow from the
lock alone.

The image of a service has the packages that it imports, directly or through what all services
share, and their dependencies, no more. Sources are parsed, not imported; imports inside functions
count.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

DIRECT = "tidegauge (pyproject.toml)"
_PIN = re.compile(r"^(?P<name>[a-z0-9.-]+)==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\]+))?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
OURS = ("schemas", "services", "analysis", "deploy")
# Modules started as separate processes from the image of a service, which no import shows.
STARTS = {"conductor": ("deploy/kafka",)}
# Packages whose names differ from their modules, apart from underscores.
PACKAGE_OF = {
    "faust": "faust-streaming",
    "google": "protobuf",
    "mode": "mode-streaming",
    "opentelemetry": "opentelemetry-exporter-otlp-proto-http",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
# Packages of a service in addition to its imports.
BESIDES: dict[str, tuple[str, ...]] = {
    # Faust needs aiokafka's extra for lz4-compressed topics.
    "evaluator": ("aiokafka", "cramjam"),
    # `tidegauge evaluate` runs the evaluator's code in a separate process.
    "console": ("faust-streaming", "pyarrow", "pyruhvro"),
}
RUNNER = "runner"  # its image contains the programs of all engines
SERVICES = (
    "generator",
    "gateway",
    "runner",
    "evaluator",
    "collector",
    "conductor",
    "store",
    "watcher",
    "console",
)


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


def needed_by(project: str) -> tuple[str, ...]:
    """Names of the packages that a `pyproject.toml` needs without extras."""
    named = tomllib.loads(project)["project"]["dependencies"]
    return tuple(re.split(r"[^A-Za-z0-9._-]", each, maxsplit=1)[0] for each in named)


def third_party(root: Path, service: str) -> frozenset[str]:
    """Top-level names of all modules that are neither ours nor in the standard library.

    root: the repository. Raises FileNotFoundError for an unknown service.
    """
    folder = root / "services" / service
    folders = (folder, *(root / started for started in STARTS.get(service, ())))
    waiting = [path for each in folders for path in each.rglob("*.py")]
    if not waiting:
        raise FileNotFoundError(f"there is no service {service!r} in {root / 'services'}")
    read: set[Path] = set()
    result: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in read:
            continue
        read.add(path)
        for name in _imported(path):
            top = name.partition(".")[0]
            if top in OURS:
                waiting.extend(_files(root, name))
            elif top not in sys.stdlib_module_names:
                result.add(top)
    return frozenset(result)


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _files(root: Path, name: str) -> Iterator[Path]:
    """The file of a module or package; none for a name inside a module."""
    path = root.joinpath(*name.split("."))
    yield from filter(Path.is_file, (path.with_suffix(".py"), path / "__init__.py"))


def packages_of(root: Path, service: str) -> tuple[str, ...]:
    """Direct dependencies of the service, sorted. Raises FileNotFoundError."""
    modules, besides = set(third_party(root, service)), set(BESIDES.get(service, ()))
    for file in (root / "services").glob("*/engine.toml") if service == RUNNER else ():
        modules |= third_party(root, file.parent.name)
        besides |= {*tomllib.loads(file.read_text())["install"].get("packages", ())}
    imported = {PACKAGE_OF.get(name, name.replace("_", "-")) for name in modules}
    return tuple(sorted(imported | besides))


def image_lock(root: Path, pins: tuple[Pin, ...], service: str) -> str:
    """The part of the lock that the image of a service installs, hashes included.

    Raises FileNotFoundError for an unknown service, UnknownPackageError for an import that no
    locked package provides.
    """
    return "".join(pin.text for pin in subset(pins, packages_of(root, service)))
