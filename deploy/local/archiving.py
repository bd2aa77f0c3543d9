"""Makes class data sharing archives from class lists (services/runtime/jvm.py).

Runs after a run, as it uses a core for some seconds. An archive gets its final name after a JVM has
accepted it.
"""

import json
import os
import subprocess
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from services.runtime.jvm import FOLDER, USE, ClassArchive, is_closed

MAKE_TIMEOUT_S = 180
KEPT = 2  # per use: for the most recently used Java runtimes
MOST_LIST_BYTES = 64 * 1024 * 1024
MOST_REASON = 400
LOCALE = {"LC_ALL": "C.UTF-8", "PATH": os.defpath}


@dataclass(frozen=True)
class ArchiveRecipe:
    """How to make an archive. classes: the longest class list written by a JVM."""

    archive: ClassArchive
    class_path: str
    classes: Path


def make_archives(jars: Path, say: Callable[[str], None], but: Collection[str] = ()) -> None:
    """Make all possible archives. Failures are recorded and not retried; raises nothing. but: uses
    whose JVMs still run, so that their lists are not complete."""
    recipes = [each for each in _recipes(jars / FOLDER) if _use(each.archive) not in but]
    if recipes:
        say("creating class archives, which make later starts faster (once)")
    for recipe in recipes:
        reason = _make(recipe)
        with suppress(OSError):  # retried next time
            if reason:
                recipe.archive.failed.write_text(f"{reason}\n")
            for path in (*recipe.archive.lists(), recipe.archive.recipe):
                path.unlink(missing_ok=True)
            _forget_old(recipe.archive)


def _recipes(folder: Path) -> Iterator[ArchiveRecipe]:
    if not is_closed(folder):
        return
    for path in sorted(folder.glob("*.json")):
        with suppress(
            OSError, ValueError, KeyError, TypeError
        ):  # truncated, or removed by another run
            stored = json.loads(path.read_text())
            java_home, options = Path(stored["java_home"]), tuple(stored["options"])
            archive = ClassArchive(folder, path.stem, java_home, options)
            lists = [each for each in archive.lists() if each.stat().st_size <= MOST_LIST_BYTES]
            if lists and not archive.path.exists():
                classes = max(lists, key=lambda each: each.stat().st_size)
                yield ArchiveRecipe(archive, stored["class_path"], classes)


def _make(recipe: ArchiveRecipe) -> str:
    """Make one archive; returns the reason of a failure, or an empty string."""
    archive = recipe.archive
    new = archive.path.with_name(f".{archive.path.name}.{os.getpid()}")
    chosen = recipe.classes.with_suffix(".chosen")
    try:
        chosen.write_text(usable(recipe.classes.read_text(errors="replace")))
        # Only this collector can dump heap objects; others can map them.
        dump = ["-Xshare:dump", "-XX:+UseG1GC", f"-XX:SharedClassListFile={chosen}"]
        reason = _java(recipe, new, *dump) or _java(recipe, new, *USE, "-Xshare:on", "-version")
        if not reason:
            new.replace(archive.path)
        return reason
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)[:MOST_REASON]
    finally:
        chosen.unlink(missing_ok=True)
        new.unlink(missing_ok=True)


def _java(recipe: ArchiveRecipe, new: Path, *options: str) -> str:
    """Run the JVM of an archive; returns the last line of output on failure, or an empty string."""
    archive = recipe.archive
    java = str(archive.java_home / "bin" / "java")
    done = subprocess.run(
        [
            java,
            "-cp",
            recipe.class_path,
            *archive.matters,
            f"-XX:SharedArchiveFile={new}",
            *options,
        ],
        env=LOCALE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=MAKE_TIMEOUT_S,
        check=False,
    )
    if done.returncode == 0:
        return ""
    return (done.stdout.strip().splitlines() or ["no output"])[-1][:MOST_REASON]


def usable(classes: str) -> str:
    """A class list without a last line truncated by the JVM's end."""
    return classes[: classes.rfind("\n") + 1]


def _use(archive: ClassArchive) -> str:
    return archive.name.rpartition("-")[0]


def _forget_old(archive: ClassArchive) -> None:
    """Remove archives of other jars or Java runtimes, except the newest."""
    use = _use(archive)
    for ending in ("jsa", "failed"):
        result = archive.folder.glob(f"{use}-*.{ending}")
        for old in sorted(result, key=lambda path: path.stat().st_mtime_ns)[:-KEPT]:
            old.unlink(missing_ok=True)
