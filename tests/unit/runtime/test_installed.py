"""The location of an engine's own environment, and its missing parts."""

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from schemas.engine import NEEDS, EngineSpec, Install
from services.definitions.engines import Engine, Installed

pytestmark = pytest.mark.unit


def spec(**fields: object) -> EngineSpec:
    return EngineSpec.model_validate(
        {
            "name": "mine",
            "summary": "",
            "install": {"note": "", "versions": ("thing",), **fields},
            "command": ("java", "-Xmx{heap_mb}m", "Main"),
            "settings": {"heap_mb": {"type": "integer", "default": 256, "help": "x"}},
            "abilities": [{"can": NEEDS}],
        }
    )


def place(tmp_path: Path, **fields: object) -> Installed:
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "requirements.lock").write_text("thing==2.2.1 \\\n    --hash=sha256:00\n")
    (folder / "jars.lock").write_text(
        "# of jars\nrun org.example:other-thing:1.5 00\nrun org.example:thing:1.4 00\n"
    )
    (folder / "Main.java").write_text("class Main {}")
    return Installed(Engine(spec(**fields), folder), tmp_path / "installed")


def stamp(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def environment(folder: Path, python: Path = Path(sys.executable)) -> None:
    """A virtual environment of a Python of this version."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "lib" / version / "site-packages").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(python)


def test_an_engine_without_an_installation_lacks_nothing(tmp_path: Path) -> None:
    found = place(tmp_path)
    assert found.lacking() == ()
    assert found.environment() == {}


def test_what_has_no_stamp_or_another_lacks(tmp_path: Path) -> None:
    found = place(tmp_path, python="requirements.lock", jars="jars.lock", sources=["."])
    assert found.lacking() == ("packages", "jars", "classes")
    stamp(found.venv / "installed.lock", (found.engine.folder / "requirements.lock").read_text())
    environment(found.venv)
    stamp(found.jars / "installed.lock", "of another lock")
    stamp(found.classes / "installed.sha256", found.sources_digest)
    assert found.lacking() == ("jars",)
    (found.engine.folder / "Main.java").write_text("class Main { int changed; }")
    assert found.lacking() == ("jars", "classes")


@pytest.mark.parametrize(
    "said",
    [
        "",  # no such file
        "#!/bin/sh\necho python3.99\n",  # another version
        "#!/bin/sh\necho libpython3.11.so: cannot open shared object file >&2\nexit 127\n",
    ],
)
def test_packages_whose_python_was_replaced_or_removed_are_lacking(
    tmp_path: Path, said: str
) -> None:
    found = place(tmp_path, python="requirements.lock")
    stamp(found.venv / "installed.lock", (found.engine.folder / "requirements.lock").read_text())
    python = tmp_path / "python3"
    environment(found.venv, python)
    if said:
        python.write_text(said)
        python.chmod(0o755)
    assert found.lacking() == ("packages",)
    python.unlink(missing_ok=True)
    python.symlink_to(sys.executable)
    assert found.lacking() == ()


def test_classes_depend_on_the_jars(tmp_path: Path) -> None:
    found = place(tmp_path, jars="jars.lock", sources=["."])
    before = found.sources_digest
    (found.engine.folder / "jars.lock").write_text("run org.example:thing:1.5 01\n")
    assert found.sources_digest != before


def test_versions_are_those_of_the_locks(tmp_path: Path) -> None:
    found = place(tmp_path, python="requirements.lock", jars="jars.lock")
    assert found.version() == "2.2.1"
    (found.engine.folder / "requirements.lock").write_text("nothing==1 \\\n")
    assert found.version() == "1.4"


def test_without_an_environment_of_its_own_the_version_is_the_package_s(tmp_path: Path) -> None:
    found = place(tmp_path, versions=["no-such-package", "pytest"])
    assert found.version() == pytest.__version__


def test_a_program_gets_its_own_python_jars_classes_and_sources(tmp_path: Path) -> None:
    fields = {"python": "requirements.lock", "jars": "jars.lock", "jars_of": ["pyspark"]}
    found = place(tmp_path, sources=["."], **fields)
    packages = found.venv / "lib/python3.11/site-packages/pyspark/jars"
    packages.mkdir(parents=True)
    assert found.environment() == {
        "PATH": f"{found.venv}/bin",
        "CLASSPATH": f"{found.classes}:{found.jars}/run/*:{packages}/*",
        "PYTHONPATH": str(found.engine.folder.resolve()),
    }


def test_jars_of_a_package_are_in_its_jars_or_its_lib(tmp_path: Path) -> None:
    found = place(tmp_path, python="requirements.lock", jars_of=["pyflink"])
    packages = found.venv / "lib/python3.11/site-packages/pyflink"
    (packages / "lib").mkdir(parents=True)
    assert found.environment()["CLASSPATH"] == f"{packages}/lib/*"


def test_a_command_takes_settings_that_are_whole_numbers_or_choices() -> None:
    assert spec().command_for({"heap_mb": 64}) == ("java", "-Xmx64m", "Main")
    fields = spec().model_dump()
    fields["settings"] = {"heap_mb": {"type": "text", "help": "x"}}
    with pytest.raises(ValidationError, match="heap_mb"):
        EngineSpec.model_validate(fields)


@pytest.mark.parametrize("name", ["../lock", "/etc/passwd", "a/b", ".."])
def test_locks_are_in_the_engines_folder(name: str) -> None:
    with pytest.raises(ValidationError):
        Install(note="", python=name)
