"""A release: the version that a tag names, its notes, and its checksums."""

from pathlib import Path

import pytest

from deploy.release import ReleaseError, notes_of, sums_of, version_of
from services.runtime.settings import ROOT
from services.runtime.version import version

pytestmark = pytest.mark.unit

CHANGELOG = """\
# Changelog

## 0.2.0 - YYYY-MM-DD

- Not released.

## 0.1.10 - 2026-12-24

### Runs

- `run` runs.

## 0.1.1 - 2026-12-01

- A fix.
"""


def test_a_tag_names_a_version():
    assert version_of("v0.1.0") == "0.1.0"
    assert version_of("v10.20.30") == "10.20.30"


@pytest.mark.parametrize("tag", ["0.1.0", "v0.1", "v0.1.0rc1", "v0.1.0\n", "v0.1.0-1-g1a2b3c", ""])
def test_another_tag_is_none_of_a_release(tag):
    with pytest.raises(ReleaseError, match="is not a tag of a release"):
        version_of(tag)


def test_the_notes_are_the_section_of_the_version_word_for_word():
    assert notes_of(CHANGELOG, "0.1.10") == (
        "## 0.1.10 - 2026-12-24\n\n### Runs\n\n- `run` runs.\n"
    )
    assert notes_of(CHANGELOG, "0.1.1") == "## 0.1.1 - 2026-12-01\n\n- A fix.\n"


@pytest.mark.parametrize("number", ["0.1.0", "0.1", "0.2.0"])
def test_a_version_without_a_section_or_without_a_date_has_no_notes(number):
    with pytest.raises(ReleaseError, match=f"no section '## {number} - YYYY-MM-DD' with its date"):
        notes_of(CHANGELOG, number)


def test_the_changelog_begins_with_the_version_of_the_package():
    headings = [
        line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")
    ]
    assert headings[0].startswith(f"## {version()} - ")


def test_checksums_are_those_of_sha256sum(tmp_path: Path):
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "a").write_bytes(b"abc")
    # The digests of FIPS 180-2, appendix B.1, and of no bytes.
    assert sums_of(tmp_path) == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n"
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n"
    )
