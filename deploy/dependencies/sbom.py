"""A bill of materials in CycloneDX 1.6 (JSON): packages of the lock, jars of `ivy.xml`. Pure.

Deterministic: the same files give the same bytes, so there is no time of making and no serial
number in it. Hashes are in the lock: a package is several files, which a bill cannot say.
"""

import json
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import Any

from deploy.dependencies.lock import DIRECT, Pin, needs

ROOT_REF = "tidegauge"


@dataclass(frozen=True)
class Jar:
    """One jar of `ivy.xml`. use: the folder it goes to."""

    group: str
    name: str
    version: str
    use: str

    @property
    def purl(self) -> str:
        """The package URL."""
        return f"pkg:maven/{self.group}/{self.name}@{self.version}"


def read_ivy(text: str) -> tuple[Jar, ...]:
    """The jars of an Ivy file, which names every one of them."""
    return tuple(
        Jar(
            each.attrib["org"],
            each.attrib["name"],
            each.attrib["rev"],
            each.attrib["conf"].partition("->")[0],
        )
        for each in ET.fromstring(text).iter("dependency")
    )


def bill(
    pins: tuple[Pin, ...],
    jars: tuple[Jar, ...],
    licences: dict[str, dict[str, str]],
    version: str,
) -> str:
    """The bill of materials as JSON text."""
    content = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": ROOT_REF,
                "name": "tidegauge",
                "version": version,
            }
        },
        "components": [
            *(_component(pin, licences.get(pin.name, {})) for pin in pins),
            *(_jar_component(jar) for jar in jars),
        ],
        "dependencies": _dependencies(pins, jars),
    }
    return json.dumps(content, indent=1) + "\n"


def purl(pin: Pin) -> str:
    """The package URL."""
    return f"pkg:pypi/{pin.name}@{pin.version}"


def _component(pin: Pin, listed: dict[str, str]) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl(pin),
        "name": pin.name,
        "version": pin.version,
        "purl": purl(pin),
        "licenses": [{"license": {"name": listed.get("licence", "not declared")}}],
    }
    if pin.marker:
        component["properties"] = [{"name": "tidegauge:marker", "value": pin.marker}]
    return component


def _jar_component(jar: Jar) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": jar.purl,
        "group": jar.group,
        "name": jar.name,
        "version": jar.version,
        "purl": jar.purl,
        "properties": [{"name": "tidegauge:use", "value": jar.use}],
    }


def _dependencies(pins: tuple[Pin, ...], jars: tuple[Jar, ...]) -> list[dict[str, Any]]:
    direct = [purl(pin) for pin in pins if DIRECT in pin.via]
    children = needs(pins)
    own = {"ref": ROOT_REF, "dependsOn": [*direct, *(jar.purl for jar in jars)]}
    rest = [
        {
            "ref": purl(pin),
            "dependsOn": [purl(each) for each in pins if each.name in children[pin.name]],
        }
        for pin in pins
    ]
    return [own, *rest]
