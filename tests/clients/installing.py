"""Installs and builds each client's program into `.clients`, from the locks beside its source.

Packages come from the registries of their own tools; a lock names each with its hash. What is
installed already is kept, so that a second run needs no network.
"""

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

from deploy.local.engines import COMPILER_OPTIONS, find_uv
from deploy.local.install import locked
from deploy.local.jars import fetch
from deploy.local.java import JavaMissingError, find_java
from services.runtime.settings import ROOT
from tests.clients.clients import Client

SOURCES: Final = ROOT / "tests" / "clients"
INSTALLED: Final = ROOT / ".clients"
# What must be on the PATH; a Java runtime comes with the packages.
TOOLS: Final = {
    "go": ("go", "the Go toolchain"),
    "node": ("npm", "Node.js with npm"),
    "cargo": ("cargo", "the Rust toolchain with cargo"),
    "curl": ("curl", "curl"),
}
BUILD_TIMEOUT_S: Final = 900


def missing_tool(client: Client) -> str:
    """One sentence about what a client needs and this machine lacks; empty if it lacks nothing."""
    if client.toolchain == "java":
        try:
            find_java(ROOT / ".jars")
        except JavaMissingError as error:
            return f"{client.name} was not tried: {error}."
        return ""
    tool, name = TOOLS.get(client.toolchain, ("", ""))
    if not tool or shutil.which(tool):
        return ""
    return f"{client.name} was not tried: {name} is not installed ({tool} is not on the PATH)."


def command_of(client: Client) -> list[str]:
    """The command of a client's program, which is built first. Raises CalledProcessError with the
    output of a build that failed."""
    INSTALLED.mkdir(exist_ok=True)
    with closing(locked(INSTALLED / "install.lock")):
        program = _BUILDS[client.folder if client.folder == "http" else client.toolchain]
        return [*program(client), *client.variant.split()]


def _python(client: Client) -> list[str]:
    venv = INSTALLED / client.folder
    lock = SOURCES / client.folder / "requirements.lock"
    python = venv / "bin" / "python"
    if _is_stale(venv, lock):
        uv = find_uv() or "uv"
        shutil.rmtree(venv, ignore_errors=True)
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)])
        install = [uv, "pip", "install", "--quiet", "--python", str(python), "--no-deps"]
        _run([*install, "--require-hashes", "-r", str(lock)])
        _stamp(venv, lock)
    return [str(python), str(SOURCES / client.folder / "program.py")]


def _http(client: Client) -> list[str]:
    return [sys.executable, str(SOURCES / "http" / "program.py")]


def _java(client: Client) -> list[str]:
    folder, source = INSTALLED / "java", SOURCES / "java" / "JdbcClient.java"
    fetch(folder, SOURCES / "java" / "jars.lock")
    version = client.variant.split()[0]
    java = str(find_java(ROOT / ".jars").executable)
    classes = folder / "classes"
    jars = os.pathsep.join(str(jar) for jar in sorted((folder / f"v{version}").glob("*.jar")))
    if _is_stale(classes, source):
        (compiler,) = (folder / "compiler").glob("*.jar")
        shutil.rmtree(classes, ignore_errors=True)
        _run([java, "-jar", str(compiler), *COMPILER_OPTIONS, "-d", str(classes), str(source)])
        _stamp(classes, source)
    return [java, "-Xmx512m", "-cp", f"{classes}{os.pathsep}{jars}", "JdbcClient"]


def _go(client: Client) -> list[str]:
    folder = INSTALLED / "go"
    folder.mkdir(exist_ok=True)
    program = folder / "client"
    build = ["go", "build", "-mod=readonly", "-trimpath", "-o", str(program), "."]
    _run(build, SOURCES / "go")
    return [str(program)]


def _node(client: Client) -> list[str]:
    folder = INSTALLED / "node"
    folder.mkdir(exist_ok=True)
    lock = SOURCES / "node" / "package-lock.json"
    for name in ("package.json", "package-lock.json", ".npmrc", "client.mjs"):
        shutil.copyfile(SOURCES / "node" / name, folder / name)
    if _is_stale(folder, lock):
        _run(["npm", "ci", "--ignore-scripts"], folder)
        _stamp(folder, lock)
    return ["node", str(folder / "client.mjs")]


def _rust(client: Client) -> list[str]:
    target = INSTALLED / "rust"
    _run(["cargo", "build", "--quiet", "--target-dir", str(target)], SOURCES / "rust")
    return [str(target / "debug" / "rust-client")]


_BUILDS: Final = {
    "python": _python,
    "http": _http,
    "java": _java,
    "go": _go,
    "node": _node,
    "cargo": _rust,
}


def _is_stale(folder: Path, source: Path) -> bool:
    stamp = folder / "stamp"
    return not stamp.is_file() or stamp.read_bytes() != source.read_bytes()


def _stamp(folder: Path, source: Path) -> None:
    shutil.copyfile(source, folder / "stamp")


def _run(command: list[str], folder: Path = ROOT) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
