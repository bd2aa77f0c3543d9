"""When the outputs of a pipeline count as steady."""

import pytest

from services.conductor import steady_outputs

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("grew", "steady"),
    [
        ("", False),
        ("gg", False),
        ("ggg", True),
        ("..ggg", True),
        ("ggg.", False),
        # Once in every ten seconds for forty, however its micro-batches fall.
        ("g....g....g....g....", True),
        ("....gg.........g....g", False),
        ("....gg....g.......g.", True),
        (".....g....g....g....g", True),
        ("g....g....g.........", False),
        ("..g....g....g...", False),
    ],
)
def test_an_output_is_steady_when_it_grows_all_the_time_or_slowly_for_longer(
    grew: str, steady: bool
) -> None:
    assert steady_outputs.is_steady([each == "g" for each in grew], 3) is steady


def test_nothing_is_asked_of_pipelines_that_are_not_there_yet() -> None:
    assert steady_outputs.is_steady([], 0)
