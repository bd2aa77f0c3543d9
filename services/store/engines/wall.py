"""The second wall: this process can open only the folder it serves.

The first wall judges queries (services/store/policy/permissions.py). An embedded engine runs them
in this process, so a query that passes the first wall could read and write every file of the
stack's owner. Therefore the process restricts itself with Landlock before it starts the engine. It
retains the engine's folder and, read-only, files that are the same on every machine: Python and its
packages, the store's code with its DDL and dashboards, and a few files that describe the system.

Secrets are read before that, and are kept as values. This includes the environment: no file in
/proc/self that shows it may be opened.
"""

import os
import socket
import ssl
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from services.runtime.kafka_security import security
from services.runtime.landlock import LandlockError, Rules, restrict
from services.runtime.settings import ROOT
from services.store.settings import StoreSettings

CODE: Final = ("services", "schemas", "deploy/clickhouse")
LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store")
DEVICES: Final = ("/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")
# Hardware, network neighbours and time; no user's files.
SYSTEM_FILES: Final = (
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/openssl.cnf", "/usr/share/zoneinfo"),
    *("/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services"),
    *("/etc/resolv.conf", "/run/systemd/resolve/stub-resolv.conf"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm/overcommit_memory"),
    *("/proc/self/limits", "/proc/self/stat", "/proc/self/statm", "/proc/self/status"),
    # The C library reads the location of the first thread's stack, the engine the processor's
    # features.
    *("/proc/self/maps", "/proc/self/auxv", "/proc/self/fd"),
    *("/sys/devices/system/cpu", "/sys/devices/system/node"),
    "/sys/kernel/mm/transparent_hugepage/enabled",
    *(f"/sys/fs/cgroup/{name}" for name in ("cpu.max", "memory.max", "memory.stat")),
    *(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us" for name in ("quota", "period")),
    *(f"/sys/fs/cgroup/memory/memory.{name}" for name in ("limit_in_bytes", "stat")),
)
CERTIFICATES: Final = (
    *("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/pki/tls/certs"),
    *("/etc/pki/ca-trust/extracted", "/etc/ca-certificates", "/usr/share/ca-certificates"),
    *("/usr/local/share/ca-certificates", "/var/lib/ca-certificates"),
)
# Properties of librdkafka that name a file, and those that take its contents.
_IN_MEMORY: Final = {
    f"ssl.{name}.location": f"ssl.{name}.pem" for name in ("ca", "certificate", "key")
}


@dataclass(frozen=True)
class Wall:
    """Whether the wall is up, and its state in one sentence."""

    stands: bool
    sentence: str


NOT_RAISED: Final = Wall(False, "The process can open every file of its user.")


def raise_wall(settings: StoreSettings) -> Wall:
    """Restrict this process permanently, if the kernel can.

    Call it first: from the main thread, before importing a library that starts threads.
    """
    os.environ["TMPDIR"] = str(settings.scratch_dir)
    settings.scratch_dir.mkdir(parents=True, exist_ok=True)
    settings.database_lock.touch()
    with suppress(OSError):
        socket.getaddrinfo("localhost", None)  # loads the system's name resolution modules
    rules = rules_of(settings)
    try:
        want_secrets_outside(settings, rules)
        restrict(rules)
    except LandlockError as error:
        return Wall(False, f"The process can open every file of its user: {error}.")
    reach = "nor connect anywhere but to Kafka" if rules.connect else "nor connect anywhere"
    if rules.connect is None:
        reach = "and connect anywhere, because Kafka or ClickHouse run elsewhere"
    return Wall(True, f"The process can open no file but those it serves, {reach}.")


def rules_of(settings: StoreSettings) -> Rules:
    """The access that the store needs."""
    folder, lock = settings.database_dir.resolve(), settings.database_lock
    return Rules(
        read=tuple(_readable(settings)),
        write=(folder, lock, *(Path(name) for name in DEVICES)),
        bind=(settings.port("store"),),
        connect=_connectable(settings),
    )


def sealed(settings: StoreSettings) -> StoreSettings:
    """The settings with the contents of files that the wall will hide as values: passwords, and the
    login and keys of Kafka clients. Raises OSError, SecretFileError."""
    properties = {}
    for name, value in ({} if settings.offline else settings.client_properties).items():
        if name in _IN_MEMORY:
            properties[_IN_MEMORY[name]] = Path(value).read_text()
        else:
            properties[name] = value
    return settings.model_copy(
        update={
            "kafka_bootstrap": settings.bootstrap,
            "kafka_open_bootstrap": "",
            "kafka_properties": properties,
            "clickhouse_password": SecretStr(settings.clickhouse_secret()),
            "clickhouse_password_file": None,
        }
    )


def _readable(settings: StoreSettings) -> Iterator[Path]:
    yield from (ROOT / name for name in CODE)
    yield settings.dashboards_dir.resolve()
    yield from (Path(name) for name in (*LIBRARIES, *SYSTEM_FILES))
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    yield from (Path(sysconfig.get_path(name)) for name in names)
    yield Path(sys.base_prefix) / "lib"
    yield from (Path(name) for name in sys.path if Path(name).name.endswith("-packages"))
    if settings.clickhouse_url or security(settings.kafka_properties).is_encrypted:
        yield from (Path(name) for name in CERTIFICATES)
        default_verify_paths = ssl.get_default_verify_paths()
        yield from (
            Path(name)
            for name in (default_verify_paths.cafile, default_verify_paths.capath)
            if name
        )


def _connectable(settings: StoreSettings) -> tuple[int, ...] | None:
    if settings.clickhouse_url or settings.kafka_bootstrap:
        return None
    if settings.offline:
        return ()
    return (settings.port("kafka_internal"),)


def want_secrets_outside(settings: StoreSettings, rules: Rules) -> None:
    """Raises LandlockError if the rules would leave the secrets accessible."""
    secrets = settings.secrets_dir.resolve()
    for path in (*rules.read, *rules.write):
        if secrets.is_relative_to(path.resolve()):
            raise LandlockError(f"the secrets are in {path}, which it needs")
