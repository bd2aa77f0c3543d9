"""The JVM options for class data sharing archives, and whose archives are used."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.archiving import make_archives
from services.runtime.jvm import USE, ClassArchive, class_archive

pytestmark = pytest.mark.unit


@pytest.fixture
def java_home(tmp_path: Path) -> Path:
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.15"\n')
    return home


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "installed.lock"
    path.write_text("ab12  broker/kafka.jar\n")
    return path


@pytest.fixture
def archive(tmp_path: Path, java_home: Path, lock: Path) -> ClassArchive:
    found = class_archive(tmp_path, "broker", java_home, of=[lock])
    assert found is not None
    return found


def made(archive: ClassArchive) -> Path:
    archive.folder.mkdir(mode=0o700)
    archive.path.write_bytes(b"classes")
    archive.path.chmod(0o400)
    return archive.path


def test_without_an_archive_a_jvm_writes_down_what_it_loads(archive: ClassArchive) -> None:
    (option,) = archive.options()
    assert option == f"-XX:DumpLoadedClassList={archive.folder}/{archive.name}.%p.classes"
    assert archive.folder.stat().st_mode & 0o777 == 0o700


def test_an_archive_is_used_and_checked_and_never_an_error(archive: ClassArchive) -> None:
    path = made(archive)
    assert archive.options() == (f"-XX:SharedArchiveFile={path}", *USE)
    assert "-Xshare:auto" in USE
    assert "-XX:+VerifySharedSpaces" in USE


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_an_archive_that_others_can_write_is_not_used(archive: ClassArchive, mode: int) -> None:
    made(archive).chmod(mode)
    assert archive.options() == ()


def test_an_archive_in_a_folder_that_others_can_write_is_not_used(archive: ClassArchive) -> None:
    made(archive)
    archive.folder.chmod(0o722)
    assert archive.options() == ()


def test_a_link_in_the_place_of_an_archive_is_not_followed(
    archive: ClassArchive, tmp_path: Path
) -> None:
    path = made(archive)
    path.rename(tmp_path / "elsewhere.jsa")
    path.symlink_to(tmp_path / "elsewhere.jsa")
    assert archive.options() == ()


def test_an_archive_of_another_user_is_not_used(
    archive: ClassArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(archive)
    os.chown(path, 12_345, -1) if os.geteuid() == 0 else monkeypatch.setattr(
        os, "geteuid", lambda: 12_345
    )
    assert archive.options() == ()


def test_nothing_is_written_where_others_can_write(archive: ClassArchive) -> None:
    archive.folder.mkdir()
    archive.folder.chmod(0o777)
    assert archive.options() == ()
    archive.record("/jars/*")
    assert not archive.recipe.exists()


def test_what_could_not_be_made_is_not_tried_again(archive: ClassArchive) -> None:
    archive.folder.mkdir(mode=0o700)
    archive.failed.write_text("no room\n")
    assert archive.options() == ()


def test_lists_of_processes_that_have_ended_go(archive: ClassArchive) -> None:
    archive.folder.mkdir(mode=0o700)
    mine = archive.folder / f"{archive.name}.pid{os.getpid()}.classes"
    past = archive.folder / f"{archive.name}.pid{2**22 + 1}.classes"  # above the largest pid
    for path in (mine, past):
        path.write_text("java/lang/Object\n")
    archive.options()
    assert [path.name for path in archive.lists()] == [mine.name]


def test_a_recipe_says_how_the_archive_is_made(archive: ClassArchive) -> None:
    replace(archive, matters=("-XX:-UseCompressedOops",)).record("/jars/broker/*")
    assert json.loads(archive.recipe.read_text()) == {
        "class_path": "/jars/broker/*",
        "java_home": str(archive.java_home),
        "options": ["-XX:-UseCompressedOops"],
    }
    assert archive.recipe.stat().st_mode & 0o777 == 0o600


def test_the_key_is_of_java_jars_and_the_options_that_matter(
    tmp_path: Path, java_home: Path, lock: Path
) -> None:
    def name(*options: str) -> str:
        found = class_archive(tmp_path, "spark", java_home, options=options, of=[lock])
        assert found is not None
        return found.name

    first = name()
    assert first.startswith("spark-")
    assert name("-XX:+UseSerialGC", "-Xmx1g") == first
    assert name("-XX:-UseCompressedOops") != first
    lock.write_text("cd34  broker/kafka.jar\n")
    other_jars = name()
    (java_home / "release").write_text('JAVA_VERSION="21.0.8"\n')
    assert len({first, other_jars, name()}) == 3


def test_without_a_version_of_java_or_a_list_of_jars_there_is_none(
    tmp_path: Path, java_home: Path, lock: Path
) -> None:
    assert class_archive(tmp_path, "broker", tmp_path, of=[lock]) is None
    assert class_archive(tmp_path, "broker", java_home, of=[tmp_path / "none"]) is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"java_home": 1, "options": [], "class_path": ""}']
)
def test_a_recipe_that_makes_no_sense_is_no_error(archive: ClassArchive, text: str) -> None:
    archive.options()  # creates the folder
    archive.recipe.write_text(text)
    (archive.folder / f"{archive.name}.pid1.classes").write_text("java/lang/Object\n")
    said: list[str] = []
    make_archives(archive.folder.parent, said.append)
    assert (said, archive.path.exists()) == ([], False)
