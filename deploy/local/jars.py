"""Fetch the jars of a lock, each into the folder of its use, and verify them.

    python -m deploy.local.jars          fetch missing jars into `.jars`
    python -m deploy.local.jars lock     write the SHA-256 of each jar, after a change of a lock

A lock names each jar on a line, so that nothing has to be resolved: its folder, its Maven
coordinates (`group:name:version` or `group:name:version:classifier`) and its SHA-256.

    broker org.apache.kafka:kafka-clients:4.3.1 52501b7b47510c66…

Jars come from Maven Central or the repository in TIDEGAUGE_MAVEN_REPOSITORY, by the proxies and the
certificates of Python's environment. What is complete of an interrupted fetch is kept in `.new`.
The new folders replace the old ones when every jar has the SHA-256 of the lock.

Standard library only, since the system's Python fetches the jars while packages are installed.
"""

import hashlib
import http.client
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from deploy.local.install import MIRROR, insecure, is_secure

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LOCK_FILE = HERE / "jars.lock"
BENCH_FILE = HERE / "bench-jars.lock"
STAMP = "installed.lock"
CENTRAL = "https://repo1.maven.org/maven2"
AT_ONCE = 8
TRIES = 3
ANSWER_TIMEOUT_S = 60
FETCH_TIMEOUT_S = 1800
MOST_BYTES = 1024**3
CHUNK_BYTES = 1024**2
_WORD = r"[A-Za-z0-9_][\w.-]*"
_LINE = re.compile(
    rf"({_WORD}) +({_WORD}):({_WORD}):({_WORD})(?::({_WORD}))?(?: +([0-9a-f]{{64}}))?", re.ASCII
)


class JarsError(Exception):
    """The jars differ from the lock; the text is one sentence."""


class FetchError(Exception):
    """The jars cannot be fetched; the text is one sentence."""


@dataclass(frozen=True)
class Jar:
    """A line of a lock. folder: of its use, such as `broker`. sha256: empty if it is not known."""

    folder: str
    group: str
    name: str
    version: str
    classifier: str
    sha256: str

    @property
    def coordinates(self) -> str:
        """Its Maven coordinates, for example `org.apache.kafka:kafka-clients:3.9.1`."""
        return ":".join(filter(None, (self.group, self.name, self.version, self.classifier)))

    @property
    def path(self) -> Path:
        """Its place below the folders, for example `broker/kafka_2.13-4.3.1.jar`."""
        return Path(self.folder, self._file)

    @property
    def address(self) -> str:
        """Its place in a Maven repository."""
        return "/".join((*self.group.split("."), self.name, self.version, self._file))

    @property
    def _file(self) -> str:
        return "-".join(filter(None, (self.name, self.version, self.classifier))) + ".jar"


def read_jars_lock(text: str) -> dict[Path, Jar]:
    """The jars of a lock by their paths. Raises FetchError, which has the line."""
    result: dict[Path, Jar] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            jar = _jar(line)
            if jar.path in result:
                raise FetchError(f"a lock names {jar.path} twice")
            result[jar.path] = jar
    return result


def _jar(line: str) -> Jar:
    match = _LINE.fullmatch(line.strip())
    if match is None:
        raise FetchError(f"a lock of jars has lines FOLDER GROUP:NAME:VERSION SHA256, not {line!r}")
    return Jar(*(each or "" for each in match.groups()))


def jars_lock() -> dict[Path, Jar]:
    """The lock of this repository's jars."""
    return read_jars_lock(LOCK_FILE.read_text())


def verify_jars(jars: Path, lock: Mapping[Path, Jar]) -> None:
    """Raise JarsError unless the folders of the lock contain exactly its jars, byte for byte."""
    for path, jar in lock.items():
        if not (jars / path).is_file():
            raise JarsError(f"{jars / path} is missing")
        if _sha256(jars / path) != jar.sha256:
            raise JarsError(_modified(jars / path))
    for folder in sorted({path.parent for path in lock}):
        for result in sorted((jars / folder).iterdir()):
            if result.relative_to(jars) not in lock:
                raise JarsError(f"{result} is not in the lock of the jars")


def mend(jars: Path) -> str:
    """How to repair jars that differ from the lock."""
    return f"remove {jars / STAMP} and start ./tidegauge again, which downloads the jars again"


def fetch(jars: Path, lock_file: Path) -> None:
    """Make `jars` contain the folders of a lock, and the stamp, which is a copy of it. Only jars
    that are missing or wrong are fetched. Raises FetchError; existing jars are then kept, without
    the stamp."""
    text = lock_file.read_text()
    lock = read_jars_lock(text)
    for jar in lock.values():
        if not jar.sha256:
            raise FetchError(f"{lock_file.name} has no SHA-256 of {jar.coordinates}")
    jars.mkdir(parents=True, exist_ok=True)
    (jars / STAMP).unlink(missing_ok=True)
    try:
        verify_jars(jars, lock)
    except JarsError:
        _replace(jars, lock)
    (jars / f".{STAMP}").write_text(text)
    (jars / f".{STAMP}").replace(jars / STAMP)


def _replace(jars: Path, lock: Mapping[Path, Jar]) -> None:
    """Complete all jars in a separate folder, each verified, and replace the existing ones."""
    new = jars / ".new"
    for path in [each for each in new.rglob("*") if each.is_file()]:
        if not _is_right(path, lock.get(path.relative_to(new))):
            path.unlink()
    for path, jar in lock.items():
        (new / path).parent.mkdir(parents=True, exist_ok=True)
        if not (new / path).exists() and _is_right(jars / path, jar):
            shutil.copyfile(jars / path, new / path)
    try:
        download([jar for path, jar in lock.items() if not (new / path).exists()], new)
    except JarsError as error:
        shutil.rmtree(new)
        raise FetchError(f"{error}; no jar was installed") from error
    for folder in sorted({path.parent for path in lock}):
        shutil.rmtree(jars / folder, ignore_errors=True)
        (new / folder).rename(jars / folder)
    shutil.rmtree(new)


def _is_right(path: Path, jar: Jar | None) -> bool:
    return jar is not None and path.is_file() and _sha256(path) == jar.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _modified(path: Path) -> str:
    return f"{path} is truncated or modified: its SHA-256 is not the pinned one"


def download(jars: Iterable[Jar], folder: Path) -> None:
    """Download jars below a folder, several at once. Raises FetchError, and JarsError for a jar
    that has not its SHA-256; a file has its name when it is complete."""
    base, opener = _repository(os.environ.get(MIRROR, ""))
    limit = _Limit(time.monotonic() + FETCH_TIMEOUT_S)

    def one(jar: Jar) -> None:
        part = (folder / jar.path).with_suffix(".part")
        part.parent.mkdir(parents=True, exist_ok=True)
        _with_retries(jar, limit, lambda: _copy(opener, f"{base}/{jar.address}", part, limit))
        if jar.sha256 and _sha256(part) != jar.sha256:
            raise JarsError(_modified(folder / jar.path))
        part.replace(folder / jar.path)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for done in as_completed([pool.submit(one, jar) for jar in jars]):
                done.result()
        finally:
            limit.is_over.set()
            pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _Limit:
    """When downloads end that are not complete: at a time, or when one of them has failed."""

    until_s: float
    is_over: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raises FetchError."""
        if self.is_over.is_set():
            raise FetchError("another jar cannot be downloaded")
        if time.monotonic() > self.until_s:
            minutes = FETCH_TIMEOUT_S // 60
            raise FetchError(f"the jars were not downloaded within {minutes} minutes")


def _with_retries(jar: Jar, limit: _Limit, attempt: Callable[[], None]) -> None:
    """Repeat what failed for a reason that may pass. Raises FetchError."""
    for number in range(1, TRIES + 1):
        try:
            attempt()
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == HTTPStatus.NOT_FOUND:
                raise FetchError(f"not found: {jar.coordinates}") from error
            reason = f"the repository answers {error.code} {error.reason}"
            may_pass = error.code >= 500 or error.code == HTTPStatus.TOO_MANY_REQUESTS
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            if isinstance(cause, FileNotFoundError):  # of a repository in a folder
                raise FetchError(f"not found: {jar.coordinates}") from error
            reason, may_pass = str(cause), True
        if number == TRIES or not may_pass:
            raise FetchError(f"{jar.coordinates} cannot be downloaded: {reason}")
        limit.is_over.wait(number)
        limit.check()


def _copy(opener: urllib.request.OpenerDirector, address: str, to: Path, limit: _Limit) -> None:
    """Raises OSError, HTTPException and FetchError."""
    request = urllib.request.Request(address, headers={"User-Agent": "tidegauge"})
    with opener.open(request, timeout=ANSWER_TIMEOUT_S) as answer, to.open("wb") as file:
        # What is there: a whole chunk of a slow answer would be waited for beyond the limit.
        read = getattr(answer, "read1", answer.read)
        while data := read(CHUNK_BYTES):
            file.write(data)
            if file.tell() > MOST_BYTES:
                raise FetchError(f"{address.rpartition('/')[2]} has more than {MOST_BYTES} bytes")
            limit.check()
        length = answer.headers.get("Content-Length")
        if length not in (None, str(file.tell())):
            raise ConnectionError("the connection ended early")


class _Redirections(urllib.request.HTTPRedirectHandler):
    """Follows those to secure addresses."""

    def redirect_request(  # noqa: PLR0917
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not is_secure(newurl):
            raise FetchError("the repository redirects to an address that is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _repository(mirror: str) -> tuple[str, urllib.request.OpenerDirector]:
    """The address of the repository, and what opens the addresses below it, with the user and
    password in that of a mirror. Raises FetchError for an insecure one."""
    if mirror and not is_secure(mirror):
        raise FetchError(insecure(MIRROR))
    base = (mirror or CENTRAL).rstrip("/")
    url = urlsplit(base)
    passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
    if url.username is not None:
        base = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()
        password = unquote(url.password or "")
        passwords.add_password(None, base, unquote(url.username), password, is_authenticated=True)
    proxies = urllib.request.getproxies()
    of_all = proxies.get("all", "")
    if of_all.startswith("http"):
        proxies = {"http": of_all, "https": of_all, **proxies}
    basic = urllib.request.HTTPBasicAuthHandler(passwords)
    proxy = urllib.request.ProxyHandler(proxies)
    return base, urllib.request.build_opener(_Redirections, basic, proxy)


def write_lock(lock_file: Path) -> None:
    """Fetch the jars of a lock again and write the SHA-256 of each. Raises FetchError."""
    lines = lock_file.read_text().splitlines()
    lock = read_jars_lock("\n".join(lines))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        download([replace(jar, sha256="") for jar in lock.values()], folder)
        for number, line in enumerate(lines):
            if line and not line.startswith("#"):
                jar = _jar(line)
                lines[number] = f"{jar.folder} {jar.coordinates} {_sha256(folder / jar.path)}"
    lock_file.write_text("\n".join(lines) + "\n")


def main(arguments: list[str]) -> int:
    """Fetch the jars of the repository, or write its locks."""
    try:
        if arguments == ["lock"]:
            for lock_file in (LOCK_FILE, BENCH_FILE):
                write_lock(lock_file)
        else:
            fetch(ROOT / ".jars", LOCK_FILE)
    except (FetchError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
