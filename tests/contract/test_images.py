"""External images are named by tag and digest, consistently."""

import re
from collections.abc import Iterator

import pytest
import yaml

from services.runtime.settings import ROOT
from services.runtime.version import version
from tests.contract.compose import PARTS, value_of

pytestmark = pytest.mark.contract

# No public source has its digest; deploy/README.md describes how to pin it.
UNPINNED = {"apache/spark:4.3.0"}
OURS = rf"tidegauge/[a-z_]+:{re.escape(version())}"  # built here, from files of this repository
PINNED = r"[a-z/_-]+:\d+(\.\d+)+[\w.-]*@sha256:[0-9a-f]{64}"


def images(found: object) -> Iterator[str]:
    """Every value of a field `image`, at any depth."""
    if isinstance(found, dict):
        for name, each in found.items():
            if name == "image" and isinstance(each, str):
                yield value_of(each)
            else:
                yield from images(each)
    elif isinstance(found, list):
        for each in found:
            yield from images(each)


def every_image() -> list[tuple[str, str]]:
    """(file, image) for every image named in a file of deploy/."""
    found = [("compose.yaml", image) for image in images(PARTS)]
    for path in sorted((ROOT / "deploy" / "kubernetes").rglob("*.yaml")):
        parts = list(yaml.safe_load_all(path.read_text()))
        found += [(path.name, image) for image in images(parts)]
    for path in sorted((ROOT / "deploy" / "images").glob("Dockerfile*")):
        given = re.findall(r"^ARG \w+_IMAGE=(\S+)$", path.read_text(), re.MULTILINE)
        assert given, path
        found += [(path.name, image) for image in given]
    return found


@pytest.mark.parametrize("name", ["deploy/images/Dockerfile", ".dockerignore"])
def test_nothing_goes_into_an_image_twice(name: str) -> None:
    stage = (ROOT / name).read_text().rpartition("\nFROM ")[2]
    copied = re.findall(r"^(?:COPY |!).*", stage, re.MULTILINE)
    assert len(copied) > 5
    assert len(copied) == len(set(copied))


def test_every_image_of_others_has_a_digest() -> None:
    theirs = [(file, image) for file, image in every_image() if not re.fullmatch(OURS, image)]
    loose = {image for _file, image in theirs if not re.fullmatch(PINNED, image)}
    assert loose == UNPINNED
    assert {file for file, _image in theirs} == {
        "Dockerfile",
        "Dockerfile.executor",
        "clickhouse.yaml",
        "compose.yaml",
        "grafana.yaml",
        "kafka.yaml",
    }


def test_every_image_of_ours_has_the_version_of_the_package() -> None:
    deploy = ROOT / "deploy"
    files = (*deploy.rglob("*.yaml"), *(deploy / "images").iterdir())
    text = "".join(path.read_text() for path in files)
    assert set(re.findall(r"\btidegauge/[a-z]+:([\w.]+)", text)) == {version()}
    file = (ROOT / "deploy" / "images" / "Dockerfile").read_text()
    assert f'org.opencontainers.image.version="{version()}"' in file
    # `--version` in a container reads it.
    assert "\nCOPY pyproject.toml /opt/tidegauge/\n" in file.rpartition("\nFROM ")[2]


def test_a_tag_has_one_digest() -> None:
    theirs = {image for _file, image in every_image()}
    assert len({image.split("@")[0] for image in theirs}) == len(theirs)


def test_the_page_says_which_images_are_not_pinned_and_how_they_would_be() -> None:
    page = (ROOT / "deploy" / "README.md").read_text()
    for image in UNPINNED:
        assert f"docker buildx imagetools inspect {image}" in page
