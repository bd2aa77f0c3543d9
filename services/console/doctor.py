"""The verb `doctor`: checks this machine and the running stack, and gives advice."""

import difflib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from deploy.local.jars import JarsError, jars_lock, mend, verify_jars
from deploy.local.java import JavaMissingError, find_java
from deploy.local.stack import READY, ServiceStatus
from deploy.local.startup import ipv6_objection, known_settings
from services.console.lists import installation_state
from services.definitions.engines import installed, load_engines
from services.readmodel.runs import dead_letters
from services.runtime.clickhouse import QueryError, ServerRefusedError, answer_to, store_url
from services.runtime.landlock import MIN_ABI, abi
from services.runtime.limits import limits, machine
from services.runtime.ports import PORT_OFFSETS, ephemeral_hint
from services.runtime.settings import ServiceSettings

NO_WALL = (
    "a query that bypasses the store's checks could read all your files; use Linux 5.19 or newer"
    " with Landlock"
)
GIGABYTE = 1_000_000_000
MIN_FREE_GB = 2
MIN_MEMORY_GB = 4
MIN_CORES = 2
LIMITED_BY = {"quota": "the quota of its control group", "affinity": "the processor affinity"}
PREFIX = ServiceSettings.model_config["env_prefix"]
SIMILARITY = 0.85  # of a misspelled name, from 0 to 1


@dataclass(frozen=True)
class Finding:
    """One check. advice: what to do; empty if nothing is needed."""

    good: bool
    text: str
    advice: str = ""


def examine(
    settings: ServiceSettings, running: bool, services: Iterable[ServiceStatus] = ()
) -> Iterator[Finding]:
    """Check everything, one finding at a time; for a remote stack only the store.

    services: the parts of the running stack.
    """
    if settings.store_url:
        yield Finding(
            running,
            f"the store at {settings.store_url} is {'ready' if running else 'not ready'}",
            "TIDEGAUGE_STORE_URL is set, so the services run elsewhere; check them there",
        )
        return
    yield _java(settings.jars)
    yield _cores()
    yield _memory()
    yield _disk(settings.data)
    yield _jars(settings.jars)
    yield from _engines(settings)
    yield _wall(settings) if running else _wall_to_be()
    yield _base_port(settings.base_port)
    yield from _variables()
    if not running:
        if objection := ipv6_objection(settings):
            yield Finding(False, *objection.split("; "))
        else:
            yield from _ports(settings)
        return
    yield from running_parts(settings, services)


def running_parts(
    settings: ServiceSettings, services: Iterable[ServiceStatus]
) -> Iterator[Finding]:
    """Check the parts of a running stack, and whether there are dead letters."""
    for service in services:
        yield _service(settings, service)
    yield _dead_letters(settings)


def notify(settings: ServiceSettings) -> Iterator[Finding]:
    """Post a test message to every webhook, from a process of the conductor."""
    done = subprocess.run(
        [sys.executable, "-m", "services.conductor.notices.posting"],
        env=os.environ | settings.child_variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        yield Finding(False, f"webhooks: {done.stderr.strip()}", "see docs/notifications.md")
        return
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if not lines:
        yield Finding(False, "no webhook is set", "set TIDEGAUGE_WEBHOOKS (docs/notifications.md)")
    for each in lines:
        plain = " (allow_http: it may have travelled unencrypted)" if each["is_plain"] else ""
        accepted = f"a test message was accepted{plain}"
        text = f"webhook {each['webhook']}: {each['reason'] or accepted}"
        yield Finding(not each["reason"], text, "look at its address, its token and the proxy")


def show(console: Console, findings: Iterator[Finding]) -> int:
    """Print findings; returns 0 if all are good, else 1."""
    code = 0
    for finding in findings:
        mark = ("ok  ", "green") if finding.good else ("bad ", "red")
        console.print(Text.assemble(mark, f" {finding.text}"), soft_wrap=True)
        if not finding.good:
            console.print(f"     → {finding.advice}", soft_wrap=True)
            code = 1
    return code


def _java(jars: Path) -> Finding:
    try:
        java = find_java(jars)
    except JavaMissingError as error:
        return Finding(False, str(error), "install Java 17 or newer, or set JAVA_HOME to it")
    return Finding(True, f"Java {java.version} in {java.home}")


def _cores() -> Finding:
    """The load is the machine's, also in a container, so its cores are what it is compared with."""
    allowed, whole, load = limits(), machine(), os.getloadavg()[0]
    text = f"{allowed.cores:g} core{'' if allowed.cores == 1 else 's'}, load {load:.1f}"
    if allowed.limited_by:
        text += f" (of {whole.cores:g}: {LIMITED_BY[allowed.limited_by]} allows no more)"
    if allowed.cores < MIN_CORES:
        return Finding(False, text, f"a run needs {MIN_CORES} cores, or it measures their lack")
    return Finding(
        load <= whole.cores,
        text,
        "the machine is busy, which raises latencies; stop other work first",
    )


def _memory() -> Finding:
    allowed, whole = limits(), machine()
    free, text = allowed.free_bytes / GIGABYTE, ""
    advice = f"a run needs about {MIN_MEMORY_GB} GB; stop other programs"
    if allowed.memory_bytes < whole.memory_bytes:
        text = f" of the limit of {allowed.memory_bytes / GIGABYTE:.1f} GB"
        advice += ", or raise the memory limit of this container or control group"
    return Finding(free >= MIN_MEMORY_GB, f"{free:.1f} GB of memory free{text}", advice)


def _disk(data: Path) -> Finding:
    place = next(path for path in (data, *data.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free / GIGABYTE
    return Finding(
        free >= MIN_FREE_GB,
        f"{free:.0f} GB free in {data}",
        f"at least {MIN_FREE_GB} GB are needed; free some or use --data DIR",
    )


def _jars(jars: Path) -> Finding:
    try:
        verify_jars(jars, jars_lock())
    except (JarsError, OSError) as error:
        return Finding(False, str(error), mend(jars))
    return Finding(True, "all jars match their checksums")


def _engines(settings: ServiceSettings) -> Iterator[Finding]:
    """Version and state of every engine that is installed on first use."""
    for engine in load_engines().values():
        place = installed(engine, settings)
        install = engine.spec.install
        if install.python or install.jars:
            is_half = place.folder.is_dir() and bool(place.lacking())
            yield Finding(
                not is_half,
                f"engine {engine.spec.name} {installation_state(place)}",
                f"run ./tidegauge engines {engine.spec.name} --install, or remove {place.folder}",
            )


def _wall(settings: ServiceSettings) -> Finding:
    """Whether the running store has given up access to all files but its own."""
    url = f"http://{settings.host}:{settings.port('store')}/health/wall"
    try:
        return Finding(True, f"the store: {answer_to(url, 5).decode().strip()}")
    except ServerRefusedError as error:
        return Finding(False, f"the store: {error}", NO_WALL)
    except OSError as error:
        return Finding(False, f"the store does not report its file access: {error}", "see its log")


def _wall_to_be() -> Finding:
    result = abi()
    can = "can" if result >= MIN_ABI else "cannot"
    text = f"the store {can} be confined to its folder: Landlock ABI {result}"
    return Finding(result >= MIN_ABI, text, NO_WALL)


def _base_port(base_port: int) -> Finding:
    hint = ephemeral_hint(base_port)
    return Finding(
        not hint,
        hint or f"base port {base_port} is not used for outgoing connections",
        "a port may be taken at times; set TIDEGAUGE_BASE_PORT outside of that range",
    )


def _variables() -> Iterator[Finding]:
    """Environment variables whose names are nearly those of settings."""
    known = [name.upper() for name in sorted(known_settings())]
    for name in sorted(os.environ):
        setting = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and setting not in known:
            for close in difflib.get_close_matches(setting, known, 1, SIMILARITY):
                yield Finding(False, f"{name} is no setting", f"did you mean {PREFIX}{close}?")


def _ports(settings: ServiceSettings) -> Iterator[Finding]:
    for name in PORT_OFFSETS:
        port = settings.port(name)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((settings.host, port))
            except OSError:
                yield Finding(
                    False,
                    f"port {port} ({name}) is taken",
                    "choose other ports with TIDEGAUGE_BASE_PORT, or stop the program that uses it",
                )
    yield Finding(True, f"the stack is not running; its ports start at {settings.base_port}")


def _service(settings: ServiceSettings, service: ServiceStatus) -> Finding:
    log = settings.data / "logs" / f"{service.name}.log"
    text = f"{service.name} is {service.state}"
    return Finding(service.state == READY, text, f"see {log}")


def _dead_letters(settings: ServiceSettings) -> Finding:
    try:
        dead = dead_letters(store_url(settings))
    except QueryError as error:
        return Finding(False, f"the store does not answer SQL: {error}", "see its log")
    advice = 'see: ./tidegauge sql "SELECT * FROM tidegauge.dead_letter"'
    example = f", such as {json.dumps(dead.reason)}" if dead.count else ""
    return Finding(not dead.count, f"{dead.count} dead letters{example}", advice)
