"""Workloads and pipelines that are not TOML or contain invalid values: one sentence, exit code
2."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from schemas.protocol import Pipeline, Workload
from schemas.suite import Suite
from schemas.validation_errors import DefinitionError
from services.definitions.domains import load_domain
from services.definitions.pipelines import EXTERNAL, PIPELINES_DIR, load_pipeline, names
from services.definitions.workloads import SUITES_DIR, WORKLOADS_DIR, load_suite, load_workload
from services.runtime.settings import ROOT
from tests.unit.bad_input.outcomes import count, fuzzed

pytestmark = pytest.mark.unit

FILES = {
    "workload": [WORKLOADS_DIR / f"{name}.toml" for name in names(WORKLOADS_DIR)],
    "pipeline": [PIPELINES_DIR / f"{name}.toml" for name in names(PIPELINES_DIR)],
    "suite": [SUITES_DIR / f"{name}.toml" for name in names(SUITES_DIR)],
}
LOAD = {"workload": load_workload, "pipeline": load_pipeline, "suite": load_suite}
LATENCY = (WORKLOADS_DIR / "latency.toml").read_text()
KNOWN = {path.stem for paths in FILES.values() for path in paths}
KINDS = st.sampled_from(sorted(FILES))
VALUES = st.sampled_from(
    (
        *("0", "-1", "1e308", "-0.0", "nan", "inf", "-inf", '""', '"x"', "true", "[]", "{}"),
        *("9223372036854775808", "9" * 5000, "1979-05-27", "[[[]]]", '"\\u0000"', "['join']"),
        *("[" * 2000 + "]" * 2000, '"a\\nb"', '["ingest", "ingest"]', "1_0", "0x10"),
    )
)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("definitions") / "file.toml"


def loaded(kind: str, path: Path) -> None:
    """Load a file; any error in it must be one sentence."""
    try:
        found = LOAD[kind](str(path))
    except DefinitionError as error:
        said = str(error)
        count(f"{kind} files", "refused")
    else:
        said = "."
        assert isinstance(found, Workload | Pipeline | Suite)
        text = found.model_dump_json()  # it is sent as JSON, so it must round-trip
        assert type(found).model_validate_json(text) == found
        count(f"{kind} files", "accepted")
    assert said.endswith(".")
    assert "\n" not in said


@fuzzed
@given(kind=KINDS, data=st.one_of(st.binary(max_size=100), st.text(max_size=100).map(str.encode)))
def test_any_bytes_give_one_sentence(place: Path, kind: str, data: bytes) -> None:
    place.write_bytes(data)
    loaded(kind, place)


@st.composite
def changed_files(draw):
    """An existing file with values replaced, or lines moved, cut or repeated."""
    kind = draw(KINDS)
    lines = draw(st.sampled_from(FILES[kind])).read_text().splitlines()
    for _ in range(draw(st.integers(1, 3))):
        number = draw(st.integers(0, len(lines) - 1))
        how = draw(st.sampled_from(("value", "value", "value", "cut", "repeat", "rename")))
        name, equals, _value = lines[number].partition(" = ")
        if how == "value" and equals:
            lines[number] = f"{name} = {draw(VALUES)}"
        elif how == "cut" and len(lines) > 1:
            del lines[number]
        elif how == "repeat":
            lines.insert(draw(st.integers(0, len(lines))), lines[number])
        else:
            lines[number] = f"{draw(st.text('abc_', min_size=1, max_size=4))} = 1"
    return kind, "\n".join(lines)


@fuzzed
@given(changed=changed_files())
@example(("workload", f"name = {'[' * 5000}"))
@example(("workload", LATENCY.replace("p99_ms = 50", "p99_ms = inf")))
@example(("workload", LATENCY.replace("per_second = 400", "per_second = nan")))
@example(("pipeline", f"watermark_s = {'9' * 5000}"))
def test_changed_files_are_valid_or_give_one_sentence(place: Path, changed) -> None:
    kind, text = changed
    place.write_text(text)
    loaded(kind, place)


@fuzzed
@given(kind=KINDS, name=st.text(max_size=40))
@example("workload", "a" * 5000)
@example("pipeline", "\0")
@example("workload", "\0.toml")
@example("workload", "x\ny")
@example("pipeline", "../pipelines")
def test_any_name_gives_one_sentence(kind: str, name: str) -> None:
    # Hypothesis also tries strings of our own sources; some are existing names.
    assume(not name.startswith(EXTERNAL) and name not in KNOWN)
    with pytest.raises(DefinitionError) as caught:
        LOAD[kind](name)
    assert "\n" not in str(caught.value)
    count("names", "refused")


def test_the_command_line_says_it_in_one_line_and_ends_with_two(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"name = {'[' * 5000}")
    done = subprocess.run(
        [sys.executable, "-m", "services.console", "--data", str(tmp_path), "run", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("tidegauge: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        f"a = {'[' * 3000}{']' * 3000}",
        "\0",
        "stages = 5",
        "stages = [5]",
        "stages = [{ table = { file = 5 } }]",
        "recording = 5",
        "inputs = 'x'",
    ],
    ids=["deep", "zero", "number", "list of numbers", "table", "recording", "inputs"],
)
def test_a_wrong_domain_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "domain.toml").write_text(text)
    with pytest.raises(DefinitionError, match=r"domain\.toml: [^\n]+\.$"):
        load_domain(str(tmp_path))
