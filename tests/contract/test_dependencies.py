"""Dependencies of Tidegauge: pinned, listed with licences; and no code is executed from data."""

import ast
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from deploy.dependencies.__main__ import locked
from deploy.dependencies.bill import UNKNOWN, current, declared, listed
from deploy.dependencies.lock import IMAGE_EXTRAS, needed_lock, needs, read_lock
from deploy.local.jars import BENCH_FILE, LOCK_FILE, read_jars_lock
from services.runtime.settings import ROOT

pytestmark = pytest.mark.contract

UPDATE = "run: .venv/bin/python -m deploy.dependencies update"
LOCK = """\
# made by hand
one==1.0 \\
    --hash=sha256:{a}
    # via tidegauge (pyproject.toml)
two==2.0 ; sys_platform == 'win32' \\
    --hash=sha256:{b} \\
    --hash=sha256:{c}
    # via
    #   one
    #   three
three==3.0 \\
    --hash=sha256:{d}
    # via tidegauge (pyproject.toml)
""".format(a="a" * 64, b="b" * 64, c="c" * 64, d="d" * 64)


def test_a_lock_says_version_marker_hashes_and_reason_of_every_package() -> None:
    one, two, three = read_lock(LOCK)
    assert (one.name, one.version, one.marker, one.via) == (
        "one",
        "1.0",
        "",
        ("tidegauge (pyproject.toml)",),
    )
    assert (two.marker, two.sha256) == ("sys_platform == 'win32'", ("b" * 64, "c" * 64))
    assert two.via == ("one", "three")
    assert needs((one, two, three)) == {"one": ("two",), "two": (), "three": ("two",)}
    assert two.text == (
        "two==2.0 ; sys_platform == 'win32' \\\n"
        f"    --hash=sha256:{'b' * 64} \\\n    --hash=sha256:{'c' * 64}\n"
    )


def test_every_package_is_pinned_with_a_hash() -> None:
    pins = locked()
    assert len(pins) > 50
    assert [pin.name for pin in pins if not pin.sha256] == []
    text = (ROOT / "requirements.lock").read_text()
    assert text.count("==") >= len(pins)
    assert "--index-url" not in text


LOCKS = [LOCK_FILE, BENCH_FILE, *sorted(ROOT.glob("*/*/jars*.lock"))]


@pytest.mark.parametrize("lock_file", LOCKS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_jar_is_pinned_by_its_sha_256(lock_file: Path) -> None:
    lock = read_jars_lock(lock_file.read_text())
    assert lock
    assert [jar.coordinates for jar in lock.values() if not jar.sha256] == []


def test_the_list_of_licences_is_current_and_whole() -> None:
    known = listed()
    assert list(known) == sorted({pin.name for pin in locked()}), UPDATE
    for pin in locked():
        assert pin.version in known[pin.name]["version"].split(", "), f"{pin.name}: {UPDATE}"
        assert known[pin.name]["licence"] != UNKNOWN, f"look up the licence of {pin.name}"
    assert current(locked(), known) == known, UPDATE
    assert declared("no-such-package") is None


def imported_packages(folders: Iterable[str]) -> set[str]:
    """The installed packages that the modules of these folders import, also inside functions."""
    packages = packages_distributions()
    result: set[str] = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            else:
                continue
            for name in names:
                result |= {*packages.get(name.partition(".")[0], ())}
    return {name.lower().replace("_", "-") for name in result}


def test_the_image_has_the_packages_that_the_services_import_and_no_tests() -> None:
    names = {pin.name for pin in read_lock(needed_lock(ROOT, IMAGE_EXTRAS))}
    imported = imported_packages(["schemas", "services", "analysis", "deploy/kafka"])
    assert {"pyspark", "chdb", "confluent-kafka"} <= imported
    assert imported <= names | {"tidegauge"}
    assert {"pytest", "mypy", "ruff"} & names == set()
    assert len({pin.name for pin in read_lock(needed_lock(ROOT))}) < len(names) / 2


def test_the_packages_of_the_image_are_told_by_the_standard_library_alone() -> None:
    command = [sys.executable, "-S", "-m", "deploy.dependencies.lock"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (needed_lock(ROOT, IMAGE_EXTRAS), "")


# Modules and calls that execute code from data. A pickle or a YAML document can name any function.
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "jsonpickle"}
# Their pickles stay in the process and in the pipeline's folder, which belongs to the owner.
PICKLE_OF_THEIR_OWN = ("engines/bytewax/engine.py", "engines/pathway/engine.py")
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_METHODS = {
    ("yaml", "load"),
    ("yaml", "load_all"),
    ("yaml", "unsafe_load"),
    ("yaml", "full_load"),
    ("pandas", "read_pickle"),
    ("numpy", "load"),
    ("np", "load"),
    ("os", "system"),
}


def dangers(text: str) -> list[str]:
    """Parts of a module's text that could execute code from data; also `shell=True`."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".")[0] for alias in node.names]
            found += [name for name in names if name in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").partition(".")[0] in FORBIDDEN_MODULES:
                found.append(str(node.module))
        elif isinstance(node, ast.Call):
            found += _dangerous_call(node)
    return found


def _dangerous_call(node: ast.Call) -> list[str]:
    found = []
    if isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
        found.append(node.func.id)
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        name = (node.func.value.id, node.func.attr)
        found += [".".join(name)] if name in FORBIDDEN_METHODS else []
    for keyword in node.keywords:
        if keyword.arg == "shell" and getattr(keyword.value, "value", None) is True:
            found.append("shell=True")
    return found


def test_the_search_for_dangers_finds_them() -> None:
    assert dangers("import pickle\nfrom dill import loads") == ["pickle", "dill"]
    assert dangers("eval('1')\nyaml.load(x)") == ["eval", "yaml.load"]
    assert dangers("subprocess.run('ls', shell=True)") == ["shell=True"]
    assert dangers("yaml.safe_load(x); re.compile('a'); json.loads('1')") == []


def test_no_program_runs_code_that_comes_as_data() -> None:
    sources = [
        path
        for folder in ("schemas", "services", "deploy", "domains", "engines", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    assert len(sources) > 100
    found = {str(path.relative_to(ROOT)): dangers(path.read_text()) for path in sources}
    # A policy of the user's own, of a file with the digest that the command line has read.
    own = {"services/conductor/search/own_policy.py": ["exec", "compile"]}
    assert {name: what for name, what in found.items() if what} == own | {
        name: ["pickle"] for name in PICKLE_OF_THEIR_OWN
    }
