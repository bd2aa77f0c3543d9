"""The files of a run are looked into before it starts."""

import pytest

from schemas.load import Replay
from services.generator.look import looked
from tests.unit.generator.made import a_request
from tests.unit.generator.test_domain_records import HEADER, a_domain, write

pytestmark = pytest.mark.unit
GOOD = "a,1,10,1.5,"


def look(folder, *rows, header=HEADER, load=100, **content):
    write(folder, "mine.csv", *rows, header=header)
    domain = a_domain(folder)
    request = a_request(load, domain=domain, content=content)
    return looked(request, str(folder))


def test_a_file_of_good_rows_is_not_refused(tmp_path):
    assert look(tmp_path, GOOD) == {"refused": "", "bad_rows": 0, "first": ""}


def test_rows_that_are_left_out_are_counted_with_the_first_reason(tmp_path):
    told = look(tmp_path, GOOD, "a,x,10,1.5,", "a,y,10,1.5,")
    assert told["refused"] == ""
    assert told["bad_rows"] == 2
    assert told["first"] == "line 3: count is 'x', which is not a number"


def test_a_file_without_a_usable_row_is_refused_with_its_first_mistake(tmp_path):
    told = look(tmp_path, "a,x,10,1.5,")
    assert told["refused"].endswith("line 2: count is 'x', which is not a number")


def test_a_time_that_the_load_does_not_use_refuses_nothing(tmp_path):
    rows, header = (f"{GOOD},01.02.2026 13:00",), f"{HEADER},at"
    assert look(tmp_path, *rows, header=header)["refused"] == ""
    replay = Replay()
    assert "01.02.2026" in look(tmp_path, *rows, header=header, load=replay)["refused"]


def test_a_unit_of_the_times_is_used_by_a_replay(tmp_path):
    rows, header = (f"{GOOD},1767225600", f"{GOOD},1767225610"), f"{HEADER},at"
    replay = Replay()
    assert "seconds" in look(tmp_path, *rows, header=header, load=replay)["refused"]
    assert look(tmp_path, *rows, header=header, load=replay, time_unit="s")["refused"] == ""
