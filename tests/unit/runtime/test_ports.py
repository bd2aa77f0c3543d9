"""Whether the ports of a stack are in the system's ephemeral range."""

from pathlib import Path

import pytest

from services.runtime.ports import ephemeral_hint

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("base_port", "hinted"),
    [
        (17_070, False),
        (32_700, False),
        (32_767, True),
        (45_000, True),
        (60_999, True),
        (61_000, False),
    ],
)
def test_a_base_port_in_the_systems_range_is_told(tmp_path: Path, base_port: int, hinted: bool):
    path = tmp_path / "range"
    path.write_text("32768\t60999\n")
    sentence = (
        f"base port {base_port} is in the range 32768 to 60999, which the system uses for"
        " outgoing connections"
    )
    assert ephemeral_hint(base_port, str(path)) == (sentence if hinted else "")


@pytest.mark.parametrize("text", [None, "", "32768", "a b"])
def test_a_system_that_does_not_say_has_no_hint(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "range"
    if text is not None:
        path.write_text(text)
    assert ephemeral_hint(45_000, str(path)) == ""
