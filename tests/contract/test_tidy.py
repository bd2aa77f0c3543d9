"""The house rules that a program can check (ARCHITECTURE.md, "Rules of the house")."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from services.runtime.settings import ROOT

pytestmark = pytest.mark.contract
PRODUCT = ("schemas", "services", "analysis", "deploy", "engines", "domains")
# Programs of their own: started in another environment, or imported by the name of their folder.
PROGRAMS = ("engines", "domains")
# SQL is asked in the read model and run in the store. What a person may type stands in help texts.
WITH_SQL = ("services/readmodel/", "services/store/", "deploy/", "engines/")
SHOWN = {"services/console/doctor.py", "services/console/verbs/results.py"}
EXPANDED = {"services/runtime/grafana_macros.py"}
MOST_LINES = 70
BANNED = {"found", "look", "made", "one", "owed", "said", "told"}
SQL = re.compile(r"\bSELECT\b.*\bFROM\b", re.DOTALL)


@cache
def sources() -> dict[str, ast.Module]:
    """The modules of the product by their path."""
    listed = subprocess.run(
        ["git", "ls-files", "-c", "-o", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (path for path in listed.stdout.splitlines() if (ROOT / path).exists())
    return {path: ast.parse((ROOT / path).read_text()) for path in paths}


def product() -> Iterator[tuple[str, ast.Module]]:
    return ((path, tree) for path, tree in sources().items() if path.split("/")[0] in PRODUCT)


def imported() -> set[str]:
    """Dotted names that any source imports."""
    names = set()
    for tree in sources().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                names |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
            elif isinstance(node, ast.Import):
                names |= {name.name for name in node.names}
    return names


def test_every_module_is_imported_or_started() -> None:
    names = imported()
    alone = {
        path
        for path, _ in product()
        if path.split("/")[0] not in PROGRAMS
        and Path(path).name not in ("__init__.py", "__main__.py")
        and path.removesuffix(".py").replace("/", ".") not in names
    }
    assert alone == set()


def test_all_that_is_imported_exists() -> None:
    """Also in the kinds of tests and benchmarks that do not run each time."""
    names = {dotted(path): defined(tree) for path, tree in sources().items()}
    missing = {
        (path, f"{node.module}.{name.name}")
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not node.level
        if (node.module or "").split(".")[0] in (*PRODUCT, "tests")
        for name in node.names
        if f"{node.module}.{name.name}" not in names
        and name.name not in names.get(node.module or "", set())
        and not (ROOT / str(node.module).replace(".", "/") / name.name).is_dir()
    }
    assert missing == set()


def dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def defined(tree: ast.Module) -> set[str]:
    """The names that importers of a module may use."""
    classes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = {node.name for node in ast.walk(tree) if isinstance(node, classes)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {each.asname or each.name for each in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_no_class_name_is_used_twice() -> None:
    places = defaultdict(list)
    for path, tree in product():
        if path.split("/")[0] not in PROGRAMS:
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_sql_is_in_the_read_model_and_the_store() -> None:
    paths = {
        path
        for path, tree in product()
        if not path.startswith(WITH_SQL)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.search(node.value)
    }
    assert paths - EXPANDED == SHOWN


def test_no_function_is_long() -> None:
    long = {
        f"{path}: {node.name}": lines
        for path, tree in product()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := lines_of_code(node)) > MOST_LINES
    }
    assert long == {}


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without those of texts, such as the query of a panel."""
    assert function.end_lineno is not None
    texts = set()
    for node in ast.walk(function):
        if isinstance(node, ast.JoinedStr | ast.Constant) and node.end_lineno is not None:
            texts |= set(range(node.lineno, node.end_lineno))
    return function.end_lineno - function.lineno + 1 - len(texts)


def test_no_variable_has_a_name_that_says_nothing() -> None:
    places = {
        f"{path}: {name}"
        for path, tree in product()
        if path.split("/")[0] not in PROGRAMS
        for name in stored(tree)
        if name in BANNED
    }
    assert places == set()


def stored(tree: ast.Module) -> Iterator[str]:
    """Names of variables and arguments. Fields of classes are not among them: they are keys of the
    JSON that is written."""
    fields = {
        id(field.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if id(node) not in fields:
                yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        ("services.console.__main__", {"numpy", "pyarrow"}),  # every command would wait for them
        ("services.conductor.__main__", {"numpy", "pyarrow", "rich"}),
        ("services.runner.__main__", {"numpy", "pyarrow", "rich"}),
        ("services.generator.__main__", {"numpy", "pyarrow", "rich"}),
        ("services.evaluator.__main__", {"rich"}),
        ("services.collector.__main__", {"rich"}),
        ("services.store.__main__", {"numpy", "pyarrow", "structlog"}),
        ("services.external_pipeline.__main__", {"numpy", "pyarrow", "psutil", "structlog"}),
        ("services.watcher.exporting", {"pyspark", "chdb", "faust", "pandas", "pyarrow", "rich"}),
    ],
)
def test_a_program_starts_without_what_it_may_never_need(program: str, heavy: set[str]) -> None:
    script = f"import sys; import {program}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert heavy & set(done.stdout.split()) == set()


def test_no_text_stands_by_itself() -> None:
    stray = {
        f"{path}:{node.lineno}"
        for path, tree in product()
        for before, node in pairwise(tree.body)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and not isinstance(before, ast.Assign | ast.AnnAssign)
    }
    assert stray == set()


def test_the_code_map_names_files_that_there_are() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    there = {path.rsplit("/", 1)[-1] for path in sources()} | {"spark.py"}
    named = re.findall(r"`(?:[\w/]+/)?(\w+\.py)`", text)
    assert set(named) - there == set()
