"""Class archives with a real JVM: recorded, created, used, and ignored if unusable."""

import subprocess
from pathlib import Path

import pytest

from deploy.local.archiving import make_archives
from deploy.local.java import find_java
from services.runtime.jvm import ClassArchive, class_archive
from services.runtime.settings import ROOT

pytestmark = pytest.mark.integration
SHARED = "source: shared objects file"


@pytest.fixture
def archive(tmp_path: Path) -> ClassArchive:
    lock = tmp_path / "installed.lock"
    lock.write_text("the jars\n")
    found = class_archive(tmp_path, "probe", find_java(ROOT / ".jars").home, of=[lock])
    assert found is not None
    return found


def start(archive: ClassArchive, *more: str) -> "subprocess.CompletedProcess[str]":
    """Run a JVM that loads some classes of its class path."""
    java = str(archive.java_home / "bin" / "java")
    (ivy,) = (ROOT / ".venv").glob("lib/python3*/site-packages/pyspark/jars/ivy-*.jar")
    archive.record(str(ivy))
    return subprocess.run(
        [java, *archive.options(), *more, "-cp", str(ivy), "org.apache.ivy.Main", "-version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_archive_is_made_of_what_was_loaded_and_maps_it(archive: ClassArchive) -> None:
    first = start(archive)
    assert first.returncode == 0, first.stderr
    said: list[str] = []
    make_archives(archive.folder.parent, said.append, but=("probe",))
    assert not said
    make_archives(archive.folder.parent, said.append)
    assert said == ["creating class archives, which make later starts faster (once)"]
    assert [path.name for path in archive.folder.iterdir()] == [archive.path.name]
    loaded = start(archive, "-Xlog:class+load:stdout").stdout.splitlines()
    own = [line for line in loaded if "org.apache.ivy.Main " in line]
    assert own
    assert SHARED in own[0]
    make_archives(archive.folder.parent, said.append)
    assert len(said) == 1


def test_a_jvm_goes_on_without_an_archive_that_is_damaged_or_of_other_jars(
    archive: ClassArchive,
) -> None:
    start(archive)
    make_archives(archive.folder.parent, lambda _text: None)
    whole = archive.path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:200_000] + b"damaged" + whole[200_007:], b""):
        archive.path.chmod(0o600)
        archive.path.write_bytes(damaged)
        done = start(archive)
        assert (done.returncode, done.stderr) == (0, "")
        assert "warning" not in done.stdout
    archive.path.write_bytes(whole)
    java = str(archive.java_home / "bin" / "java")
    other = subprocess.run(
        [java, *archive.options(), "-cp", str(archive.folder.parent), "-version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (other.returncode, other.stdout) == (0, "")


def test_what_cannot_be_made_is_noted_and_not_tried_again(archive: ClassArchive) -> None:
    archive.record("/no/such.jar")
    archive.folder.joinpath(f"{archive.name}.pid1.classes").write_text("@no-such-directive x\n")
    make_archives(archive.folder.parent, lambda _text: None)
    assert archive.failed.read_text().strip()
    assert archive.options() == ()
