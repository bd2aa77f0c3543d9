"""Recordings in JSON, compressed ones, and folders: the value of every row, or one sentence."""

import gzip
import json
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.definitions import recordings
from services.definitions.recordings import FieldSpec, read_rows
from services.definitions.row_files import MAX_LINE, InputError

pytestmark = pytest.mark.unit

FIELDS = (
    FieldSpec("customer", "text"),
    FieldSpec("amount", "number"),
    FieldSpec("note", "text", ""),
)
TIMED = (*FIELDS, FieldSpec("time", "time"))
WHOLE = (FieldSpec("total", "whole", None, -(2.0**63), 2.0**63 - 1024),)
FIRST, SECOND = '{"customer": "a", "amount": 1.5}', '{"customer": "b", "amount": 2}'
ROWS = [
    {"customer": "a", "amount": 1.5, "note": ""},
    {"customer": "b", "amount": 2.0, "note": ""},
]
NOON_US = 1_767_268_800_000_000
STATE = [
    "3c6444",
    "DLH1",
    "Germany",
    1,
    2,
    8.5,
    50.0,
    900,
    False,
    100,
    0,
    0,
    None,
    1,
    "7",
    False,
    0,
]


def zstd(content):
    return pa.compress(content, codec="zstd", asbytes=True)


def a_file(tmp_path, content, name="mine.json"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(tmp_path, content, fields=FIELDS, name="mine.json", unit="", **columns):
    return read_rows(a_file(tmp_path, content, name), fields, columns, unit)


def refusal(path, fields=FIELDS, **columns):
    with pytest.raises(InputError) as raised:
        read_rows(path, fields, columns)
    text = str(raised.value)
    assert text.endswith(".")
    assert "\n" not in text
    return text.removeprefix(str(path))


@pytest.mark.parametrize(
    "content",
    [
        f"{FIRST}\n{SECOND}\n",
        f"{FIRST}\r\n{SECOND}",
        f"\n \n{FIRST}\n\n{SECOND}\n\n",
        f"\ufeff{FIRST}\n\ufeff{SECOND}\n",
        f"[{FIRST},{SECOND}]",
        f"\ufeff  [\n{FIRST},\n{SECOND}\n]\n",
        f"\n\n[{FIRST}]\n[]\n[{SECOND}]",
        f"{' ' * 100_000}[{FIRST},{SECOND}]",
        "\n".join(json.dumps(json.loads(each), indent=2) for each in (FIRST, SECOND)),
        json.dumps([json.loads(FIRST), json.loads(SECOND)], indent=4),
    ],
    ids=["lines", "crlf", "empty lines", "marks", "array", "spread", "arrays", "far", "jq", "tidy"],
)
def test_objects_in_every_form_are_the_same_rows(tmp_path, content):
    for number, form in enumerate((bytes, gzip.compress, zstd)):
        result = read(tmp_path, form(content.encode()), name=f"{number}.json")
        assert (result.rows, result.bad_rows) == (ROWS, [])


def test_csv_may_be_compressed_and_gzip_have_several_members(tmp_path):
    header, line = b"customer,amount\na,1.5\n", b"b,2\n"
    content = gzip.compress(header) + gzip.compress(line)
    assert read(tmp_path, content, name="mine.csv.gz").rows == ROWS
    assert read(tmp_path, zstd(header + line), name="mine.csv").rows == ROWS


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"customer": "b"', "the line ends within a value"),
        ('{"customer": "b', "the line ends within a value"),
        ('{"customer": b, "amount": 1}', "it is not JSON: expecting value at character 14"),
        (f"{SECOND},", "it is not JSON: extra data at character 31"),
        (f"{SECOND}{SECOND}", "it is not JSON: extra data at character 31"),
        ("[1, 2]", "it is not an object"),
        ("null", "it is not an object"),
        ('"text"', "it is not an object"),
        ("[" * 5_000, "the value is nested too deeply"),
        ('{"customer": "b"}', "amount is missing"),
        ('{"customer": "b", "amount": null}', "amount is empty"),
        ('{"customer": "", "amount": 1}', "customer is empty"),
        ('{"customer": "b", "amount": "x"}', "amount is 'x', which is not a number"),
        ('{"customer": "b", "amount": true}', "amount is 'True', which is not a number"),
        ('{"customer": "b", "amount": NaN}', "amount is nan, which is not possible"),
        ('{"customer": "b", "amount": -Infinity}', "amount is -inf, which is not possible"),
        ('{"customer": "b", "amount": 1e400}', "amount is inf, which is not possible"),
        (f'{{"customer": "b", "amount": {"9" * 5_000}}}', "amount is inf, which is not possible"),
        ('{"customer": ["b"], "amount": 1}', "customer is not a single value"),
        ('{"customer": {"b": 1}, "amount": 1}', "customer is not a single value"),
        ('{"customer": "\\ud800", "amount": 1}', "customer has half of a surrogate pair, which"),
        ('{"amount": 1, "customer": "b", "amount": 2}', "the column amount occurs twice"),
        ('{"amount": 1, "customer": "b", "Amount": 2}', "the columns 'amount' and 'Amount' differ"),
        ('{"customer": "b", "Amount": 1}', "has no column 'amount', but 'Amount'"),
        ('{"customer": "b", "amount": 1, "Note": "x"}', "has no column 'note', but 'Note'"),
    ],
)
def test_a_mistake_costs_its_line_alone(tmp_path, line, reason):
    result = read(tmp_path, f"{FIRST}\n\n{line}\n{SECOND}\n")

    assert result.rows == ROWS
    (bad,) = result.bad_rows
    assert (bad.topic, bad.offset) == (str(tmp_path / "mine.json"), 3)
    assert bad.reason.startswith(reason)


def test_a_mistake_of_a_value_costs_its_object_alone_in_an_array(tmp_path):
    result = read(tmp_path, f'[{FIRST},\n{{"customer": "x"}}, 7,\n{SECOND}]')

    assert result.rows == ROWS
    assert [(bad.offset, bad.reason) for bad in result.bad_rows] == [
        (2, "object 2: amount is missing"),
        (2, "object 3: it is not an object"),
    ]


def test_a_name_that_nobody_reads_may_occur_twice(tmp_path):
    assert read(tmp_path, '{"x": 1, "customer": "a", "x": 2, "amount": 1.5}').rows == ROWS[:1]


def packed(content: bytes) -> bytes:
    """Without the time, so that each process that collects tests has the same names of them."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", " has no rows."),
        (b"[]", " has no rows."),
        (b'{"time": 1, "states": null}', " has no rows."),
        (FIRST[:20], " has no usable row; line 1: the line ends within a value"),
        (FIRST[:17], ", line 1: the file ends within a value"),
        (f"[{FIRST},\n{SECOND}", ", line 2: the array has neither a comma nor an end here"),
        (f"[{FIRST},\n{SECOND[:20]}", ", line 2: the file ends within a value"),
        (f"[{FIRST}\n{SECOND}]", ", line 2: the array has neither a comma nor an end here"),
        (f"[{FIRST},\n]", ", line 2: expecting value at character 1"),
        (f"[{FIRST},\n  {{customer: 1}}, {SECOND}]", ", line 2: expecting property name enclosed"),
        (f"[{FIRST}, {{'customer': 1}}, {SECOND}]", "quotes at character 37"),
        ("[" * 5_000, ", line 1: the value is nested too deeply"),
        ("[7]", " has no usable row; line 1: object 1: it is not an object"),
        ('{"customer": "a"}', " has no usable row; line 1: amount is missing"),
        (f"{FIRST}\n".encode() + b'{"customer": "M\xfcller"}\n', " is not in UTF-8 (line 2)"),
        (FIRST.encode("utf-16"), " is in UTF-16; save it as UTF-8"),
        (packed(FIRST.encode())[:-5], " is cut off: its gzip stream has no end"),
        (zstd(FIRST.encode())[:-5], " is cut off: its zstd stream has no end"),
        (b"\x1f\x8b\x08xxxxxxxxxx", " is not a gzip file that can be read"),
        (packed(packed(FIRST.encode())), " is compressed; decompress it first"),
        (packed(b"PAR1xxxx"), " is compressed Parquet; decompress it first"),
        (f'{{"customer": "{"a" * MAX_LINE}"}}', ", line 1 is longer than 16777216 characters"),
        (f'[{{"customer": "{"a" * MAX_LINE}"}}]', ", line 1: a value is longer than 16777216"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(tmp_path, content, why):
    assert why in refusal(a_file(tmp_path, content))


def test_a_bomb_without_ends_of_lines_is_refused_while_it_is_decompressed(tmp_path):
    for number, start in enumerate((b'{"customer": "', b'[{"customer": "', b"customer,amount,")):
        path = a_file(tmp_path, zstd(start + b"a" * 200_000_000), f"bomb{number}.zst")
        tracemalloc.start()
        try:
            assert " longer than 16777216 characters" in refusal(path)
            assert tracemalloc.get_traced_memory()[1] < 180_000_000
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(("before", "between", "after"), [("", "\n", "\n"), ("[", ",", "]")])
def test_what_is_not_kept_of_a_file_takes_no_memory(tmp_path, before, between, after):
    one = json.dumps({"customer": "a", "amount": 1.5, "other": "x" * 10_000})
    content = before + between.join([one] * 3_000) + after
    path = a_file(tmp_path, gzip.compress(content.encode(), 1), "mine.gz")
    tracemalloc.start()
    try:
        assert len(read_rows(path, FIELDS, {}).rows) == 3_000
        assert tracemalloc.get_traced_memory()[1] < 5_000_000  # of 30 MB
    finally:
        tracemalloc.stop()


def test_the_text_of_unusable_rows_is_kept_up_to_a_bound(tmp_path):
    line = json.dumps({"customer": "a", "amount": "x" * 1_000_000})
    bad = read(tmp_path, "\n".join([FIRST, *[line] * 80])).bad_rows

    assert len(bad) == 80
    kept = [len(each.value) for each in bad if each.value is not None]
    assert kept == [900_000] * (recordings.KEPT_BYTES // 900_000)
    assert all("which is not a number" in each.reason for each in bad)


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("9007199254740993", 2**53 + 1),
        ("9007199254740993.0", 2**53 + 1),
        ('"9007199254740993"', 2**53 + 1),
        ("-9223372036854775808", -(2**63)),
        ("1.0E3", 1_000),
    ],
)
def test_whole_numbers_are_exact(tmp_path, number, value):
    assert read(tmp_path, f'{{"total": {number}}}', WHOLE).rows == [{"total": value}]


@pytest.mark.parametrize(
    ("time", "unit"),
    [
        ("1767268800000", ""),
        ("1767268800000.0", ""),
        ("1.7672688E12", ""),
        ("1767268800", "s"),
        ('"2026-01-01T12:00:00Z"', ""),
    ],
)
def test_times_are_numbers_in_their_unit_or_text(tmp_path, time, unit):
    (row,) = read(tmp_path, f'{FIRST[:-1]}, "time": {time}}}', TIMED, unit=unit).rows
    assert row["time"] == NOON_US


@pytest.mark.parametrize(
    ("time", "why"),
    [
        ("1767268800", "looks like seconds since 1970 (2026-01-01)"),
        ("1767268800.25", "looks like seconds since 1970 (2026-01-01)"),
        ("15", "whose unit is not clear"),
        ("NaN", "time is nan, which is not a time"),
        ("1e400", "time is inf, which is not a time"),
        ("true", "which is not a time"),
        ("9" * 5_000, "which is not a time"),
    ],
)
def test_times_of_another_unit_are_refused(tmp_path, time, why):
    assert why in refusal(a_file(tmp_path, f'{FIRST[:-1]}, "time": {time}}}'), TIMED)


def test_a_fraction_of_a_second_is_exact_to_the_microsecond(tmp_path):
    line = f'{FIRST[:-1]}, "time": 1767268800.250001}}'
    assert read(tmp_path, line, TIMED, unit="s").rows[0]["time"] == NOON_US + 250_001


def test_a_column_of_another_name_may_be_missing_in_some_objects_but_not_in_all(tmp_path):
    content = f'{FIRST}\n{{"customer": "b", "amount": 2, "remark": "x"}}\n'
    assert [row["note"] for row in read(tmp_path, content, note="remark").rows] == ["", "x"]
    assert " has no object with 'remarks'." in refusal(tmp_path / "mine.json", note="remarks")


def test_other_names_of_a_column_are_used_if_its_own_is_not_there(tmp_path):
    fields = (FieldSpec("customer", "text", other_names=("who", "client")),)
    lines = ['{"client": "c"}', '{"who": "w", "client": "c"}', '{"customer": "x", "who": "w"}']
    rows = read(tmp_path, "\n".join(lines), fields).rows
    assert [row["customer"] for row in rows] == ["c", "w", "x"]
    assert read(tmp_path, "client\nc\n", fields, "mine.csv").rows == [{"customer": "c"}]
    pq.write_table(pa.table({"who": ["w"]}), tmp_path / "mine.parquet")
    assert read_rows(tmp_path / "mine.parquet", fields, {}).rows == [{"customer": "w"}]


def test_the_files_of_a_folder_are_read_by_name_whatever_their_forms(tmp_path):
    a_file(tmp_path, "customer,amount\nc,3\n,4\n", "3.csv")
    a_file(tmp_path, gzip.compress(f"[{SECOND}]".encode()), "2.json.gz")
    pq.write_table(pa.table({"customer": ["a"], "amount": [1.5]}), tmp_path / "1.parquet")
    a_file(tmp_path, "[]", "4.json")
    for name in (".hidden", "_SUCCESS"):
        a_file(tmp_path, "", name)
    (tmp_path / "inner").mkdir()
    result = read_rows(tmp_path, FIELDS, {})

    assert [row["customer"] for row in result.rows] == ["a", "b", "c"]
    (bad,) = result.bad_rows
    assert (bad.topic, bad.offset, bad.reason) == (
        str(tmp_path / "3.csv"),
        3,
        "customer is empty",
    )


def test_a_folder_is_refused_by_its_file_that_cannot_be_read(tmp_path):
    assert refusal(tmp_path) == " has no files."
    a_file(tmp_path, '{"customer": "a"}', "1.json")
    assert " has no usable row; 1.json, line 1: amount is missing." in refusal(tmp_path)
    a_file(tmp_path, "notes", "README")
    assert refusal(tmp_path).startswith("/README has no column 'customer'")
    assert refusal(tmp_path / "none.json").startswith(" cannot be read: No such file")


def test_the_states_of_answers_are_rows_in_seconds(tmp_path):
    fields = (FieldSpec("icao24", "text"), FieldSpec("time_position", "time"))
    answer = {
        "time": 3,
        "states": [STATE, [*STATE, 4], [*STATE, 4, "new"], {"icao24": "b"}, STATE[:16]],
    }
    for number, content in enumerate(
        (json.dumps(answer), json.dumps(answer, indent=1), json.dumps([answer]))
    ):
        result = read(tmp_path, content, fields, f"{number}.json")
        assert result.rows == [{"icao24": "3c6444", "time_position": 1_000_000}] * 3
        assert [bad.reason.removeprefix("object 1: ") for bad in result.bad_rows] == [
            "state 4: time_position is missing",
            "state 5: it has 16 values; a state of OpenSky has 17 or 18",
        ]
    moments = read(tmp_path, json.dumps(answer), fields, time_position="time").rows
    assert [row["time_position"] for row in moments] == [3_000_000] * 4
    milliseconds = read(tmp_path, json.dumps(answer), fields, unit="ms").rows
    assert milliseconds[0]["time_position"] == 1_000


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    objects=st.lists(st.dictionaries(st.text(), VALUES, max_size=4), min_size=1, max_size=5),
    indent=st.none() | st.integers(0, 3),
    form=st.sampled_from(["lines", "array"]),
)
@example(objects=[{}], indent=None, form="lines")
def test_every_text_that_json_writes_has_the_rows_it_was_written_from(
    tmp_path_factory, objects, indent, form
):
    named = [{"customer": f"c{number}"} | each for number, each in enumerate(objects)]
    named = [
        {k: v for k, v in each.items() if k.strip().casefold() != "customer"} for each in named
    ]
    named = [{"customer": f"c{number}"} | each for number, each in enumerate(named)]
    content = (
        json.dumps(named, indent=indent)
        if form == "array"
        else "\n".join(json.dumps(each, indent=indent) for each in named)
    )
    path = a_file(tmp_path_factory.getbasetemp(), content, "drawn.json")
    rows = read_rows(path, FIELDS[:1], {}).rows
    assert rows == [{"customer": f"c{number}"} for number in range(len(objects))]


@given(content=st.binary(max_size=200) | st.text('{}[]",:\\n 0123456789eE.-tfnul\n', max_size=80))
@example(content='{"customer": 1}\n{')
@example(content='[{"customer": 1}, {"customer"')
def test_any_content_gives_rows_or_one_sentence(tmp_path_factory, content):
    path = a_file(tmp_path_factory.getbasetemp(), content, "any.json")
    reason = ""
    try:
        rows = read_rows(path, FIELDS[:1], {}).rows
    except InputError as error:
        rows, reason = [], str(error).removeprefix(str(path))
    assert bool(rows) != reason.endswith(".")
    assert "\n" not in reason
