"""clickhouse-sqlalchemy over HTTP."""

from typing import Any

import sqlalchemy
from reporting import Task, compared, read_task, refusal, report, rows_of_views, trees


def engine_of(task: Task, login: str, query: str = "", **settings: Any) -> sqlalchemy.Engine:
    place = f"{task['host']}:{task['port']}/{task['database']}"
    url = f"clickhouse+http://{login}@{place}{query}"
    return sqlalchemy.create_engine(url, connect_args={"ch_settings": settings})


def main() -> None:
    task = read_task()
    reader = f"{task['user']}:{task['password']}"
    engine, database = engine_of(task, reader), task["database"]

    def exact(sql: str, one: sqlalchemy.Engine = engine) -> list[Any]:
        with one.connect() as connection:
            return connection.exec_driver_sql(sql).fetchall()

    metadata = trees(task, exact)

    def inspect() -> Any:
        return sqlalchemy.inspect(engine)

    def client_parameters() -> list[str | None]:
        values = {"n": task["number"], "t": task["text"]}
        with engine.connect() as connection:
            found = connection.execute(sqlalchemy.text("SELECT :n, :t"), values).fetchone()
        return compared(found or ())

    def types() -> dict[str, Any]:
        (first,), (further,) = exact(task["types"]), exact(task["further_types"])
        return {"compared": compared(first), "further": len(further)}

    def stream() -> list[int]:
        read = total = 0
        with engine.connect().execution_options(stream_results=True) as connection:
            for (number,) in connection.exec_driver_sql(task["stream"]):
                read, total = read + 1, total + int(number)
        return [read, total]

    def keys() -> list[str]:
        one = inspect()
        one.get_pk_constraint(task["table"], database)
        one.get_foreign_keys(task["table"], database)
        one.get_indexes(task["table"], database)
        return metadata["keys"]()

    few = {"max_result_rows": task["limit"], "result_overflow_mode": "break"}
    bound = {"param_n": task["number"], "param_t": task["text"].replace("\\", "\\\\")}
    report(
        {
            "connect_without_password": lambda: int(
                exact("SELECT 1", engine_of(task, "default:"))[0][0]
            ),
            "connect_as_reader": lambda: int(exact("SELECT 1")[0][0]),
            "version": lambda: exact("SELECT version()")[0][0],
            **metadata,
            "schemas": lambda: [*inspect().get_schema_names(), *metadata["schemas"]()],
            "tables": lambda: [*inspect().get_table_names(database), *metadata["tables"]()],
            "columns": lambda: [
                *(one["name"] for one in inspect().get_columns(task["view"], database)),
                *metadata["columns"](),
            ],
            "keys": keys,
            "views": lambda: rows_of_views(task, lambda sql: len(exact(sql))),
            "types": types,
            "client_parameters": client_parameters,
            "server_parameters": lambda: compared(
                exact("SELECT {n:UInt64}, {t:String}", engine_of(task, reader, **bound))[0]
            ),
            "limit": lambda: len(
                exact("SELECT number FROM numbers(1000000)", engine_of(task, reader, **few))
            ),
            "timeout": lambda: refusal(
                lambda: exact(task["long"], engine_of(task, reader, max_execution_time=1))
            ),
            "cancel": lambda: refusal(
                lambda: exact(task["long"], engine_of(task, reader, "?timeout=1"))
            ),
            "stream": stream,
            "wrong_sql": lambda: refusal(lambda: exact(task["wrong"])),
            "write_refused": lambda: refusal(lambda: exact(task["write"])),
        }
    )


if __name__ == "__main__":
    main()
