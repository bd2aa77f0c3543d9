"""aiochclient, on aiohttp."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import aiohttp
from aiochclient import ChClient
from reporting import Task, compared, read_task, refusal, report, rows_of_views, trees


def main() -> None:
    task = read_task()
    report(operations(task))


def operations(task: Task) -> dict[str, Any]:
    url = f"http://{task['host']}:{task['port']}/"
    login = {"user": task["user"], "password": task["password"]}

    def asked(use: Any, **options: Any) -> Any:
        """What a function of a client gives, in an event loop and session of its own."""

        async def ask() -> Any:
            async with aiohttp.ClientSession() as session:
                given = {"database": task["database"], **login, **options}
                return await use(ChClient(session, url=url, **given))

        return asyncio.run(ask())

    def rows(sql: str, **options: Any) -> list[tuple[Any, ...]]:
        async def fetch(client: ChClient) -> list[tuple[Any, ...]]:
            return [tuple(row.values()) for row in await client.fetch(sql)]

        return asked(fetch, **options)

    def types() -> dict[str, Any]:
        (first,), (further,) = rows(task["types"]), rows(task["further_types"])
        return {"compared": compared(first), "further": len(further)}

    def client_parameters() -> list[str | None]:
        values = {"n": task["number"], "t": task["text"]}

        async def fetch(client: ChClient) -> Any:
            return await client.fetchrow("SELECT {n}, {t}", params=values)

        return compared(asked(fetch).values())

    def stream() -> list[int]:
        async def read(client: ChClient) -> list[int]:
            count = total = 0
            async for row in client.iterate(task["stream"]):
                count, total = count + 1, total + row[0]
            return [count, total]

        return asked(read)

    def cancelled() -> str:
        async def give_up(client: ChClient) -> Awaitable[Any]:
            return await asyncio.wait_for(client.fetch(task["long"]), 1)

        return refusal(lambda: asked(give_up)) or "TimeoutError"

    bound = {"param_n": task["number"], "param_t": task["text"].replace("\\", "\\\\")}
    few = {"max_result_rows": task["limit"], "result_overflow_mode": "break"}
    return {
        "connect_without_password": lambda: rows("SELECT 1", user="", password="")[0][0],
        "connect_as_reader": lambda: rows("SELECT 1")[0][0],
        "version": lambda: rows("SELECT version()")[0][0],
        **trees(task, rows),
        "views": lambda: rows_of_views(task, lambda sql: len(rows(sql))),
        "types": types,
        "client_parameters": client_parameters,
        "server_parameters": lambda: compared(rows("SELECT {n:UInt64}, {t:String}", **bound)[0]),
        "limit": lambda: len(rows("SELECT number FROM numbers(1000000)", **few)),
        "timeout": lambda: refusal(lambda: rows(task["long"], max_execution_time=1)),
        "cancel": cancelled,
        "stream": stream,
        "wrong_sql": lambda: refusal(lambda: rows(task["wrong"])),
        "write_refused": lambda: refusal(lambda: asked(lambda one: one.execute(task["write"]))),
    }


if __name__ == "__main__":
    main()
