"""Checks before a start: settings, jars, disk space, folder names and free ports."""

import difflib
import errno
import os
import shutil
import socket
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import psutil

from deploy.local.failures import StackError
from deploy.local.jars_lock import JarsError, jars_lock, mend, verify_jars
from deploy.local.processes import wait_until
from services.runtime.files import read_toml
from services.runtime.ports import ephemeral_hint
from services.runtime.probe import ANY_ADDRESS
from services.runtime.settings import ROOT, ServiceSettings

NEEDED_FREE_BYTES = 500 * 1024**2
RELEASE_S = 5.0
# Path separator, quote of JVM options, and placeholders in Faust's settings.
TAKEN_APART = frozenset(',"{}')


def check_jars(jars: Path) -> None:
    """Raise StackError, with a remedy, if the jars differ from the lock."""
    try:
        verify_jars(jars, jars_lock())
    except (JarsError, OSError) as error:
        raise StackError(f"{error}; {mend(jars)}") from error


def known_settings() -> set[str]:
    """Names of all settings, in lower case. The first call imports the modules that define them,
    which takes 30 ms."""
    files = (ROOT / "services").glob("*/settings.py")
    names = [f"services.{file.parent.name}.settings" for file in files]
    names += ["deploy.local.broker", "deploy.local.supervisor"]
    defined = (value for name in names for value in vars(import_module(name)).values())
    return {
        field
        for kind in defined
        if isinstance(kind, type) and issubclass(kind, ServiceSettings)
        for field in kind.model_fields
    }


def check_config() -> None:
    """Raise StackError if the file of TIDEGAUGE_CONFIG has a key that no service reads."""
    path = os.environ.get("TIDEGAUGE_CONFIG")
    if not path:
        return
    known = sorted(known_settings())
    for key in read_toml(Path(path)):
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {close[0]}?" if close else ", see docs/settings.md"
            raise StackError(f"TIDEGAUGE_CONFIG: there is no setting {key[:80]!r}{hint}")


def check_room(data: Path, needed_bytes: int = NEEDED_FREE_BYTES) -> None:
    """Raise StackError if the disk of the data folder is nearly full."""
    free = shutil.disk_usage(data).free
    if free < needed_bytes:
        raise StackError(
            f"the disk is full: {free // 1024**2} MB are free in {data},"
            f" and {needed_bytes // 1024**2} MB are needed"
        )


def check_names(settings: ServiceSettings) -> None:
    """Raise StackError if a folder name contains characters that Java or an engine would split
    at."""
    for what, path, taken_apart in (
        ("data folder", settings.data, TAKEN_APART),
        ("folder of the jars", settings.jars, TAKEN_APART | {":"}),
    ):
        bad = sorted(set(str(path.absolute())) & taken_apart)
        if bad or not str(path.absolute()).isprintable():
            which = " ".join(bad) or "control characters"
            raise StackError(
                f"the {what} {str(path.absolute())!r} has {which} in its name,"
                " which Java or an engine takes for something else; choose another folder",
            )


def check_host(settings: ServiceSettings) -> None:
    """Raise StackError if the broker could not advertise its address to clients."""
    if settings.host in ANY_ADDRESS and not settings.kafka_bootstrap:
        raise StackError(
            f"TIDEGAUGE_HOST is {settings.host!r}, which stands for all addresses of this machine;"
            " set it to one of them, which clients can connect to"
        )
    if objection := ipv6_objection(settings):
        raise StackError(objection)


def ipv6_objection(settings: ServiceSettings) -> str:
    """Why the host cannot be an IPv6 address, which the broker and its metrics agent would take for
    a host and a port; empty if it is none."""
    if ":" not in settings.host or settings.host in ANY_ADDRESS:
        return ""
    return (
        f"TIDEGAUGE_HOST is {settings.host!r}, and the stack does not listen on IPv6 addresses;"
        " set it to an IPv4 address of this machine, such as 127.0.0.1"
    )


def check_ports(settings: ServiceSettings, names: Iterable[str]) -> None:
    """Raise StackError, which names port and process, if a port is in use.

    names: of ports in the shared settings.
    """
    for name in names:
        port = settings.port(name)
        if _is_taken(settings.host, port) and not _is_released(settings.host, port):
            hint = ephemeral_hint(settings.base_port)
            raise StackError(
                f"port {port}, which {name} needs, is taken{_by_whom(port)};"
                f" set TIDEGAUGE_BASE_PORT to another than {settings.base_port}"
                + (f" ({hint})" if hint else ""),
            )


def _is_taken(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do, so that closing connections of a stopped stack do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise StackError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return False


def _is_released(host: str, port: int) -> bool:
    """Whether a port without a visible owner becomes free soon: the system closes the sockets of a
    killed process shortly after the process has gone."""
    return not _by_whom(port) and wait_until(lambda: not _is_taken(host, port), RELEASE_S)


def _by_whom(port: int) -> str:
    """` by NAME (pid N)`, or empty if unknown."""
    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN
            if listens and connection.laddr.port == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        return ""
    return ""
