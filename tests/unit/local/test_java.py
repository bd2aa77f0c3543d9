"""Which Java is used, and the reason if there is none."""

from pathlib import Path

import pytest

from deploy.local.java import JavaMissingError, find_java

pytestmark = pytest.mark.unit
NO_PACKAGE = "no_such_package"


def java_home(folder: Path, script: str) -> str:
    """A JAVA_HOME whose `java` is a script."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"])
def test_options_for_all_jvms_are_not_inherited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # Fails as a JVM does that does not accept the options of the variable.
    said = "Unrecognized VM option 'UseNoSuchGC'"
    home = tmp_path / "home"
    properties = f"    java.home = {home}\\n    java.specification.version = 21\\n"
    script = f'[ -z "${name}" ] || {{ echo "{said}" >&2; exit 1; }}; printf "{properties}" >&2'
    java_home(home, script)
    monkeypatch.setenv(name, "-XX:+UseNoSuchGC")
    java = find_java(tmp_path, {"JAVA_HOME": str(home), name: "-XX:+UseNoSuchGC"})
    assert (java.home, java.version) == (home, 21)
    assert name not in java.environment({name: "-XX:+UseNoSuchGC", "PATH": "/bin"})


def test_a_java_that_does_not_start_is_named_with_its_own_words(tmp_path: Path) -> None:
    home = java_home(tmp_path / "home", "echo 'Error: missing libjvm.so' >&2; exit 1")
    with pytest.raises(JavaMissingError) as caught:
        find_java(tmp_path, {"JAVA_HOME": home, "PATH": ""}, NO_PACKAGE)
    assert f"{home}/bin/java does not start (Error: missing libjvm.so)" in str(caught.value)
    assert "not in JAVA_HOME" not in str(caught.value)


def test_a_java_that_is_too_old_is_named_with_its_version(tmp_path: Path) -> None:
    properties = "    java.home = /old\\n    java.specification.version = 1.8\\n"
    home = java_home(tmp_path / "home", f'printf "{properties}" >&2')
    with pytest.raises(JavaMissingError, match=r"17 or newer: .*/bin/java is Java 8$"):
        find_java(tmp_path, {"JAVA_HOME": home, "PATH": ""}, NO_PACKAGE)


def test_without_any_java_the_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(JavaMissingError, match="not in JAVA_HOME, not on PATH"):
        find_java(tmp_path, {"PATH": ""}, NO_PACKAGE)
