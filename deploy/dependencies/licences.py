"""Licences of the locked packages, as declared by the installed packages.

The list is a committed file, because packages that this machine does not need (such as those for
Windows) are not installed; their entries in the list are kept.
"""

import importlib.metadata
import json
from collections.abc import Iterable
from pathlib import Path

from deploy.dependencies.lock import Pin

FILE = Path(__file__).with_name("licences.json")
UNKNOWN = "not declared"
_CLASSIFIER = "License :: "
# SPDX identifiers of unambiguous classifiers.
_SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_SHORT = 60


def listed(path: Path = FILE) -> dict[str, dict[str, str]]:
    """The committed list: `{"version", "licence"}` by package."""
    found: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def declared(name: str) -> str | None:
    """The licence declared by an installed package, or None if it is not installed.

    Its SPDX expression if it has one, else its classifiers, else the beginning of its `License`
    field or licence file.
    """
    try:
        metadata = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    if "License-Expression" in metadata:
        return metadata["License-Expression"].strip()
    classified = [
        _SPDX.get(text.rpartition(" :: ")[2], text.rpartition(" :: ")[2])
        for text in metadata.get_all("Classifier") or []
        if text.startswith(_CLASSIFIER) and text != "License :: OSI Approved"
    ]
    if classified:
        return " AND ".join(sorted(classified))
    field = (metadata.get_all("License") or [""])[0]
    found = _first_line(field) or _title(name) or UNKNOWN
    return _SPDX.get(found, found)


def _title(name: str) -> str:
    """The first line of a package's licence file, usually its title."""
    files = importlib.metadata.files(name) or []
    found = [path for path in files if "LICEN" in path.name.upper() and ".dist-info" in str(path)]
    return _first_line(found[0].read_text()) if found else ""


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0].strip()[:_SHORT] if lines else ""


def current(pins: Iterable[Pin], known: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """The current list; `known` provides the entries of packages that are not installed.

    A package locked in several versions, for several Pythons, has all of them.
    """
    found: dict[str, dict[str, str]] = {}
    for pin in pins:
        if pin.name in found:
            found[pin.name]["version"] += f", {pin.version}"
            continue
        licence = declared(pin.name) or known.get(pin.name, {}).get("licence", UNKNOWN)
        found[pin.name] = {"version": pin.version, "licence": licence}
    return found


def text_of(licences: dict[str, dict[str, str]]) -> str:
    """The list as the text of its file."""
    return json.dumps(licences, indent=1, sort_keys=True) + "\n"
