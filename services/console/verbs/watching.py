"""The verb `watch`."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from deploy.local.parts import lasting_parts
from schemas.validation_errors import DefinitionError, first_mistake
from schemas.watch import Cluster, Registry, WatchedKafka
from services.console.files import report_files
from services.console.following import Following
from services.console.remote_stack import open_stack
from services.console.verbs.common import teller, watch_page
from services.console.verbs.gating import gate, refuse_without_duration
from services.definitions.watches import (
    end_watch,
    kept_watch,
    kept_watches,
    position_path,
    read_cluster,
    read_watch,
)
from services.runtime.settings import ServiceSettings


def watch(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Watch a pipeline until Ctrl-C, for some seconds with --duration, or return at once with
    --detach; or list watches, or end one."""
    _refuse(options)
    if options.infer:
        return _infer(options, settings)
    if settings.store_url:
        raise DefinitionError(
            "The services run elsewhere (TIDEGAUGE_STORE_URL). Where their watcher runs:"
            " python -m services.watcher keep FILE.toml"
        )
    if options.end:
        end_watch(settings.data, options.end)
        console.print(f"The watch {options.end} is ended.")
        return 0
    if options.file is None:
        _list(console, settings, options.json)
        return 0
    found = read_watch(options.file)
    if options.duration is not None:
        return gate(options, found, settings, console)
    refuse_without_duration(options)
    stack, say, began = open_stack(settings, lasting_parts), teller(console), False
    following = Following(found, settings, console, watch_page(settings), stack.check)
    try:
        (stack.up_detached if options.detach else stack.up)(say)
        was_there, began = following.is_kept, True
        following.begin("")
        if options.detach or (was_there and stack.attached):
            return 0
        following.follow()
    except KeyboardInterrupt:
        if not began:
            raise
        following.end()
        console.print(f"The watch {found.name} is ended; its runs are kept: ./tidegauge runs")
    finally:
        if not options.detach:
            stack.close(say)
    return 0


def _refuse(options: Namespace) -> None:
    """Raises DefinitionError for an option that would have no effect."""
    given = [name for name, path, _ in report_files(options) if path]
    given += ["--threshold"] if options.threshold else []
    given += ["--duration"] if options.duration is not None else []
    given += ["--detach"] if options.detach else []
    if given and (options.infer or options.end):
        raise DefinitionError(f"{given[0]} is for watching a FILE.toml.")
    if given and options.file is None:
        raise DefinitionError(f"{given[0]} needs a FILE.toml.")
    if options.json and (options.file or options.infer or options.end):
        raise DefinitionError("--json is for the list of watches.")
    if not options.infer and (options.kafka or options.registry):
        name = "--kafka" if options.kafka else "--registry"
        raise DefinitionError(f"{name} is for --infer; a FILE.toml has an address of its own.")


def _infer(options: Namespace, settings: ServiceSettings) -> int:
    """Print inferred settings, from a process of the watcher. It gets logins on standard input."""
    told = _cluster(options).model_dump_json()
    return subprocess.run(
        [sys.executable, "-m", "services.watcher.inferring", *options.infer],
        env=os.environ | settings.child_variables,
        input=told,
        text=True,
        check=False,
    ).returncode


def _cluster(options: Namespace) -> Cluster:
    """The cluster and registry of a file, or of the options, which take precedence. Raises
    DefinitionError."""
    found = read_cluster(options.file) if options.file else Cluster()
    if options.kafka:
        found = found.model_copy(update={"kafka": WatchedKafka(bootstrap=options.kafka)})
    if not options.registry:
        return found
    try:
        registry = Registry.model_validate({"url": options.registry})
    except ValidationError as error:
        raise DefinitionError(f"--registry: {first_mistake(error)}.") from error
    return found.model_copy(update={"registry": registry})


def _list(console: Console, settings: ServiceSettings, as_json: bool) -> None:
    rows = [row for name in kept_watches(settings.data) if (row := _row(settings.data, name))]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        topics = f"{', '.join(row['inputs'])} → {', '.join(row['outputs'])}"
        saved = row["saved_at"] or "never"
        what = row["problem"] or f"{topics}, position saved {saved}"
        text = f"{row['name']}: {what}"
        console.print(text, soft_wrap=True, highlight=False)
    if not rows:
        console.print("There is no watch; start one with: ./tidegauge watch FILE.toml")


def _row(data: Path, name: str) -> dict[str, Any] | None:
    """A watch of the list; None if it was removed in the meantime. saved_at: when its position was
    last saved, ISO 8601, None if never. problem: why its file is of no use, empty if it is."""
    inputs, outputs, problem, saved_at = [], [], "", None
    try:
        found = kept_watch(data, name)
        inputs = [one.topic for one in found.inputs]
        outputs = [one.topic for one in found.outputs]
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        problem = f"its file cannot be read; end it with: ./tidegauge watch --end {name}"
    with suppress(FileNotFoundError):
        saved_s = position_path(data, name).stat().st_mtime
        saved_at = datetime.fromtimestamp(saved_s, UTC).isoformat(timespec="seconds")
    return {
        "name": name,
        "inputs": inputs,
        "outputs": outputs,
        "saved_at": saved_at,
        "problem": problem,
    }
