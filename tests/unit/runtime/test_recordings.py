"""Files of rows: what cannot be used is refused with the reason that its owner can mend."""

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from services.definitions.recordings import FieldSpec, read_rows
from services.definitions.row_files import InputError

FIELDS = (
    FieldSpec("customer", "text"),
    FieldSpec("amount", "number"),
    FieldSpec("note", "text", ""),
)
TIMED = (*FIELDS, FieldSpec("time", "time"))
GOOD = "customer,amount\nc01,10.5\n"


def a_file(tmp_path, content, name="mine.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(path, fields=FIELDS, **columns):
    with pytest.raises(InputError) as raised:
        read_rows(path, fields, columns)
    return str(raised.value).removeprefix(str(path))


@pytest.mark.parametrize(
    ("rows", "first"),
    [
        ('c01,"1,234.50"\nc02,$11.50', "line 2: amount is '1,234.50', which is not a number"),
        ("c01,$11.50\nc02,x", "line 2: amount is '$11.50', which is not a number"),
        ('c01,"10,5"', "line 2: amount is '10,5', which is not a number"),
        ("c01,NULL", "line 2: amount is 'NULL', which is not a number"),
        ("\n\nc01,\\N", "line 4: amount is '\\\\N', which is not a number"),
        ('"c\n01",x\nc02,y', "line 2: amount is 'x'"),
        ("c01,", "line 2: amount is empty"),
        (",1", "line 2: customer is empty"),
        ("c01,1,2", "line 2: the row has more or fewer columns than the header"),
        ("c01", "line 2: the row has more or fewer columns than the header"),
    ],
)
def test_a_file_without_a_usable_row_tells_the_first_line_and_its_mistake(tmp_path, rows, first):
    told = refusal(a_file(tmp_path, f"customer,amount\n{rows}\n"))

    assert told.startswith(f" has no usable row; {first}")


@pytest.mark.parametrize("time", ["01.02.2026 13:00", "2026-02-01 13:00:00 UTC", "1767225600.25"])
def test_the_first_mistake_may_be_a_time(tmp_path, time):
    told = refusal(a_file(tmp_path, f"customer,amount,time\nc01,1,{time}\n"), TIMED)

    assert told.startswith(" has no usable row; line 2: time is ")
    assert time in told


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", " is empty"),
        (b"\xef\xbb\xbf", " is empty"),
        (b"customer,amount\n\n", " has no rows after its header"),
        (GOOD.encode("utf-16"), " is in UTF-16; save it as UTF-8"),
        ("customer,amount\nc01,1\nM\u00fcller,2\n".encode("latin-1"), " is not in UTF-8 (line 3)"),
        (b"customer;amount\nc01;10,5\n", " has semicolons between its columns"),
        (b"customer\tamount\nc01\t1\n", " has tabs between its columns"),
        (b"customer|amount\nc01|1\n", " has vertical bars between its columns"),
        (b"PK\x03\x04xxxx", " is a workbook or an archive"),
        (b"\x1f\x8b\x08xxxx", " is not a gzip file that can be read"),
        (b"BZh91AY", " is compressed; decompress it first"),
        (b'[{"customer": 1}]', " has no usable row; line 1: object 1: amount is missing"),
        (b"PAR1 and no more", " is not a Parquet file that can be read"),
        (b'customer,amount\nc01,"' + b"1" * 200_000, ", line 2: a cell is too long"),
        (b"client,amount\nc,1\n", " has no column 'customer'; it has: client, amount"),
        (b"Customer,amount\nc,1\n", " has no column 'customer', but 'Customer'"),
        (b"customer,amount,Note\nc,1,x\n", " has no column 'note', but 'Note'"),
    ],
)
def test_a_file_of_another_form_is_told_apart(tmp_path, content, why):
    assert refusal(a_file(tmp_path, content)).startswith(why)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("customer,amount,customer,amount", ": the column customer occurs twice"),
        ("customer,amount, amount", ": the column amount occurs twice"),
        ("customer,amount,Amount", ": the columns 'amount' and 'Amount' differ only in case"),
        ("customer,amount,note,note,note", ": the column note occurs 3 times"),
    ],
)
def test_two_columns_of_one_name_are_refused_by_name(tmp_path, header, why):
    row = ",".join("1" * len(header.split(",")))

    assert refusal(a_file(tmp_path, f"{header}\n{row}\n")).startswith(why)


def test_parquet_with_two_columns_of_one_name_is_refused(tmp_path):
    path = tmp_path / "mine.parquet"
    names = ["customer", "amount", "customer"]
    pq.write_table(pa.table([["a"], [1.5], ["b"]], names), path)

    assert refusal(path).startswith(": the column customer occurs twice")


def test_two_columns_that_nobody_reads_refuse_nothing(tmp_path):
    read = read_rows(a_file(tmp_path, "customer,amount,x,x,,\nc01,1,2,3,,\n"), FIELDS, {})

    assert read.rows == [{"customer": "c01", "amount": 1.0, "note": ""}]


def test_spaces_around_names_and_numbers_are_no_part_of_them(tmp_path):
    read = read_rows(a_file(tmp_path, '"customer" , amount\nc01, 10.5 \n'), FIELDS, {})

    assert read.rows == [{"customer": "c01", "amount": 10.5, "note": ""}]


def test_a_quoted_cell_may_have_lines_and_commas(tmp_path):
    path = a_file(tmp_path, '\ufeffcustomer,amount,note\r\nc01,1,"a,\r\nb"\r\nc02,x,\r\n')
    read = read_rows(path, FIELDS, {})

    assert read.rows == [{"customer": "c01", "amount": 1.0, "note": "a,\r\nb"}]
    assert [(bad.offset, bad.reason) for bad in read.bad_rows] == [
        (4, "amount is 'x', which is not a number")
    ]


@pytest.mark.parametrize("later", ["", 'c400,2,"x"\r\n'])
def test_a_quotation_mark_that_is_not_closed_refuses_the_file(tmp_path, later):
    """Otherwise the rows below would be in its cell, and nobody would miss them."""
    rows = "".join(f"c{number},1,n\r\n" for number in range(300))
    path = a_file(tmp_path, f'customer,amount,note\r\nc01,1,"a\r\n{rows}{later}')
    with pytest.raises(InputError, match=r"mine\.csv, line 2: a quotation mark is not closed, or"):
        read_rows(path, FIELDS, {})


def test_a_quotation_mark_within_a_cell_is_part_of_it(tmp_path):
    path = a_file(tmp_path, 'customer,amount,note\nc01,1,5" wide\nc02,1,"a"b\n')
    assert [row["note"] for row in read_rows(path, FIELDS, {}).rows] == ['5" wide', "ab"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_every_unit_of_parquet_are_read(tmp_path, unit):
    path = tmp_path / "mine.parquet"
    noon = pa.array([datetime(2026, 1, 1, 12)], pa.timestamp("us")).cast(pa.timestamp(unit, "UTC"))
    pq.write_table(pa.table({"customer": ["a"], "amount": [1], "time": noon}), path)

    (row,) = read_rows(path, TIMED, {}).rows
    assert row["time"] == 1_767_268_800_000_000


def test_values_of_parquet_of_other_types_are_read_or_refused(tmp_path):
    path = tmp_path / "mine.parquet"
    table = {"customer": [b"a"], "amount": [Decimal("1.5")], "time": [date(2026, 1, 1)]}
    pq.write_table(pa.table(table), path)

    (row,) = read_rows(path, TIMED, {}).rows
    assert row == {"customer": "a", "amount": 1.5, "note": "", "time": 1_767_225_600_000_000}


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"amount": [True]}, " has no usable row; row 1: amount is 'True', which is not a number"),
        ({"amount": [date(2026, 1, 1)]}, " has no usable row; row 1: amount is '2026-01-01'"),
        ({"amount": [None]}, " has no usable row; row 1: amount is empty"),
        ({"customer": [["a"]]}, ": the column customer is not of single values"),
        ({"customer": [b"\xff"]}, ": the column customer has bytes that are not text in UTF-8"),
        ({"time": [1_767_268_800]}, " has no usable row; row 1: time is 1767268800, which looks"),
        ({"time": ["x"]}, " has no usable row; row 1: time is 'x', which is not a time"),
    ],
)
def test_parquet_of_wrong_types_is_refused_with_the_first_row(tmp_path, columns, why):
    path = tmp_path / "mine.parquet"
    good = {"customer": ["a"], "amount": [1.5], "time": [1_767_268_800_000]}
    pq.write_table(pa.table(good | columns), path)

    assert refusal(path, TIMED).startswith(why)
