"""The command of an installed Tidegauge: `tidegauge …`, or `python -m tidegauge …`.

This folder takes the place of the repository's root: it contains `services`, `schemas` and the rest
under their own names, and is on the path of this process and its children. Three folders are
elsewhere, because the installation must not be written to:

    TIDEGAUGE_DATA   state; `.tidegauge` in the current folder
    TIDEGAUGE_JARS   jars, fetched at first use; `tidegauge/jars` in the user's cache
    TIDEGAUGE_INSTALLED_ENGINES   engines, installed at first use; `tidegauge/engines` there
"""

import os
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent
OF_THE_STACK = "chdb"  # installed with `tidegauge[run]`
WITHOUT_STACK = {"--export", "-h", "--help", "--version"}  # arguments of what needs no jars


def main() -> None:
    """Carry out the command, after missing jars were fetched if it may start the stack. Exits the
    process."""
    sys.path.insert(0, str(ROOT))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([before] if before else [])])
    os.environ.setdefault("TIDEGAUGE_DATA", str(Path.cwd() / ".tidegauge"))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jars = Path(os.environ.setdefault("TIDEGAUGE_JARS", str(cache / "tidegauge" / "jars")))
    os.environ.setdefault("TIDEGAUGE_INSTALLED_ENGINES", str(cache / "tidegauge" / "engines"))
    from services.console.__main__ import main as console

    def prepare() -> None:
        if find_spec(OF_THE_STACK) is not None and WITHOUT_STACK.isdisjoint(sys.argv[1:]):
            _fetch_jars(jars)

    sys.exit(console(sys.argv[1:], prepare))


def _fetch_jars(jars: Path) -> None:
    from deploy.local.install import InstallError, check_addresses, locked, same, say
    from deploy.local.jars import LOCK_FILE, STAMP, FetchError, fetch

    if same(LOCK_FILE, jars / STAMP):
        return
    try:
        check_addresses(os.environ)
        jars.mkdir(parents=True, exist_ok=True)
        with closing(locked(jars / "install.lock")):
            if not same(LOCK_FILE, jars / STAMP):
                say(f"fetching the jars into {jars} (first use)")
                fetch(jars, LOCK_FILE)
    except FetchError as error:
        raise InstallError(str(error)) from error


if __name__ == "__main__":
    main()
