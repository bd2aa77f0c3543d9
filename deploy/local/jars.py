"""Fetch the jars listed in `ivy.xml` into `.jars`, a folder per use, and verify them.

    python -m deploy.local.jars           fetch missing jars
    python -m deploy.local.jars lock      write both locks, after a change of an Ivy file

Ivy is part of pyspark. Its cache in `.jars/.ivy` is kept until everything is fetched, so an
interrupted fetch is resumed. The new folders replace the old ones when they are complete and every
jar has the SHA-256 of `ivy.lock`. Java gets the certificates that Python trusts and the proxies of
the environment, so that a mirror or proxy for packages also works for jars.

`ivy.lock` has the SHA-256 of every jar: it is to `ivy.xml` what requirements.lock is to packages.

The format is that of sha256sum, so the same check works without Tidegauge:

    cd .jars && sha256sum --check ../deploy/local/ivy.lock
"""

import hashlib
import importlib.util
import os
import shutil
import ssl
import struct
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

from deploy.local.install import MIRROR, insecure, is_secure
from deploy.local.java import Java, JavaMissingError, find_java
from services.runtime.before_install import without_jvm_options

HERE = Path(__file__).resolve().parent
LOCK_FILE = HERE / "ivy.lock"
STAMP = "installed.lock"
HEAD = """\
# SHA-256 of the jars of {ivy_file}. Written by the following command:
#    .venv/bin/python -m deploy.local.jars lock
"""
ROOT = Path(__file__).resolve().parents[2]
IVY_FILE = HERE / "ivy.xml"
BENCH_FILE = HERE / "bench.xml"
FETCH_TIMEOUT_S = 1800
STORE_PASSWORD = "changeit"
_HEAD = struct.Struct(">III")
_MAGIC = 0xFEEDFEED
_VERSION = 2
_TRUSTED = 2


class JarsError(Exception):
    """The jars differ from the lock; the text is one sentence."""


def read_jars_lock(text: str) -> dict[Path, str]:
    """The SHA-256 by path, such as `broker/kafka_2.13-4.3.1.jar`."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {Path(path): digest for digest, _, path in (line.partition("  ") for line in lines)}


def jars_lock_text(jars: Path, paths: Iterable[Path], ivy_file: str) -> str:
    """A lock of files below `jars`; ivy_file: name of the file that lists them."""
    lines = (f"{_sha256(jars / path)}  {path.as_posix()}\n" for path in sorted(paths))
    return HEAD.format(ivy_file=ivy_file) + "".join(lines)


def verify_jars(jars: Path, lock: Mapping[Path, str]) -> None:
    """Raise JarsError unless the folders of the lock contain exactly its jars, byte for byte."""
    for path, digest in lock.items():
        if not (jars / path).is_file():
            raise JarsError(f"{jars / path} is missing")
        if _sha256(jars / path) != digest:
            raise JarsError(
                f"{jars / path} is truncated or modified: its SHA-256 is not the pinned one"
            )
    for folder in sorted({path.parent for path in lock}):
        for result in sorted((jars / folder).iterdir()):
            if result.relative_to(jars) not in lock:
                raise JarsError(f"{result} is not in the lock of the jars")


def jars_lock() -> dict[Path, str]:
    """The lock of this repository's jars."""
    return read_jars_lock(LOCK_FILE.read_text())


def mend(jars: Path) -> str:
    """How to repair jars that differ from the lock."""
    return f"remove {jars / STAMP} and start ./tidegauge again, which downloads the jars again"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def trusted_certificates() -> list[bytes]:
    """The authorities that Python trusts, in DER (SSL_CERT_FILE overrides them)."""
    return ssl.create_default_context().get_ca_certs(binary_form=True)


def trust_store(certificates: Sequence[bytes], password: str) -> bytes:
    """A JKS file with the certificates, protected against change by `password`.

    The format is JKS version 2, integers big-endian: the magic FEEDFEED, the version, the count;
    per entry the tag 2 (trusted certificate), an alias, a time in ms, "X.509" and the certificate
    in DER; finally the SHA-1 of password (UTF-16), the phrase "Mighty Aphrodite" and everything
    before.
    """
    entries = b"".join(_entry(index, data) for index, data in enumerate(certificates))
    store = _HEAD.pack(_MAGIC, _VERSION, len(certificates)) + entries
    key = password.encode("utf-16-be") + b"Mighty Aphrodite"
    return store + hashlib.sha1(key + store, usedforsecurity=False).digest()


def _entry(index: int, certificate: bytes) -> bytes:
    head = struct.pack(">I", _TRUSTED) + _text(f"authority-{index}") + struct.pack(">Q", 0)
    return head + _text("X.509") + struct.pack(">I", len(certificate)) + certificate


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">H", len(data)) + data


class FetchError(Exception):
    """The jars cannot be fetched; the text is one sentence."""


def main(arguments: list[str]) -> int:
    """Fetch the jars of the repository, or write its locks."""
    try:
        if arguments == ["lock"]:
            for ivy_file in (IVY_FILE, BENCH_FILE):
                write_lock(ROOT / ".jars", ivy_file)
        else:
            fetch(ROOT / ".jars", IVY_FILE)
    except (FetchError, JavaMissingError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def fetch(jars: Path, ivy_file: Path) -> None:
    """Make `jars` contain one folder per configuration of `ivy_file`, as in its lock, and the
    stamp.

    Correct existing jars are not fetched again. Raises FetchError; existing jars are then kept,
    without the stamp.
    """
    lock_file = ivy_file.with_suffix(".lock")
    lock = read_jars_lock(lock_file.read_text())
    if set(lock) != set(jar_paths(ivy_file)):
        raise FetchError(
            f"{lock_file.name} is not the lock of {ivy_file.name};"
            " run: .venv/bin/python -m deploy.local.jars lock"
        )
    jars.mkdir(parents=True, exist_ok=True)
    (jars / STAMP).unlink(missing_ok=True)
    try:
        verify_jars(jars, lock)
    except JarsError:
        _replace(jars, ivy_file, lock)
    shutil.copyfile(lock_file, jars / f".{STAMP}")
    (jars / f".{STAMP}").replace(jars / STAMP)


def _replace(jars: Path, ivy_file: Path, lock: dict[Path, str]) -> None:
    """Fetch all jars into a separate folder, verify them, and replace the existing ones."""
    new, cache = jars / ".new", jars / ".ivy"
    shutil.rmtree(new, ignore_errors=True)
    _run_ivy(find_java(jars), cache, ivy_file, new)
    try:
        verify_jars(new, lock)
        for folder in sorted({path.parent for path in lock}):
            shutil.rmtree(jars / folder, ignore_errors=True)
            (new / folder).rename(jars / folder)
    except JarsError as error:
        raise FetchError(f"{error}; no jar was installed") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(cache, ignore_errors=True)


def write_lock(jars: Path, ivy_file: Path) -> None:
    """Fetch the jars of an Ivy file again and write its lock. Raises FetchError."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run_ivy(find_java(jars), folder / ".ivy", ivy_file, folder)
        text = jars_lock_text(folder, jar_paths(ivy_file), ivy_file.name)
    ivy_file.with_suffix(".lock").write_text(text)


def jar_paths(ivy_file: Path) -> tuple[Path, ...]:
    """Path of each jar of an Ivy file, for example `broker/kafka_2.13-4.3.1.jar`."""
    return tuple(path for path, *_coordinates in ivy_dependencies(ivy_file))


def ivy_dependencies(ivy_file: Path) -> tuple[tuple[Path, str, str, str], ...]:
    """Every jar of an Ivy file: path, group, name and version."""
    result = []
    for dependency in ElementTree.parse(ivy_file).getroot().iter("dependency"):
        group, name, version, conf = (
            dependency.attrib[key] for key in ("org", "name", "rev", "conf")
        )
        path = Path(conf.partition("->")[0], f"{name}-{version}.jar")
        result.append((path, group, name, version))
    return tuple(result)


def _run_ivy(
    java: Java, cache: Path, ivy_file: Path, new: Path, timeout_s: float = FETCH_TIMEOUT_S
) -> None:
    cache.mkdir(exist_ok=True)
    pattern = f"{new}/[conf]/[artifact]-[revision].[ext]"
    options = [*_trust_options(cache), *_proxy_options(), *_mirror_options()]
    command = [str(java.executable), *options, "-cp", str(_ivy_jar()), "org.apache.ivy.Main"]
    command += ["-settings", str(HERE / "ivysettings.xml"), "-cache", str(cache)]
    command += ["-ivy", str(ivy_file), "-retrieve", pattern]
    try:
        done = subprocess.run(
            command,
            env=without_jvm_options(os.environ),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"no jars were downloaded within {timeout_s / 60:.0f} minutes") from error
    if done.returncode != 0:
        raise FetchError(ivy_reason(done.stdout + done.stderr))


def ivy_reason(output: str) -> str:
    """The line of Ivy's output with the error."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" :\t")]
    for telling in ("No space left", "Server access error", "Host ", "not found", "Exception"):
        result = [line for line in lines if telling in line]
        if result:
            return result[0].strip(": ")
    return lines[-1] if lines else "no output from Ivy"


def _ivy_jar() -> Path:
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        raise FetchError("the package pyspark, which contains Ivy, is not installed")
    result = sorted((Path(package.origin).parent / "jars").glob("ivy-*.jar"))
    if not result:
        raise FetchError("the package pyspark contains no Ivy jar")
    return result[-1]


def _trust_options(folder: Path) -> list[str]:
    """Options that make Java trust Python's certificates; none if Python has none."""
    certificates = trusted_certificates()
    if not certificates:
        return []
    path = folder / "trusted.jks"
    path.write_bytes(trust_store(certificates, STORE_PASSWORD))
    return [
        f"-Djavax.net.ssl.trustStore={path}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={STORE_PASSWORD}",
    ]


def _proxy_options() -> list[str]:
    """The proxies of the environment (`https_proxy` etc.) as Java options."""
    options = []
    for scheme in ("http", "https"):
        proxy = urlsplit(urllib.request.getproxies().get(scheme, ""))
        if proxy.hostname:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            options.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    return options


def _mirror_options() -> list[str]:
    mirror = os.environ.get(MIRROR)
    if not mirror:
        return []
    if not is_secure(mirror):
        raise FetchError(insecure(MIRROR))
    return ["-Dtidegauge.resolver=mirror", f"-Dtidegauge.repository={mirror.rstrip('/')}/"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
