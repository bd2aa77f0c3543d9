"""When the outputs of a pipeline count as steady."""

import pytest

from services.conductor.probe_outputs import is_steady

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("grew", "steady"),
    [
        ("", False),
        ("gg", False),
        ("ggg", True),
        ("..ggg", True),
        ("ggg.", False),
        # Once in every ten seconds for forty, whatever the timing of its micro-batches.
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
    assert is_steady([each == "g" for each in grew], 3) is steady


@pytest.mark.parametrize(("grew", "steady"), [("", False), ("..", False), ("..g", True)])
def test_the_first_output_is_enough_where_the_warm_up_goes_on(grew: str, steady: bool) -> None:
    assert is_steady([each == "g" for each in grew], 0) is steady
