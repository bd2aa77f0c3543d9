"""Observations in user files, CSV and Parquet."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from services.definitions.row_files import InputError
from tests.unit.domains.traffic.sample import recording, traffic_content
from tests.unit.generator.made import TRAFFIC, records_of

pytestmark = pytest.mark.unit

COLUMNS = {
    "measurement_id": "site",
    "observed_at": "at",
    "flow_vehicles_per_hour": "cars",
    "speed_km_per_hour": "kmh",
}
NOON_US = 1_767_268_800_000_000  # 2026-01-01T12:00:00Z
NO_SUCH_YEAR = "is not in the years 1900 to 2199"


def read(path, columns=COLUMNS):
    content = traffic_content(source="file", path=str(path), columns=columns)
    return recording.read_observations(content, TRAFFIC.folder)


def a_csv(tmp_path, *rows, header="site,at,cars,kmh"):
    path = tmp_path / "mine.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_a_file_needs_only_four_columns(tmp_path):
    (row,), bad_rows = read(a_csv(tmp_path, "A,2026-01-01T12:00:00Z,100,50.5"))
    assert (row.measurement_id, row.lane, row.observed_at) == ("A", "lane1", NOON_US)
    assert (row.flow_vehicles_per_hour, row.speed_km_per_hour) == (100, 50.5)
    assert (row.period_s, row.accuracy_percent) == (60, 100)
    assert bad_rows == []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("A,2026-01-01T12:00:00Z,many,50", "cars is 'many', which is not a number"),
        ("A,2026-01-01T12:00:00Z,-1,50", "cars is -1, which is not possible"),
        ("A,2026-01-01T12:00:00Z,nan,50", "cars is nan, which is not possible"),
        ("A,2026-01-01T12:00:00Z,1.5,50", "cars is 1.5, which is not a whole number"),
        ("A,2026-01-01T12:00:00Z,1,", "kmh is empty"),
        ("A,2026-01-01T12:00:00Z,1,inf", "kmh is inf, which is not possible"),
        (",2026-01-01T12:00:00Z,1,2", "site is empty"),
        ("A,yesterday,1,2", "at is 'yesterday', which is not a time"),
        ("A,--5,1,2", "at is '--5', which is not a time"),
        (f"A,{NOON_US * 1000},1,2", f"at is {NOON_US * 1000}, which looks like nanoseconds"),
        (f"A,{NOON_US},1,2", f"at is {NOON_US}, which looks like microseconds"),
        (f"A,-{'9' * 40},1,2", f"at is -{'9' * 40}, whose unit is not clear"),
        ("A,9999-12-31T00:00:00Z,1,2", f"at is 9999-12-31T00:00:00Z, which {NO_SUCH_YEAR}"),
        (
            "A,0001-01-01T00:00:00+14:00,1,2",
            f"at is 0001-01-01T00:00:00+14:00, which {NO_SUCH_YEAR}",
        ),
        ("A,2026-01-01T12:00:00Z,1", "the row has more or fewer columns than the header"),
        ("A,2026-01-01T12:00:00Z,1,2,3", "the row has more or fewer columns than the header"),
    ],
)
def test_a_bad_row_has_its_line_and_reason_and_the_others_are_used(tmp_path, row, reason):
    path = a_csv(tmp_path, "B,2026-01-01T12:00:00Z,1,2", row, "C,2026-01-01T12:00:00Z,3,4")
    observations, (bad,) = read(path)
    assert bad.offset == 3
    assert bad.reason.startswith(reason)
    assert bad.topic.endswith("mine.csv")
    assert bad.value.startswith((row.encode(), b"{"))
    assert [o.measurement_id for o in observations] == ["B", "C"]


@pytest.mark.parametrize(
    "time", ["2026-01-01T12:00:00", "2026-01-01 13:00:00+01:00", "1767268800000"]
)
def test_times_may_be_written_in_several_ways(tmp_path, time):
    (row,), _ = read(a_csv(tmp_path, f"A,{time},1,2"))
    assert row.observed_at == NOON_US


def test_a_time_of_nanoseconds_in_parquet_is_a_bad_row_and_the_others_make_a_recording(tmp_path):
    path = tmp_path / "mine.parquet"
    times = [NOON_US // 1000, NOON_US * 1000, -(2**63)]
    table = {"site": ["A"] * 3, "at": times, "cars": [1] * 3, "kmh": [1.5] * 3}
    pq.write_table(pa.table(table), path)
    observations, bad_rows = read(path)
    assert [bad.offset for bad in bad_rows] == [2, 3]
    assert recording.recording_of(observations).times_us.tolist() == [NOON_US]


def test_parquet_keeps_its_types_and_counts_rows(tmp_path):
    path = tmp_path / "mine.parquet"
    table = {
        "site": ["A", None, "B"],
        "at": pa.array([NOON_US, NOON_US, NOON_US], pa.timestamp("us", "UTC")),
        "cars": [1, 2, 3],
        "kmh": [1.5, 2.5, 3.5],
        "colour": ["red"] * 3,
    }
    pq.write_table(pa.table(table), path)
    observations, bad_rows = read(path)
    assert [(o.measurement_id, o.observed_at) for o in observations] == [
        ("A", NOON_US),
        ("B", NOON_US),
    ]
    assert [(bad.offset, bad.reason) for bad in bad_rows] == [(2, "site is empty")]


@pytest.mark.parametrize(
    ("rows", "header", "reason"),
    [
        (["A,1,2"], "site,at,cars", "has no column 'kmh' for speed_km_per_hour; it has: site, at"),
        ([], "site,at,cars,kmh", "has no rows after its header"),
        (["A,x,1,2"], "site,at,cars,kmh", "has no usable row"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path, rows, header, reason):
    with pytest.raises(InputError, match=reason):
        read(a_csv(tmp_path, *rows, header=header))


@pytest.mark.parametrize(
    ("name", "content"), [("no.csv", None), ("bad.parquet", b"PAR1"), ("bad.csv", b"\xff\xfe\x00")]
)
def test_what_is_not_a_table_says_so(tmp_path, name, content):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot be read|can be read|is in UTF-16"):
        read(path)


def test_lanes_with_fewer_observations_begin_again_earlier(tmp_path):
    path = a_csv(
        tmp_path,
        "A,2026-01-01T12:00:00Z,1,10",
        "A,2026-01-01T12:01:00Z,2,20",
        "A,2026-01-01T12:02:00Z,3,30",
        "B,2026-01-01T12:00:00Z,7,70",
    )
    content = {"source": "file", "path": str(path), "columns": COLUMNS}
    records = [r for name, r in records_of(4, 4, content=content) if name == "flow"]
    assert [r["flow_vehicles_per_hour"] for r in records] == [1, 7, 2, 7, 3, 7, 1, 7]
