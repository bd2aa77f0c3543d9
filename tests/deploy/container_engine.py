"""A container engine with Compose for the tests: the one that answers, else Debian's, started here.

What is built or fetched stays in `.deploy`, so a second test run takes minutes less.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from deploy.local.processes import wait_until
from services.runtime.settings import ROOT

CACHE: Final = ROOT / ".deploy"
COMPOSE_MODULE: Final = "github.com/docker/compose/v2"
COMPOSE_VERSION: Final = "v2.40.3"
DEBIAN_PACKAGES: Final = ("docker.io", "iptables")
ENGINE_DEADLINE_S: Final = 120
BUILD_TIMEOUT_S: Final = 3600


class MissingToolError(Exception):
    """The machine lacks what the tests need; the text says what, in one sentence."""


def require(tool: str, name: str) -> None:
    """Raise MissingToolError, with the name of what is needed, if a program cannot be found."""
    if shutil.which(tool) is None:
        raise MissingToolError(f"This test needs {name}: {tool} is not on the PATH.")


@dataclass(frozen=True)
class ContainerEngine:
    """An engine that answers. environ: variables of its commands; compose: the command of Compose,
    version 2."""

    environ: Mapping[str, str]
    compose: tuple[str, ...]

    def docker(self, *words: str, timeout_s: float = BUILD_TIMEOUT_S) -> str:
        """The output of a docker command. Raises CalledProcessError; its errors were shown."""
        return run(["docker", *words], self.environ, timeout_s)

    def succeeds(self, *words: str) -> bool:
        """Whether a docker command ends with success; it prints nothing."""
        return _succeeds(["docker", *words], self.environ)


def run(command: list[str], environ: Mapping[str, str], timeout_s: float) -> str:
    """The output of a command. Raises TimeoutExpired, and after its output was shown,
    CalledProcessError."""
    done = subprocess.run(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        done.check_returncode()
    return done.stdout.strip()


@contextmanager
def container_engine() -> Iterator[ContainerEngine]:
    """The engine of this machine, or one that runs until the end. Raises MissingToolError."""
    environ = dict(os.environ)
    if _answers(environ):
        yield ContainerEngine(environ, _compose(environ))
        return
    install_debian(*DEBIAN_PACKAGES)
    # A short path: below it are sockets with long names.
    with (
        TemporaryDirectory(prefix="docker-", dir="/tmp") as scratch,
        _started(Path(scratch)) as own,
    ):
        yield own


@contextmanager
def _started(scratch: Path) -> Iterator[ContainerEngine]:
    environ = dict(os.environ)
    socket = scratch / "docker.sock"
    environ["DOCKER_HOST"] = f"unix://{socket}"
    command = [
        "dockerd",
        f"--host=unix://{socket}",
        f"--data-root={CACHE / 'docker'}",
        f"--exec-root={scratch / 'exec'}",
        f"--pidfile={scratch / 'docker.pid'}",
    ]
    with (scratch / "dockerd.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: _answers(environ) or process.poll() is not None, ENGINE_DEADLINE_S)
        if not _answers(environ):
            lines = (scratch / "dockerd.log").read_text().splitlines()
            raise MissingToolError(f"dockerd cannot run on this machine: {lines[-1:]}.")
        yield ContainerEngine(environ, _compose(environ))
    finally:
        process.terminate()
        process.wait()


def _answers(environ: Mapping[str, str]) -> bool:
    return shutil.which("docker") is not None and _succeeds(["docker", "info"], environ)


def _succeeds(command: list[str], environ: Mapping[str, str]) -> bool:
    done = subprocess.run(
        command, env=environ, capture_output=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    return done.returncode == 0


def install_debian(*packages: str) -> None:
    """Install missing Debian packages. Raises MissingToolError where that is not possible."""
    listed = (
        subprocess.run(
            ["dpkg-query", "--show", "--showformat", "${Package}:${db:Status-Status}\n", *packages],
            capture_output=True,
            text=True,
            check=False,
        )
        if shutil.which("dpkg-query")
        else None
    )
    if listed is not None and {f"{each}:installed" for each in packages} <= {
        *listed.stdout.splitlines()
    }:
        return
    if listed is None or os.geteuid() != 0:
        raise MissingToolError(
            f"{', '.join(packages)} must be installed, or the tests must run as root on Debian."
        )
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "--quiet=2"]
    run([*apt, "update"], environ, BUILD_TIMEOUT_S)
    run([*apt, "install", "--yes", "--no-install-recommends", *packages], environ, BUILD_TIMEOUT_S)


def _compose(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The command of Compose; built from its Go modules if docker does not have it."""
    plugin = ("docker", "compose")
    if _succeeds([*plugin, "version"], environ):
        return plugin
    program = CACHE / f"docker-compose-{COMPOSE_VERSION}"
    if not program.is_file():
        build_go(f"{COMPOSE_MODULE}/cmd", COMPOSE_VERSION, program)
    return (str(program),)


def build_go(package: str, version: str, program: Path) -> None:
    """Build a program of a Go module, which may not be one that `go install` accepts. Raises
    MissingToolError."""
    require("go", "Go 1.24 or newer")
    module = program.with_name(f"{program.name}.module")
    shutil.rmtree(module, ignore_errors=True)
    module.mkdir(parents=True)
    for words in (
        ["mod", "init", "build"],
        ["get", f"{package}@{version}"],
        ["build", "-o", str(program.with_suffix(".new")), package],
    ):
        run(["go", "-C", str(module), *words], os.environ, BUILD_TIMEOUT_S)
    program.with_suffix(".new").rename(program)
    shutil.rmtree(module)
