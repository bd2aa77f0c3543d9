"""The files of the page: complete, pinned, and self-contained."""

import hashlib
import re

import pytest

from services.store.dashboards.site import TYPES, VIEWER_DIR

pytestmark = pytest.mark.unit
VENDOR = VIEWER_DIR / "vendor"
OURS = [p for p in VIEWER_DIR.rglob("*") if p.suffix in TYPES and VENDOR not in p.parents]


def test_vendored_files_are_those_that_were_released():
    listed = dict(
        reversed(line.split()) for line in (VENDOR / "SHA256SUMS").read_text().splitlines()
    )
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.name not in ("SHA256SUMS", "README.md")
    }
    assert found == listed


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_nothing_is_fetched_from_elsewhere(path):
    text = re.sub(r"^\s*//.*$|/\*.*?\*/", "", path.read_text(), flags=re.M | re.S)
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)[^\s\"')]+", text) == []


@pytest.mark.parametrize("path", [p for p in OURS if p.suffix == ".js"], ids=lambda p: p.name)
def test_every_import_is_there(path):
    for name in re.findall(r'from "(\./|\.\./)([^"]+)"', path.read_text()):
        assert (path.parent / "".join(name)).resolve().is_file(), name


@pytest.mark.parametrize("path", [p for p in OURS if p.suffix == ".js"], ids=lambda p: p.name)
def test_modules_are_short_and_make_no_html_of_text(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 250
    assert max(map(len, text.splitlines())) <= 100
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
