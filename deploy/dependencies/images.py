"""Packages in the image of each service: its imports and their dependencies, no more."""

import tomllib
from pathlib import Path

from deploy.dependencies.imports import third_party
from deploy.dependencies.lock import Pin, subset

# Packages whose names differ from their modules, apart from underscores.
PACKAGE_OF = {
    "faust": "faust-streaming",
    "google": "protobuf",
    "mode": "mode-streaming",
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
