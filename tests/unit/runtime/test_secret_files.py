"""Allowed secrets, and atomic creation of secrets."""

import os
import re
import stat
import subprocess
import threading

import pytest

from services.runtime.secret_files import SecretFileError, given_secret, kept_secret, openness

pytestmark = pytest.mark.unit

NAME = "clickhouse-admin"
GOOD = "0123456789abcdef"
US, ROOT, SOMEBODY = 1000, 0, 1001


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "secrets"
    path.mkdir(mode=0o700)
    return path


def written(folder, data, mode=0o600):
    path = folder / NAME
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_a_missing_secret_is_made_once_closed_and_alone_in_its_folder(tmp_path):
    data = tmp_path / "above" / "data"
    path = data / "secrets" / NAME
    first = kept_secret(path)
    assert kept_secret(path) == first
    assert re.fullmatch(r"[\w-]{32}", first)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (data, path.parent):  # a data folder that others can enter is refused later
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [each.name for each in path.parent.iterdir()] == [NAME]


def test_whoever_makes_it_at_the_same_time_gets_the_same_one(tmp_path):
    path = tmp_path / "secrets" / NAME
    start = threading.Barrier(8)
    found = []

    def make():
        start.wait()
        found.append(kept_secret(path))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert set(found) == {path.read_text().strip()}


def test_a_disk_that_fills_up_while_it_is_made_leaves_nothing(folder, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SecretFileError, match=r"cannot be used: No space left on device$"):
        kept_secret(folder / NAME)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty; remove it, and a new one is created"),
        (b"\n", "is empty; remove it, and a new one is created"),
        (b"0123456789abcde\n", "has fewer than 16 characters; remove it, and a new one is created"),
        (b"\0" * 33, "is not a single line of text; remove it, and a new one is created"),
        (b"\xff" * 33, "is not a single line of text; remove it, and a new one is created"),
        (b"0123456789abcdef\n0123456789abcdef\n", "is not a single line of text"),
        (b"x" * 4097, "is not a single line of text"),
    ],
)
def test_a_secret_cut_off_or_garbled_is_refused_and_stays_as_it_is(folder, data, reason):
    path = written(folder, data)
    with pytest.raises(SecretFileError) as error:
        kept_secret(path)
    assert str(error.value).startswith(f"the secret {path} {reason}")
    assert path.read_bytes() == data


def test_sixteen_characters_are_enough(folder):
    assert kept_secret(written(folder, GOOD.encode() + b"\r\n")) == GOOD


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602, 0o620, 0o644])
def test_a_secret_of_ours_that_others_can_open_is_refused(folder, mode):
    path = written(folder, GOOD.encode(), mode)
    with pytest.raises(
        SecretFileError, match=rf"is accessible to other users \(mode {mode:04o}\); remove it"
    ):
        kept_secret(path)


def test_what_is_not_a_regular_file_is_refused_without_waiting(folder):
    path = folder / NAME
    target = folder / "target"
    target.write_text(GOOD)
    target.chmod(0o600)
    path.symlink_to(target)
    with pytest.raises(SecretFileError, match="is a symbolic link"):
        kept_secret(path)
    path.unlink()
    path.symlink_to(folder / "missing")
    with pytest.raises(SecretFileError, match="is a symbolic link"):
        kept_secret(path)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(SecretFileError, match="is not a regular file"):
        kept_secret(path)
    path.unlink()
    path.mkdir(mode=0o700)
    with pytest.raises(SecretFileError, match="is not a regular file"):
        kept_secret(path)


@pytest.mark.parametrize(
    ("owner", "mode", "read_only", "objection"),
    [
        (US, 0o600, False, None),
        (US, 0o400, False, None),
        (US, 0o640, False, "is accessible to other users (mode 0640)"),
        (ROOT, 0o640, False, None),  # an administrator grants it to the group of a service
        (ROOT, 0o644, False, "is accessible to other users (mode 0644)"),
        (ROOT, 0o660, False, "is accessible to other users (mode 0660)"),
        (SOMEBODY, 0o600, False, "belongs to another user (uid 1001)"),
        (SOMEBODY, 0o644, True, None),  # Compose: owner and mode of the host's file
        (ROOT, 0o440, True, None),  # Kubernetes: a secret volume with fsGroup
        (ROOT, 0o644, True, None),  # Kubernetes: a secret volume with its default mode
    ],
)
def test_who_may_own_and_open_a_secret(owner, mode, read_only, objection):
    assert openness(owner, mode, US, read_only) == objection


def test_root_may_not_hand_a_secret_to_its_own_group():
    assert openness(ROOT, 0o640, ROOT, False) == "is accessible to other users (mode 0640)"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_secret_of_another_user_is_refused(folder):
    path = written(folder, GOOD.encode())
    os.chown(path, 65534, 65534)
    with pytest.raises(SecretFileError, match=r"belongs to another user \(uid 65534\)"):
        kept_secret(path)


def test_a_file_of_a_container_is_taken_from_a_read_only_mount(folder):
    """As mounted by Compose: one file, owned by a user unknown in the container, mode 0644."""
    source = folder / "source"
    source.write_text(GOOD)
    source.chmod(0o644)
    path = written(folder, b"")
    mounted = subprocess.run(
        ["mount", "--bind", "-o", "ro", source, path], check=False, capture_output=True
    )
    if os.geteuid() != 0 or mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        os.chown(source, 65534, 65534)
        assert kept_secret(path) == GOOD
    finally:
        subprocess.run(["umount", path], check=True)


def test_a_given_secret_may_be_short_and_linked_but_not_empty(folder):
    path = written(folder, b"short\n", 0o644)
    link = folder / "link"
    link.symlink_to(path)
    assert given_secret(link) == "short"
    path.write_bytes(b"\n")
    with pytest.raises(SecretFileError, match=r"link is empty$"):
        given_secret(link)
    with pytest.raises(SecretFileError, match="cannot be used: No such file"):
        given_secret(folder / "missing")
