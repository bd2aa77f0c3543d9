"""Records of a domain without code, and of failing code."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.load import Replay
from schemas.validation_errors import DefinitionError
from services.definitions.domains import load_domain
from services.definitions.row_files import InputError
from services.generator.runs import probe_set
from tests.unit.generator.made import START_MS, a_load, a_plan, decoded, messages_of, records_of

pytestmark = pytest.mark.unit

COLUMNS = {
    "sensor": "string",
    "count": "int",
    "total": "long",
    "degrees": "double",
    "remark": "string",
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "sequence": "long",
    "run_id": "string",
    "scheduled_at": {"type": "long", "logicalType": "timestamp-micros"},
}
HEADER = "sensor,count,total,degrees,remark"
ROWS = ("a,1,10,1.5,", "b,2,9007199254740993,2.5,warm")


def a_domain(folder: Path, *inputs: str, recording='"data/mine.csv"', code=""):
    """A domain whose inputs have the same columns. recording: as in TOML."""
    folder.mkdir(exist_ok=True)
    lines = ['name = "mine"', f"recording = {recording}" if recording else ""]
    for name in inputs or ("readings",):
        fields = [{"name": column, "type": kind} for column, kind in COLUMNS.items()]
        schema = {"type": "record", "name": f"mine_{name}", "fields": fields}
        (folder / f"mine_{name}.v1.avsc").write_text(json.dumps(schema))
        lines += ["[[inputs]]", f'name = "{name}"', f'topic = "mine.{name}"']
        lines += [f'record = "mine_{name}"', 'key = "sensor"', 'event_time = "at"']
    names = ", ".join(f'"{name}"' for name in inputs or ("readings",))
    lines += ["[[stages]]", 'name = "ingest"', 'kind = "copy"', f"reads = [{names}]"]
    (folder / "domain.toml").write_text("\n".join(lines))
    if code:
        (folder / "records.py").write_text(code)
    return load_domain(str(folder))


def write(folder: Path, name: str, *rows: str, header: str = HEADER) -> None:
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "data" / name).write_text("\n".join([header, *rows]) + "\n")


def test_a_recording_is_replayed_in_a_loop_with_the_time_of_the_schedule(tmp_path):
    write(tmp_path, "mine.csv", *ROWS)
    records = records_of(2, 2, domain=a_domain(tmp_path))
    first = {
        "sensor": "a",
        "count": 1,
        "total": 10,
        "degrees": 1.5,
        "remark": "",
        "at": START_MS,
        "sequence": 0,
        "run_id": "r1",
        "scheduled_at": START_MS * 1000,
    }
    assert records[0] == ("readings", first)
    assert [record["sensor"] for _, record in records] == ["a", "b", "a", "b"]
    assert [record["at"] - START_MS for _, record in records] == [0, 500, 1_000, 1_500]
    # A float cannot represent this number.
    assert records[1][1]["total"] == 9_007_199_254_740_993


def test_a_row_of_one_file_is_a_record_of_each_input_at_one_time(tmp_path):
    write(tmp_path, "mine.csv", *ROWS)
    records = records_of(4, 1, domain=a_domain(tmp_path, "sent", "received"))
    assert [(name, record["sensor"], record["at"] - START_MS) for name, record in records] == [
        ("sent", "a", 0),
        ("received", "a", 0),
        ("sent", "b", 500),
        ("received", "b", 500),
    ]


def test_inputs_may_have_files_of_different_lengths(tmp_path):
    write(tmp_path, "sent.csv", *ROWS)
    write(tmp_path, "received.csv", "x,7,7,7,", "y,8,8,8,", "z,9,9,9,")
    recording = '{ sent = "data/sent.csv", received = "data/received.csv" }'
    domain = a_domain(tmp_path, "sent", "received", recording=recording)
    sensors = [record["sensor"] for _, record in records_of(8, 1, domain=domain)]
    assert sensors == ["a", "x", "b", "y", "a", "z", "b", "x"]


def test_shards_together_are_the_whole(tmp_path):
    write(tmp_path, "mine.csv", *ROWS)
    domain = a_domain(tmp_path, "sent", "received", "read")
    shards = [records_of(30, 2, domain=domain, shard=(index, 3), limit=7) for index in range(3)]
    together = sorted((one for shard in shards for one in shard), key=lambda o: o[1]["sequence"])
    assert together == records_of(30, 2, domain=domain)
    # The records of a turn, one of each input, are sent by one generator.
    assert [record["sequence"] for _, record in shards[1][:6]] == [3, 4, 5, 12, 13, 14]


def test_faults_and_json_are_of_the_framework(tmp_path):
    write(tmp_path, "mine.csv", *ROWS)
    domain = a_domain(tmp_path)
    faults = {"late": 0.2, "duplicate": 0.2, "undecodable": 0.2}
    clean = messages_of(a_load(100, 3, domain=domain))
    faulty = messages_of(a_load(100, 3, domain=domain, faults=faults))
    assert len(faulty) > len(clean)
    as_json = records_of(10, 1, domain=domain, content={"format": "json"})
    assert as_json == records_of(10, 1, domain=domain)
    with pytest.raises(ValueError, match="mine does not define an impossible record of readings"):
        a_plan(1, domain=domain, faults={"impossible": 0.1})


def test_rows_that_cannot_be_used_become_dead_letters_and_the_others_are_sent(tmp_path):
    write(tmp_path, "mine.csv", ROWS[0], "b,many,1,1,", ",1,1,1,", "c,3,2147483648,1.5,", "d,1,1")
    records = a_plan(1, domain=a_domain(tmp_path, "sent", "received")).records
    assert [(row.offset, row.reason) for row in records.bad_rows] == [
        (3, "count is 'many', which is not a number"),
        (4, "sensor is empty"),
        (6, "the row has more or fewer columns than the header"),
    ]


@pytest.mark.parametrize(
    ("count", "total"), [("2147483648", "1"), ("1", "9223372036854775808"), ("1", "1e300")]
)
def test_a_number_that_avro_cannot_have_is_a_bad_row(tmp_path, count, total):
    write(tmp_path, "mine.csv", ROWS[0], f"b,{count},{total},1.5,")
    (bad,) = a_plan(1, domain=a_domain(tmp_path)).records.bad_rows
    assert (bad.offset, bad.reason.split(",")[1]) == (3, " which is not possible")


def test_parquet_and_a_file_of_ones_own_with_other_names_are_read(tmp_path):
    domain = a_domain(tmp_path / "domain", recording="")
    path = tmp_path / "own.parquet"
    columns = {"who": ["x"], "count": [3], "total": [4], "degrees": [5], "remark": ["!"]}
    pq.write_table(pa.table(columns), path)
    content = {"source": "file", "path": str(path), "columns": {"sensor": "who"}}
    ((_, record),) = records_of(1, 1, domain=domain, content=content)
    assert (record["sensor"], record["count"], record["degrees"]) == ("x", 3, 5.0)
    with pytest.raises(InputError, match=r"mine has neither records\.py nor a recording"):
        a_plan(1, domain=domain)
    with pytest.raises(InputError, match="columns names 'colour'; fields are: sensor, count"):
        a_plan(1, domain=domain, content=content | {"columns": {"colour": "red"}})
    with pytest.raises(InputError, match="mine has no source 'sample'"):
        a_plan(1, domain=domain, content={"source": "sample"})
    with pytest.raises(DefinitionError, match=r"content\.keys: There is no such field"):
        a_plan(1, domain=domain, content={"keys": 3})


def test_a_column_may_be_true_or_false(tmp_path, monkeypatch):
    monkeypatch.setitem(COLUMNS, "remark", "boolean")
    write(tmp_path, "mine.csv", *(f"a,1,1,1,{flag}" for flag in ("true", "FALSE", "1", "0", "yes")))
    domain = a_domain(tmp_path)
    assert [one["remark"] for _, one in records_of(4, 1, domain=domain)] == [True, False] * 2
    (bad,) = a_plan(1, domain=domain).records.bad_rows
    assert (bad.offset, bad.reason) == (6, "remark is 'yes', which is neither true nor false")
    table = {"sensor": ["x"], "count": [3], "total": [4], "degrees": [5], "remark": [True]}
    pq.write_table(pa.table(table), tmp_path / "own.parquet")
    content = {"source": "file", "path": str(tmp_path / "own.parquet")}
    assert records_of(1, 1, domain=domain, content=content)[0][1]["remark"] is True


def test_a_replay_has_the_recorded_times_and_copies_keys(tmp_path):
    rows = ("b,2,1,1,,2026-01-01T00:00:03Z", "a,1,1,1,,2026-01-01T00:00:01Z")
    write(tmp_path, "mine.csv", *rows, header=f"{HEADER},at")
    load = Replay(speed=2)
    records = records_of(load, 3, domain=a_domain(tmp_path), content={"copies": 2})
    assert [(record["sensor"], record["at"] - START_MS) for _, record in records] == [
        ("a", 0),
        ("a#0001", 0),
        ("b", 1_000),
        ("b#0001", 1_000),
        ("a", 2_000),
        ("a#0001", 2_000),
    ]


def test_a_probe_set_is_a_row_of_each_input_later_than_the_set_before(tmp_path):
    write(tmp_path, "mine.csv", *ROWS)
    domain = a_domain(tmp_path, "sent", "received")
    plan = a_plan(1, domain=domain)
    sets = [
        [(topic, key, decoded(domain.spec, topic, value)[1]) for topic, key, value in each]
        for each in (probe_set(plan, number, 1_700_000_000_750_000) for number in range(3))
    ]
    assert [[(topic, key) for topic, key, _ in each] for each in sets] == [
        [("mine.sent", b"a"), ("mine.received", b"a")],
        [("mine.sent", b"b"), ("mine.received", b"b")],
        [("mine.sent", b"a"), ("mine.received", b"a")],
    ]
    times = [{record["at"] for _, _, record in each} for each in sets]
    assert times == [{1_699_900_000_000}, {1_699_900_001_000}, {1_699_900_002_000}]


@pytest.mark.parametrize(
    ("recording", "reason"),
    [
        ('"data/none.csv"', r"recording: there is no file data/none\.csv in the folder"),
        ('"../other.csv"', r"recording: there is no file \.\./other\.csv in the folder"),
        ('{ sent = "data/mine.csv" }', "name one for each of readings"),
        ("3", "recording must be a file"),
    ],
)
def test_a_recording_must_be_in_the_folder(tmp_path, recording, reason):
    write(tmp_path / "d", "mine.csv", *ROWS)
    (tmp_path / "other.csv").write_text(HEADER)
    with pytest.raises(DefinitionError, match=reason):
        a_domain(tmp_path / "d", recording=recording)


FAILS = """
class Records:
    turn = ("readings",)
    bad_rows = []
    def __init__(self, setup):
        {init}
    def values(self, part):
        {values}
"""


@pytest.mark.parametrize(
    ("init", "values", "reason"),
    [
        ("raise KeyError('x')", "pass", "records.py of mine fails: KeyError: 'x'"),
        ("raise SystemExit(1)", "pass", "records.py of mine fails: SystemExit: 1"),
        ("pass", "raise TypeError('y')", "records.py of mine fails: TypeError: y"),
        ("pass", "return None", "records.py of mine fails: TypeError"),
        ("pass", "return {}", "must return key, event_ms and all other values for each of 1 rec"),
        ("self.turn = None", "pass", "records.py of mine fails: TypeError"),
        ("self.turn = ('other',)", "pass", "the records of mine are not of its inputs"),
    ],
)
def test_code_that_fails_ends_the_run_with_one_sentence(tmp_path, init, values, reason):
    code = FAILS.format(init=init, values=values)
    domain = a_domain(tmp_path, recording="", code=code)
    with pytest.raises(ValueError, match=reason):
        messages_of(a_load(1, 1, domain=domain))


def test_code_that_cannot_be_imported_is_named(tmp_path):
    domain = a_domain(tmp_path, recording="", code="raise SystemExit(1)")
    with pytest.raises(DefinitionError, match=r"records\.py fails: SystemExit: 1"):
        a_plan(1, domain=domain)


def test_changed_code_is_used_at_once(tmp_path):
    code = FAILS.format(init="raise KeyError('{}')", values="pass")
    for said in ("x", "y"):
        domain = a_domain(tmp_path, recording="", code=code.format(said))
        with pytest.raises(ValueError, match=f"KeyError: '{said}'"):
            a_plan(1, domain=domain)
