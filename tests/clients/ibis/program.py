"""ibis, whose backend is clickhouse-connect."""

from typing import Any

import ibis
from reporting import Task, compared, read_task, refusal, report, rows_of_views, trees


def backend_of(task: Task, **options: Any) -> Any:
    login = {"user": task["user"], "password": task["password"]}
    place = {"host": task["host"], "port": task["port"], "database": task["database"]}
    return ibis.clickhouse.connect(**place | login | options)


def main() -> None:
    task = read_task()
    one = backend_of(task)
    database = task["database"]

    def rows(sql: str, backend: Any = one, **options: Any) -> Any:
        return backend.con.query(sql, **options).result_rows

    metadata = trees(task, rows)

    def first_row(query: Any) -> Any:
        return query.to_pyarrow().to_pylist()[0].values()

    def types() -> dict[str, Any]:
        first = first_row(one.sql(task["types"]))
        return {
            "compared": compared(first),
            # It makes no Arrow array of UUIDs.
            "further": len(one.sql(task["further_types"]).to_pandas().columns),
        }

    def stream() -> list[int]:
        read = total = 0
        for batch in one.to_pyarrow_batches(one.sql(task["stream"])):
            read += batch.num_rows
            total += sum(batch.column(0).to_pylist())
        return [read, total]

    def view_rows(sql: str) -> int:
        return len(one.sql(sql).to_pandas())

    def client_parameters() -> Any:
        number, text = ibis.param("int64"), ibis.param("string")
        row = ibis.range(1).unnest().as_table().select(n=number, t=text)
        return compared(
            one.to_pyarrow(row, params={number: task["number"], text: task["text"]})
            .to_pylist()[0]
            .values()
        )

    def server_parameters() -> Any:
        values = {"n": task["number"], "t": task["text"]}
        return compared(one.con.query("SELECT {n:UInt64}, {t:String}", values).first_row)

    def tables() -> list[str]:
        return [*one.list_tables(database=database), *metadata["tables"]()]

    report(
        {
            "connect_without_password": lambda: rows(
                "SELECT 1", backend_of(task, user="default", password="")
            )[0][0],
            "connect_as_reader": lambda: rows("SELECT 1")[0][0],
            "version": lambda: one.version,
            **metadata,
            "catalogs": lambda: [*one.list_databases(), *metadata["catalogs"]()],
            "tables": tables,
            "columns": lambda: [
                *one.table(task["view"], database=database).columns,
                *metadata["columns"](),
            ],
            "views": lambda: rows_of_views(task, view_rows),
            "types": types,
            "client_parameters": client_parameters,
            "server_parameters": server_parameters,
            "limit": lambda: len(
                one.sql("SELECT number FROM numbers(1000000)").limit(task["limit"]).to_pyarrow()
            ),
            "timeout": lambda: refusal(
                lambda: one.to_pyarrow(one.sql(task["long"]), settings={"max_execution_time": 1})
            ),
            "cancel": lambda: refusal(
                lambda: backend_of(task, send_receive_timeout=1).sql(task["long"]).to_pyarrow()
            ),
            "stream": stream,
            "wrong_sql": lambda: refusal(lambda: one.sql(task["wrong"])),
            "write_refused": lambda: refusal(lambda: one.drop_table(task["table"])),
        }
    )


if __name__ == "__main__":
    main()
