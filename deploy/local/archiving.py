"""Make archives of classes from what JVMs wrote down (services/runtime/class_archives.py).

Done when a run is over: it takes a core for some seconds. An archive gets its name when a JVM has
accepted it.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from services.runtime.class_archives import FOLDER, USE, ClassArchive, is_closed

MAKE_TIMEOUT_S = 180
KEPT = 2  # of each use: of the Java runtimes that were used last
MOST_LIST_BYTES = 64 * 1024 * 1024
MOST_REASON = 400
LOCALE = {"LC_ALL": "C.UTF-8", "PATH": os.defpath}


@dataclass(frozen=True)
class Recipe:
    """How an archive is made. classes: what the JVM that has loaded most has written down."""

    archive: ClassArchive
    class_path: str
    classes: Path


def make_archives(jars: Path, say: Callable[[str], None]) -> None:
    """Make every archive that can be made. What cannot is not tried again; nothing is raised."""
    recipes = list(_recipes(jars / FOLDER))
    if recipes:
        say("making archives of classes, with which later starts are faster (once)")
    for recipe in recipes:
        reason = _make(recipe)
        with suppress(OSError):  # what is left is tried again
            if reason:
                recipe.archive.failed.write_text(f"{reason}\n")
            for path in (*recipe.archive.lists(), recipe.archive.recipe):
                path.unlink(missing_ok=True)
            _forget_old(recipe.archive)


def _recipes(folder: Path) -> Iterator[Recipe]:
    if not is_closed(folder):
        return
    for path in sorted(folder.glob("*.json")):
        with suppress(
            OSError, ValueError, KeyError, TypeError
        ):  # cut off, or removed by another run
            told = json.loads(path.read_text())
            java_home, options = Path(told["java_home"]), tuple(told["options"])
            archive = ClassArchive(folder, path.stem, java_home, options)
            lists = [one for one in archive.lists() if one.stat().st_size <= MOST_LIST_BYTES]
            if lists and not archive.path.exists():
                classes = max(lists, key=lambda one: one.stat().st_size)
                yield Recipe(archive, told["class_path"], classes)


def _make(recipe: Recipe) -> str:
    """Make one archive; why it was not made, or nothing."""
    archive = recipe.archive
    new = archive.path.with_name(f".{archive.path.name}.{os.getpid()}")
    chosen = recipe.classes.with_suffix(".chosen")
    try:
        chosen.write_text(usable(recipe.classes.read_text(errors="replace")))
        # Objects of the heap are written by this collector only; others can read them.
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


def _java(recipe: Recipe, new: Path, *options: str) -> str:
    """Start the JVM of an archive; the last line of one that fails, or nothing."""
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
    """A list without the line that its JVM was writing when it ended."""
    return classes[: classes.rfind("\n") + 1]


def _forget_old(made: ClassArchive) -> None:
    """Remove what belongs to other jars or Java runtimes, but for the newest."""
    use = made.name.rpartition("-")[0]
    for ending in ("jsa", "failed"):
        found = made.folder.glob(f"{use}-*.{ending}")
        for old in sorted(found, key=lambda path: path.stat().st_mtime_ns)[:-KEPT]:
            old.unlink(missing_ok=True)
