"""The launcher, the choice of Java and the fetching of jars, with real tools and no network."""

import fcntl
import functools
import http.server
import os
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.install import locked
from deploy.local.jars import FetchError, fetch
from deploy.local.java import Java, JavaMissingError, find_java
from services.runtime.settings import ROOT

pytestmark = pytest.mark.integration

TIMEOUT_S = 60


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def java_home(path: Path, version: str, modules: str = "jdk.incubator.vector") -> Path:
    """A folder whose `bin/java` answers like a runtime of a version with one module."""
    script(
        path / "bin" / "java",
        f"""
        for argument do
            case $argument in
            --add-modules=*) [ "${{argument#*=}}" = "{modules}" ] || exit 1 ;;
            -version)
                echo "    java.home = {path}" >&2
                echo "    java.specification.version = {version}" >&2 ;;
            *) echo "$argument" ;;
            esac
        done
        """,
    )
    return path


def test_java_home_comes_before_path_and_an_old_one_is_passed_over(tmp_path: Path):
    old, new = java_home(tmp_path / "old", "11"), java_home(tmp_path / "new", "21")
    path = {"PATH": f"{new / 'bin'}:/bin:/usr/bin"}
    assert find_java(tmp_path, {**path, "JAVA_HOME": str(old)}) == Java(new, 21)
    other = java_home(tmp_path / "other", "17")
    assert find_java(tmp_path, {**path, "JAVA_HOME": str(other)}) == Java(other, 17)


def test_a_java_8_which_counts_otherwise_is_too_old(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    home = java_home(tmp_path / "eight", "1.8")
    with pytest.raises(JavaMissingError, match="there is no Java 17 or newer"):
        find_java(tmp_path, {"PATH": "/nowhere", "JAVA_HOME": str(home)})


def test_a_runtime_without_the_vector_module_gets_a_java_that_drops_that_argument(tmp_path: Path):
    real = java_home(tmp_path / "real one", "21", modules="none")
    found = find_java(tmp_path, {"PATH": "/bin:/usr/bin", "JAVA_HOME": str(real)})
    assert found == Java(tmp_path / "java-home", 21)
    arguments = ["--add-modules=jdk.incubator.vector", "-Xmx1g", "two words", ""]
    said = subprocess.run(
        [found.executable, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    assert said.stdout == "-Xmx1g\ntwo words\n\n"
    # A process that was started with this JAVA_HOME comes to the same result.
    again = find_java(tmp_path, found.environment({"PATH": "/bin:/usr/bin"}))
    assert again == found


def test_without_java_of_the_machine_the_packaged_runtime_serves(tmp_path: Path):
    found = find_java(tmp_path, {"PATH": "/nowhere"})
    assert found == Java(tmp_path / "java-home", 21)
    command = [found.executable, "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(command, stderr=subprocess.PIPE, check=False).returncode == 0


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A root whose stamps are right and whose Python says how it was called."""
    root = tmp_path / "root"
    (root / "deploy" / "local").mkdir(parents=True)
    shutil.copy(ROOT / "tidegauge", root)
    (root / "requirements.lock").write_text("tide==1\n")
    (root / "deploy" / "local" / "ivy.xml").write_text("<ivy-module/>")
    script(root / ".venv" / "bin" / "python", 'echo "$PYTHONPATH"\nprintf "[%s]\\n" "$@"\nexit 7\n')
    shutil.copy(root / "requirements.lock", root / ".venv" / "installed.lock")
    (root / ".jars").mkdir()
    shutil.copy(root / "deploy" / "local" / "ivy.xml", root / ".jars" / "installed.xml")
    return root


def launch(command: Path, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    path = os.environ.get("PATH", os.defpath)
    return subprocess.run(
        [command, *arguments],
        cwd="/",
        env={"PATH": path, **environ},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_the_launcher_becomes_the_console_with_the_arguments_as_they_are(installed: Path):
    done = launch(installed / "tidegauge", "sql", "select 'a  b'", PYTHONPATH="/mine")
    lines = ["[-m]", "[services.console]", "[sql]", "[select 'a  b']"]
    assert done.stdout.splitlines() == [f"{installed}:/mine", *lines]
    assert done.stderr == ""
    assert done.returncode == 7


def test_the_launcher_finds_its_folder_through_links(installed: Path, tmp_path: Path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "second").symlink_to("../root/tidegauge")
    (tmp_path / "bin" / "first").symlink_to(tmp_path / "bin" / "second")
    assert launch(tmp_path / "bin" / "first").stdout.splitlines()[0] == str(installed)


def test_a_python_that_is_too_old_ends_with_one_sentence(installed: Path, tmp_path: Path):
    (installed / "requirements.lock").write_text("tide==2\n")
    for name in ("python3", "python3.13", "python3.12", "python3.11"):
        old = 'if [ "$1" = --version ]; then echo Python 3.9.1; else exit 1; fi\n'
        script(tmp_path / "old" / name, old)
    done = launch(installed / "tidegauge", PATH=f"{tmp_path / 'old'}:/bin:/usr/bin")
    expected = "tidegauge: Python 3.11 or newer is needed; python3 is Python 3.9.1\n"
    assert (done.stderr, done.returncode) == (expected, 2)


def test_a_python_of_ones_own_that_is_none_ends_with_one_sentence(installed: Path):
    (installed / ".jars" / "installed.xml").unlink()
    done = launch(installed / "tidegauge", TIDEGAUGE_PYTHON="/nowhere/python")
    expected = "tidegauge: TIDEGAUGE_PYTHON is not Python 3.11 or newer: /nowhere/python\n"
    assert (done.stderr, done.returncode) == (expected, 2)


def test_a_tool_that_outlives_a_killed_installation_still_holds_the_lock(tmp_path: Path):
    lock = locked(tmp_path / "lock")
    tool = subprocess.Popen(
        ["sh", "-c", "read line"], stdin=subprocess.PIPE, close_fds=False, text=True
    )
    lock.close()
    with (tmp_path / "lock").open() as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tool.communicate("\n", timeout=TIMEOUT_S)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch) -> Iterator[Path]:
    """A Maven repository on loopback with one jar, org.example:tide:1.2."""
    folder = tmp_path / "maven" / "org" / "example" / "tide" / "1.2"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "tide-1.2.jar", "w") as jar:
        jar.writestr("tide.txt", "high")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_arguments: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=tmp_path / "maven")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("TIDEGAUGE_MAVEN_REPOSITORY", address)
        yield tmp_path / "maven"
        server.shutdown()


def ivy_file(folder: Path, *names: str) -> Path:
    rows = "".join(
        f'<dependency org="org.example" name="{name}" rev="1.2" conf="broker->default"/>'
        for name in names
    )
    path = folder / "ivy.xml"
    path.write_text(
        '<ivy-module version="2.0"><info organisation="tidegauge" module="jars"/>'
        '<configurations><conf name="broker"/></configurations>'
        f"<dependencies>{rows}</dependencies></ivy-module>"
    )
    return path


def test_jars_come_from_the_mirror_and_leave_a_stamp_and_no_cache(tmp_path: Path, mirror: Path):
    jars, wanted = tmp_path / "jars", ivy_file(tmp_path, "tide")
    (jars / "broker").mkdir(parents=True)
    (jars / "broker" / "of-an-older-list.jar").touch()
    fetch(jars, wanted)
    assert (jars / "installed.xml").read_text() == wanted.read_text()
    assert [path.name for path in (jars / "broker").iterdir()] == ["tide-1.2.jar"]
    assert zipfile.ZipFile(jars / "broker" / "tide-1.2.jar").read("tide.txt") == b"high"
    assert {path.name for path in jars.iterdir()} <= {"broker", "installed.xml", "java-home"}


def test_a_jar_that_is_not_there_is_named_and_what_was_there_stays(tmp_path: Path, mirror: Path):
    jars = tmp_path / "jars"
    fetch(jars, ivy_file(tmp_path, "tide"))
    with pytest.raises(FetchError, match=r"not found: org\.example#ebb;1\.2"):
        fetch(jars, ivy_file(tmp_path, "tide", "ebb"))
    assert (jars / "broker" / "tide-1.2.jar").is_file()
    assert not (jars / "installed.xml").exists()


def test_a_jar_whose_checksum_is_wrong_is_refused(tmp_path: Path, mirror: Path):
    (mirror / "org/example/tide/1.2/tide-1.2.jar.sha1").write_text("0" * 40)
    with pytest.raises(FetchError):
        fetch(tmp_path / "jars", ivy_file(tmp_path, "tide"))
