"""clickhouse-connect: rows, pandas, Arrow, and its dialect of SQLAlchemy as Superset uses it."""

import sys
from collections.abc import Callable
from typing import Any

import clickhouse_connect
import pandas
import sqlalchemy
from clickhouse_connect.driver.client import Client
from reporting import (
    Task,
    compared,
    names,
    read_task,
    refusal,
    report,
    rows_of_views,
    trees,
)

Operations = dict[str, Callable[[], Any]]


def client_of(task: Task, **options: Any) -> Client:
    login = {"username": task["user"], "password": task["password"]}
    place = {"host": task["host"], "port": task["port"], "database": task["database"]}
    return clickhouse_connect.get_client(**place | login | options)


def impatient(task: Task) -> str:
    """A client that goes away after a second, which ends its query."""
    client = client_of(task, send_receive_timeout=1, query_retries=0)
    return refusal(lambda: client.query(task["long"]))


def by_rows(task: Task) -> Operations:
    client = client_of(task)
    binding = {"n": task["number"], "t": task["text"]}

    def rows(sql: str) -> Any:
        return client.query(sql).result_rows

    def types() -> dict[str, Any]:
        (first,), (further,) = rows(task["types"]), rows(task["further_types"])
        return {"compared": compared(first), "further": len(further)}

    def stream() -> list[int]:
        read = total = 0
        with client.query_rows_stream(task["stream"]) as found:
            for (number,) in found:
                read, total = read + 1, total + number
        return [read, total]

    return {
        "connect_without_password": lambda: nameless(task).query("SELECT 1").first_row[0],
        "connect_as_reader": lambda: client.query("SELECT 1").first_row[0],
        "version": lambda: client.server_version,
        **trees(task, rows),
        "views": lambda: rows_of_views(task, lambda sql: len(rows(sql))),
        "types": types,
        "client_parameters": lambda: compared(
            client.query("SELECT %(n)s, %(t)s", binding).first_row
        ),
        "server_parameters": lambda: compared(
            client.query("SELECT {n:UInt64}, {t:String}", binding).first_row
        ),
        "limit": lambda: len(
            client_of(task, query_limit=task["limit"])
            .query("SELECT number FROM numbers(1000000)")
            .result_rows
        ),
        "timeout": lambda: refusal(
            lambda: client.query(task["long"], settings={"max_execution_time": 1})
        ),
        "cancel": lambda: impatient(task),
        "stream": stream,
        "wrong_sql": lambda: refusal(lambda: rows(task["wrong"])),
        "write_refused": lambda: refusal(lambda: client.command(task["write"])),
    }


def nameless(task: Task) -> Client:
    return client_of(task, username="default", password="")


def by_pandas(task: Task) -> Operations:
    client = client_of(task)

    def types() -> dict[str, Any]:
        first = client.query_df(task["types"]).iloc[0].tolist()
        first = [None if pandas.isna(value) else value for value in first]
        further = client.query_df(task["further_types"])
        return {"compared": compared(first), "further": len(further.iloc[0])}

    def stream() -> list[int]:
        read = total = 0
        with client.query_df_stream(task["stream"]) as found:
            for frame in found:
                read, total = read + len(frame), total + int(frame["number"].sum())
        return [read, total]

    def frame(sql: str, **options: Any) -> Any:
        return client.query_df(sql, **options)

    return by_rows(task) | {
        "connect_without_password": lambda: int(nameless(task).query_df("SELECT 1 AS a")["a"][0]),
        "views": lambda: rows_of_views(task, lambda sql: len(frame(sql))),
        **trees(task, lambda sql: frame(sql).itertuples(index=False)),
        "types": types,
        "stream": stream,
        "wrong_sql": lambda: refusal(lambda: frame(task["wrong"])),
        "timeout": lambda: refusal(lambda: frame(task["long"], settings={"max_execution_time": 1})),
    }


def by_arrow(task: Task) -> Operations:
    client = client_of(task)

    def table(sql: str, **options: Any) -> Any:
        return client.query_arrow(sql, use_strings=True, **options)

    def types() -> dict[str, Any]:
        first = [column[0].as_py() for column in table(task["types"]).columns]
        return {"compared": compared(first), "further": table(task["further_types"]).num_columns}

    def stream() -> list[int]:
        read = total = 0
        with client.query_arrow_stream(task["stream"]) as found:
            for batch in found:
                numbers = batch.column("number")
                read, total = read + batch.num_rows, total + sum(numbers.to_pylist())
        return [read, total]

    return by_rows(task) | {
        "connect_without_password": lambda: (
            nameless(task).query_arrow("SELECT 1 AS a").column(0).to_pylist()[0]
        ),
        "views": lambda: rows_of_views(task, lambda sql: table(sql).num_rows),
        "types": types,
        "stream": stream,
        "wrong_sql": lambda: refusal(lambda: table(task["wrong"])),
        "timeout": lambda: refusal(lambda: table(task["long"], settings={"max_execution_time": 1})),
    }


def engine_of(task: Task, login: str, query: str = "") -> sqlalchemy.Engine:
    place = f"{task['host']}:{task['port']}/{task['database']}"
    return sqlalchemy.create_engine(f"clickhousedb+connect://{login}@{place}{query}")


def by_sqlalchemy(task: Task) -> Operations:
    reader = f"{task['user']}:{task['password']}"
    engine = engine_of(task, reader)
    database = task["database"]
    trees_of = task["trees"]

    def rows(sql: str, one: sqlalchemy.Engine = engine, **values: Any) -> list[Any]:
        with one.connect() as connection:
            return connection.execute(sqlalchemy.text(sql), values).fetchall()

    def exact(sql: str) -> list[Any]:
        """Without SQLAlchemy's own parameters: what SQL Lab sends."""
        with engine.connect() as connection:
            return connection.exec_driver_sql(sql).fetchall()

    def inspected(operation: str, found: list[str]) -> list[str]:
        return [*found, *names(exact, trees_of[operation])]

    def inspect() -> Any:
        return sqlalchemy.inspect(engine)

    def stream() -> list[int]:
        read = total = 0
        with engine.connect().execution_options(stream_results=True) as connection:
            for (number,) in connection.execute(sqlalchemy.text(task["stream"])):
                read, total = read + 1, total + number
        return [read, total]

    def types() -> dict[str, Any]:
        (first,), (further,) = exact(task["types"]), exact(task["further_types"])
        return {"compared": compared(first), "further": len(further)}

    def keys() -> list[str]:
        one = inspect()
        one.get_pk_constraint(task["table"], database)
        one.get_foreign_keys(task["table"], database)
        one.get_indexes(task["table"], database)
        return names(exact, trees_of["keys"])

    def server_parameters() -> list[str | None]:
        table = "SELECT {n:UInt64}, {t:String}"
        with engine.connect() as connection:
            cursor = connection.connection.cursor()
            client = cursor.client
            binding = {"n": task["number"], "t": task["text"]}
            return compared(client.query(table, binding).first_row)

    return {
        "connect_without_password": lambda: rows("SELECT 1", engine_of(task, "default:"))[0][0],
        "connect_as_reader": lambda: rows("SELECT 1")[0][0],
        "version": lambda: rows("SELECT version()")[0][0],
        "catalogs": lambda: inspected("catalogs", []),
        "schemas": lambda: inspected("schemas", inspect().get_schema_names()),
        "tables": lambda: inspected(
            "tables",
            [*inspect().get_table_names(database), *inspect().get_view_names(database)],
        ),
        "columns": lambda: inspected(
            "columns", [one["name"] for one in inspect().get_columns(task["view"], database)]
        ),
        "keys": keys,
        "functions": lambda: names(exact, trees_of["functions"]),
        "views": lambda: rows_of_views(task, lambda sql: len(exact(sql))),
        "types": types,
        "client_parameters": lambda: compared(
            rows("SELECT :n, :t", n=task["number"], t=task["text"])[0]
        ),
        "server_parameters": server_parameters,
        "limit": lambda: len(
            rows(
                "SELECT number FROM numbers(1000000)",
                engine_of(task, reader, f"?query_limit={task['limit']}"),
            )
        ),
        "timeout": lambda: refusal(
            lambda: rows(task["long"], engine_of(task, reader, "?ch_max_execution_time=1"))
        ),
        "cancel": lambda: refusal(
            lambda: rows(
                task["long"], engine_of(task, reader, "?send_receive_timeout=1&query_retries=0")
            )
        ),
        "stream": stream,
        "wrong_sql": lambda: refusal(lambda: rows(task["wrong"])),
        "write_refused": lambda: refusal(lambda: rows(task["write"])),
    }


def main() -> None:
    variants = {
        "rows": by_rows,
        "pandas": by_pandas,
        "arrow": by_arrow,
        "sqlalchemy": by_sqlalchemy,
    }
    task = read_task()
    report(variants[sys.argv[1]](task))


if __name__ == "__main__":
    main()
