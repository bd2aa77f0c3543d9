"""The launcher, the selection of Java and the download of jars, with real tools and no network."""

import base64
import fcntl
import functools
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

from deploy.local.install import locked
from deploy.local.jars import FetchError, fetch, jars_lock, write_lock
from deploy.local.java import Java, JavaMissingError, find_java
from deploy.local.stack import Stack, StackError
from deploy.local.startup import check_jars
from services.console.doctor import Finding, examine
from services.runtime.settings import ROOT, ServiceSettings
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.integration
NO_PACKAGE = "no_such_package"

TIMEOUT_S = 60


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def java_home(path: Path, version: str, modules: str = "jdk.incubator.vector") -> Path:
    """A folder whose `bin/java` responds like a Java runtime of a version with one module."""
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
    home = java_home(tmp_path / "eight", "1.8")
    with pytest.raises(JavaMissingError, match="found no Java 17 or newer"):
        find_java(tmp_path, {"PATH": "/nowhere", "JAVA_HOME": str(home)}, NO_PACKAGE)


def test_a_runtime_without_the_vector_module_gets_a_java_that_drops_that_argument(tmp_path: Path):
    real = java_home(tmp_path / "real one", "21", modules="none")
    found = find_java(tmp_path, {"PATH": "/bin:/usr/bin", "JAVA_HOME": str(real)})
    assert found == Java(tmp_path / "java-home", 21)
    arguments = ["--add-modules=jdk.incubator.vector", "-Xmx1g", "two words", ""]
    said = subprocess.run(
        [found.executable, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    assert said.stdout == "-Xmx1g\ntwo words\n\n"
    # A process started with this JAVA_HOME finds the same Java.
    again = find_java(tmp_path, found.environment({"PATH": "/bin:/usr/bin"}))
    assert again == found


def test_without_java_of_the_machine_the_packaged_runtime_serves(tmp_path: Path):
    found = find_java(tmp_path, {"PATH": "/nowhere"})
    assert found == Java(tmp_path / "java-home", 21)
    command = [found.executable, "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(command, stderr=subprocess.PIPE, check=False).returncode == 0


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A root with valid stamps, whose Python prints its arguments."""
    root = tmp_path / "root"
    (root / "deploy" / "local").mkdir(parents=True)
    shutil.copy(ROOT / "tidegauge", root)
    (root / "requirements.lock").write_text("tide==1\n")
    (root / "deploy" / "local" / "jars.lock").write_text("# no jars\n")
    script(root / ".venv" / "bin" / "python", 'echo "$PYTHONPATH"\nprintf "[%s]\\n" "$@"\nexit 7\n')
    shutil.copy(root / "requirements.lock", root / ".venv" / "installed.lock")
    (root / ".jars").mkdir()
    shutil.copy(root / "deploy" / "local" / "jars.lock", root / ".jars" / "installed.lock")
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
    (installed / ".jars" / "installed.lock").unlink()
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


HIGH_WATER = "b997736f73e60bdfc6fde41d9f7746383168e7468ae085ac77fa9dd829c6c39a"


class Repository(http.server.SimpleHTTPRequestHandler):
    """A Maven repository in a folder, also as the proxy of another one. Answers the first requests
    with `failures`, an error code or a number of bytes after which the connection ends. endless: a
    file that goes on as long as the server."""

    failures: ClassVar[list[int]] = []
    authorization: ClassVar[list[str | None]] = []
    location = ""
    endless = "/nothing"
    length = "10"

    def do_GET(self) -> None:
        self.authorization.append(self.headers.get("Authorization"))
        self.path = urlsplit(self.path).path
        failure = self.failures.pop(0) if self.failures else None
        if self.path.endswith(self.endless):
            self.send_response(200)
            self.send_header("Content-Length", "1000000000")
            self.end_headers()
            with suppress(OSError):
                while not self.server.is_over.wait(0.05):
                    self.wfile.write(b"h")
        elif self.location:
            self.send_response(302)
            self.send_header("Location", self.location)
            self.end_headers()
        elif failure is None:
            super().do_GET()
        elif failure >= 400:
            self.send_error(failure)
        else:
            self.send_response(200)
            self.send_header("Content-Length", self.length)
            self.end_headers()
            self.wfile.write(b"high water"[:failure])

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[type[Repository]]:
    """A repository on loopback with one jar, org.example:tide:1.2. `address` is its own."""
    folder = tmp_path / "maven" / "org" / "example" / "tide" / "1.2"
    folder.mkdir(parents=True)
    (folder / "tide-1.2.jar").write_text("high water")

    class Handler(Repository):
        failures: ClassVar[list[int]] = []
        authorization: ClassVar[list[str | None]] = []
        address = ""

    class Server(http.server.ThreadingHTTPServer):
        is_over = threading.Event()

    handler = functools.partial(Handler, directory=tmp_path / "maven")
    with Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        Handler.address = f"http://127.0.0.1:{server.server_port}"
        yield Handler
        Server.is_over.set()
        server.shutdown()


@pytest.fixture
def mirror(tmp_path: Path, repository: type[Repository], monkeypatch) -> Path:
    """The folder of a repository that is the mirror."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("TIDEGAUGE_MAVEN_REPOSITORY", repository.address)
    return tmp_path / "maven"


def lock_of(folder: Path, *names: str, digest: str = HIGH_WATER) -> Path:
    """A lock with the same digest for every jar."""
    path = folder / "jars.lock"
    lines = "".join(f"broker org.example:{name}:1.2 {digest}\n" for name in names)
    path.write_text("# a comment\n" + lines)
    return path


def test_jars_come_from_the_mirror_and_leave_a_stamp_and_no_cache(tmp_path: Path, mirror: Path):
    jars, wanted = tmp_path / "jars", lock_of(tmp_path, "tide")
    (jars / "broker").mkdir(parents=True)
    (jars / "broker" / "of-an-older-list.jar").touch()
    fetch(jars, wanted)
    assert (jars / "installed.lock").read_text() == wanted.read_text()
    assert [path.name for path in (jars / "broker").iterdir()] == ["tide-1.2.jar"]
    assert (jars / "broker" / "tide-1.2.jar").read_text() == "high water"
    assert {path.name for path in jars.iterdir()} == {"broker", "installed.lock"}


def test_jars_that_are_there_and_right_are_not_fetched_again(tmp_path: Path, mirror: Path):
    jars, wanted = tmp_path / "jars", lock_of(tmp_path, "tide")
    fetch(jars, wanted)
    (jars / "installed.lock").unlink()
    shutil.rmtree(mirror)
    fetch(jars, wanted)
    assert (jars / "installed.lock").is_file()


def test_a_longer_list_fetches_what_is_new(
    tmp_path: Path, mirror: Path, repository: type[Repository]
):
    jars = tmp_path / "jars"
    fetch(jars, lock_of(tmp_path, "tide"))
    (mirror / "org/example/tide").rename(mirror / "org/example/ebb")
    served = mirror / "org/example/ebb/1.2"
    (served / "tide-1.2.jar").rename(served / "ebb-1.2.jar")
    fetch(jars, lock_of(tmp_path, "tide", "ebb"))
    names = {path.name for path in (jars / "broker").iterdir()}
    assert names == {"tide-1.2.jar", "ebb-1.2.jar"}
    assert len(repository.authorization) == 2


def test_a_jar_that_is_not_there_is_named_and_what_was_there_stays(tmp_path: Path, mirror: Path):
    jars = tmp_path / "jars"
    fetch(jars, lock_of(tmp_path, "tide"))
    with pytest.raises(FetchError, match=r"^not found: org\.example:ebb:1\.2$"):
        fetch(jars, lock_of(tmp_path, "tide", "ebb"))
    assert (jars / "broker" / "tide-1.2.jar").is_file()
    assert not (jars / "installed.lock").exists()


def test_what_an_interrupted_fetch_completed_is_kept_and_the_rest_is_not(
    tmp_path: Path, mirror: Path, repository: type[Repository]
):
    jars = tmp_path / "jars"
    (jars / ".new" / "broker").mkdir(parents=True)
    (jars / ".new" / "broker" / "ebb-1.2.jar").write_text("high water")
    (jars / ".new" / "broker" / "tide-1.2.jar").write_text("high wat")
    (jars / ".new" / "broker" / "flood-1.2.part").write_text("high wat")
    fetch(jars, lock_of(tmp_path, "tide", "ebb"))
    names = {path.name for path in (jars / "broker").iterdir()}
    assert names == {"tide-1.2.jar", "ebb-1.2.jar"}
    assert (jars / "broker" / "tide-1.2.jar").read_text() == "high water"
    assert len(repository.authorization) == 1


@pytest.mark.parametrize("failure", [503, 429, 4])
def test_a_failure_that_may_pass_is_tried_again(
    tmp_path: Path, mirror: Path, repository: type[Repository], failure: int
):
    repository.failures.append(failure)
    fetch(tmp_path / "jars", lock_of(tmp_path, "tide"))
    assert (tmp_path / "jars" / "broker" / "tide-1.2.jar").read_text() == "high water"


def test_a_repository_that_refuses_is_told_at_once(
    tmp_path: Path, mirror: Path, repository: type[Repository]
):
    repository.failures.append(403)
    expected = (
        r"^org\.example:tide:1\.2 cannot be downloaded: the repository answers 403 Forbidden$"
    )
    with pytest.raises(FetchError, match=expected):
        fetch(tmp_path / "jars", lock_of(tmp_path, "tide"))
    assert len(repository.authorization) == 1


@pytest.mark.parametrize("names", [("flood", "ebb"), ("ebb", "flood")])
def test_the_failure_of_one_jar_ends_the_download_of_the_others(
    tmp_path: Path, mirror: Path, repository: type[Repository], names: tuple[str, str]
):
    repository.endless = "ebb-1.2.jar"
    with pytest.raises(FetchError, match=r"^not found: org\.example:flood:1\.2$"):
        fetch(tmp_path / "jars", lock_of(tmp_path, *names))


def test_a_length_that_is_no_number_is_told(
    tmp_path: Path, mirror: Path, repository: type[Repository]
):
    repository.length = "many"
    repository.failures += [10, 10, 10]
    with pytest.raises(FetchError, match=r"tide:1\.2 cannot be downloaded: the connection ended"):
        fetch(tmp_path / "jars", lock_of(tmp_path, "tide"))


def test_a_repository_that_serves_another_jar_changes_nothing(tmp_path: Path, mirror: Path):
    jars, wanted = tmp_path / "jars", lock_of(tmp_path, "tide")
    served = mirror / "org/example/tide/1.2/tide-1.2.jar"
    served.write_text("high wat")
    with pytest.raises(
        FetchError, match=r"tide-1\.2\.jar is truncated or modified: .*no jar was inst"
    ):
        fetch(jars, wanted)
    assert list(jars.iterdir()) == []
    # A rejected jar is not kept: the next start downloads it again.
    served.write_text("high water")
    fetch(jars, wanted)
    assert (jars / "broker" / "tide-1.2.jar").read_text() == "high water"


def test_a_lock_without_the_sha_256_of_a_jar_is_refused(tmp_path: Path, mirror: Path):
    wanted = lock_of(tmp_path, "tide", digest="")
    with pytest.raises(FetchError, match=r"^jars\.lock has no SHA-256 of org\.example:tide:1\.2$"):
        fetch(tmp_path / "jars", wanted)


def test_a_mirror_elsewhere_must_be_https(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_MAVEN_REPOSITORY", "http://user:secret@repository.example/maven")
    expected = (
        "TIDEGAUGE_MAVEN_REPOSITORY must begin with https:// (http:// serves on loopback only)"
    )
    with pytest.raises(FetchError) as refused:
        fetch(tmp_path / "jars", lock_of(tmp_path, "tide"))
    assert str(refused.value) == expected


def test_so_must_be_what_it_redirects_to(
    tmp_path: Path, mirror: Path, repository: type[Repository]
):
    repository.location = "http://repository.example/maven/tide-1.2.jar"
    expected = "^the repository redirects to an address that is not https$"
    with pytest.raises(FetchError, match=expected):
        fetch(tmp_path / "jars", lock_of(tmp_path, "tide"))


def test_a_mirror_gets_the_user_and_password_of_its_address(
    tmp_path: Path, mirror: Path, repository: type[Repository], monkeypatch
):
    address = repository.address.replace("://", "://user:s%40cret@")
    monkeypatch.setenv("TIDEGAUGE_MAVEN_REPOSITORY", address)
    fetch(tmp_path / "jars", lock_of(tmp_path, "tide"))
    assert repository.authorization == ["Basic " + base64.b64encode(b"user:s@cret").decode()]


@pytest.mark.parametrize("name", ["http_proxy", "ALL_PROXY"])
def test_a_proxy_is_asked(
    tmp_path: Path, mirror: Path, repository: type[Repository], monkeypatch, name: str
):
    monkeypatch.setenv(name, repository.address)
    monkeypatch.setenv("TIDEGAUGE_MAVEN_REPOSITORY", "http://localhost:9/")
    monkeypatch.setenv("no_proxy", "")
    fetch(tmp_path / "jars", lock_of(tmp_path, "tide"))
    assert (tmp_path / "jars" / "broker" / "tide-1.2.jar").read_text() == "high water"


def test_a_mirror_may_be_a_folder(tmp_path: Path, mirror: Path, monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_MAVEN_REPOSITORY", mirror.as_uri())
    fetch(tmp_path / "jars", lock_of(tmp_path, "tide"))
    with pytest.raises(FetchError, match=r"^not found: org\.example:ebb:1\.2$"):
        fetch(tmp_path / "jars", lock_of(tmp_path, "ebb"))


def test_the_lock_holds_what_the_repository_serves(tmp_path: Path, mirror: Path):
    wanted = lock_of(tmp_path, "tide", digest="0" * 64)
    expected = lock_of(tmp_path, "tide").read_text()
    for digest in ("0" * 64, ""):
        write_lock(lock_of(tmp_path, "tide", digest=digest))
        assert wanted.read_text() == expected


@pytest.fixture
def own_jars(tmp_path: Path) -> Path:
    """A copy of this repository's jars."""
    for path in jars_lock():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        os.link(ROOT / ".jars" / path, tmp_path / path)
    return tmp_path


def cut_off(path: Path) -> None:
    """Truncate a file to its first half, like a crash or a full disk."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[: len(data) // 2])


def test_a_jar_that_is_cut_off_later_is_told_by_the_start_and_by_doctor(own_jars: Path):
    settings = ServiceSettings(
        data=own_jars / "data", jars=own_jars, base_port=free_base_port(), host="127.0.0.1"
    )
    jar = own_jars / "broker" / "kafka-raft-4.3.1.jar"
    cut_off(jar)
    wrong = f"{jar} is truncated or modified: its SHA-256 is not the pinned one"
    advice = (
        f"remove {own_jars}/installed.lock and start ./tidegauge again, "
        "which downloads the jars again"
    )
    with pytest.raises(StackError) as refused:
        Stack(settings).up()
    assert str(refused.value) == f"{wrong}; {advice}"
    assert not (own_jars / "data" / "stack.json").exists()
    assert Finding(False, wrong, advice) in list(examine(settings, running=False))


def test_whole_jars_are_right_and_a_foreign_or_missing_one_is_told(own_jars: Path):
    check_jars(own_jars)
    (own_jars / "broker" / "aaa.jar").touch()
    with pytest.raises(StackError, match=r"broker/aaa\.jar is not in the lock of the jars"):
        check_jars(own_jars)
    (own_jars / "spark" / "kafka-clients-3.9.1.jar").unlink()
    with pytest.raises(StackError, match=r"spark/kafka-clients-3\.9\.1\.jar is missing; remove "):
        check_jars(own_jars)
