"""A bill of materials in CycloneDX 1.6 (JSON). Pure.

Deterministic: the same components give the same bytes, so it contains no timestamp and no serial
number. A package of the lock consists of several files, one per platform, so their hashes are those
of a reference of type `distribution`; every other component is one file with its own hash.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy.dependencies.lock import DIRECT, Pin, needs

ROOT_REF = "tidegauge"


@dataclass(frozen=True)
class Component:
    """One third-party component.

    kind: CycloneDX type. base: its package URL without the version, or empty. licence: an SPDX
    expression, or else the maker's own name for it. sha256: if it is a single file. files: SHA-256
    of the files that an installer chooses from. notes: properties. parts: bundled components.
    """

    kind: str
    base: str
    name: str
    version: str
    group: str = ""
    licence: str = ""
    sha256: str = ""
    files: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    parts: tuple["Component", ...] = ()

    @property
    def purl(self) -> str:
        """The package URL, or empty."""
        return f"{self.base}@{self.version}" if self.base else ""


def bill(components: Iterable[Component], pins: tuple[Pin, ...], version: str) -> str:
    """The bill of materials as JSON text, a component per line.

    pins: of the lock, for dependencies between packages. version: of Tidegauge.
    """
    listed = [_described(each) for each in components]
    own = {"type": "application", "bom-ref": ROOT_REF, "name": "tidegauge", "version": version}
    content = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": listed,
        "dependencies": _dependencies(pins, [each["bom-ref"] for each in listed]),
    }
    text = json.dumps(content, separators=(",", ":"))
    return text.replace('{"type"', '\n{"type"').replace('{"ref"', '\n{"ref"') + "\n"


def _described(component: Component, within: str = "") -> dict[str, Any]:
    place = component.notes.get("path", f"{component.name}@{component.version}")
    ref = f"{within}#{place}" if within else component.purl
    described: dict[str, Any] = {
        "type": component.kind,
        "bom-ref": ref,
        "group": component.group,
        "name": component.name,
        "version": component.version,
        "hashes": _hashes([component.sha256] if component.sha256 else []),
        "licenses": [_licence(component.licence)],
        "purl": component.purl,
        "externalReferences": _distribution(component),
        "properties": [
            {"name": f"tidegauge:{name}", "value": value} for name, value in component.notes.items()
        ],
        "components": [_described(part, ref) for part in component.parts],
    }
    return {name: value for name, value in described.items() if value}


def _hashes(digests: Iterable[str]) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": digest} for digest in digests]


def _distribution(component: Component) -> list[dict[str, Any]]:
    if not component.files:
        return []
    hashes = _hashes(component.files)
    return [{"type": "distribution", "url": component.purl, "hashes": hashes}]


def _licence(text: str) -> dict[str, Any]:
    # Imported here because image builds run `deploy.dependencies` with the standard library only.
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        return {"expression": str(canonicalize_license_expression(text))}
    except InvalidLicenseExpression:
        return {"license": {"name": text}}


def _dependencies(pins: tuple[Pin, ...], refs: list[str]) -> list[dict[str, Any]]:
    """Dependencies from the lock; packages without a dependent are dependencies of Tidegauge."""
    children = needs(pins)
    by_name: dict[str, list[str]] = {pin.name: [] for pin in pins}
    for pin in pins:
        by_name[pin.name].append(f"pkg:pypi/{pin.name}@{pin.version}")
    needed = {ref for pin in pins if DIRECT not in pin.via for ref in by_name[pin.name]}
    own = {"ref": ROOT_REF, "dependsOn": [ref for ref in refs if ref not in needed]}
    rest = [
        {
            "ref": f"pkg:pypi/{pin.name}@{pin.version}",
            "dependsOn": [ref for child in children[pin.name] for ref in by_name[child]],
        }
        for pin in pins
    ]
    return [own, *rest]
