"""Packages imported by a service, directly or through the packages that all services share.

Parses the sources without importing them; imports inside functions count.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

OURS = ("schemas", "services", "analysis", "deploy")
# Modules started as separate processes from the image of a service, which no import shows.
STARTS = {"conductor": ("deploy/kafka",)}


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
    found: set[str] = set()
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
                found.add(top)
    return frozenset(found)


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
