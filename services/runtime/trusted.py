"""What a command may make a service start or open: only what a file of this machine says too.

A pipeline names programs, classes and options of a JVM, and the content of a workload may name a
file. Commands that carry them travel on Kafka, and whoever can write there is not for that reason
the owner of this account. So the agent and the generator look a definition up before they use it:
in `pipelines/` or `workloads/` of this installation, or among what the command line of this data
folder has read from the owner's own files:

    <data>/definitions/<SHA-256 of the definition>.json
"""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from schemas.content import Content
from schemas.model import Model
from schemas.pipeline import Pipeline
from schemas.suite import Suite
from schemas.workload import Workload
from services.runtime.definitions import (
    EXTERNAL,
    PIPELINES_DIR,
    WORKLOADS_DIR,
    DefinitionError,
    load_pipeline,
    load_workload,
    names,
)

KEPT_DEFINITIONS: Final = 1_000


def keep_definitions(
    data: Path, workloads: Iterable[Workload], pipelines: Iterable[Pipeline]
) -> None:
    """Remember what was read from files of this machine; of much, the newest. Raises OSError."""
    folder = _folder(data)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    named = [each.content for each in workloads if each.content.path]
    for definition in (*named, *pipelines):
        path = _place(data, definition)
        path.write_text(definition.model_dump_json())
        path.touch()
    by_age = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    for path in by_age[:-KEPT_DEFINITIONS]:
        path.unlink(missing_ok=True)


def keep_suite(data: Path, suite: Suite) -> None:
    """Remember what the steps of a suite are made of. Raises OSError."""
    workloads = [step.workload for step in suite.steps]
    keep_definitions(data, workloads, [each for step in suite.steps for each in step.pipelines])


def pipeline_objection(
    pipeline: Pipeline, data: Path, directory: Path = PIPELINES_DIR
) -> str | None:
    """Why a pipeline that a command describes must not be started, in one sentence, or None."""
    if _place(data, pipeline).is_file():
        return None
    # A program that runs already needs no file, only its name.
    name = f"{EXTERNAL}{pipeline.name}" if pipeline.mode == "external" else pipeline.name
    known = None
    with suppress(DefinitionError):
        known = load_pipeline(name, directory)
    if pipeline == known:
        return None
    what = "says otherwise" if known else "does not exist"
    return f"pipelines/{pipeline.name}.toml on the agent's machine {what}"


def content_objection(content: Content, data: Path, directory: Path = WORKLOADS_DIR) -> str | None:
    """Why the file that a command names must not be read, in one sentence, or None."""
    if not content.path or _place(data, content).is_file():
        return None
    for name in names(directory):
        with suppress(DefinitionError):
            if load_workload(name, directory).content == content:
                return None
    return f"no workload on the generator's machine reads {content.path} in this way"


def _folder(data: Path) -> Path:
    return data / "definitions"


def _place(data: Path, definition: Model) -> Path:
    text = f"{type(definition).__name__}:{definition.model_dump_json()}"
    return _folder(data) / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
