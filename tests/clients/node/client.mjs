// @clickhouse/client for Node.js. Reads the task from standard input.
import { createClient } from "@clickhouse/client";
import { text as readAll } from "node:stream/consumers";

const task = JSON.parse(await readAll(process.stdin));

function open(username, password, settings = {}, options = {}) {
  return createClient({
    url: `http://${task.host}:${task.port}`,
    username,
    password,
    database: task.database,
    compression: { response: true },
    clickhouse_settings: settings,
    ...options,
  });
}

const reader = open(task.user, task.password);

async function rows(query, client = reader, options = {}) {
  const answer = await client.query({ query, format: "JSONCompactEachRow", ...options });
  return answer.json();
}

async function refusal(operation) {
  let found;
  try {
    found = await operation();
  } catch (error) {
    return `${error.code ?? ""} ${error.type ?? ""} ${error.message}`;
  }
  throw new Error(`it was not refused: ${JSON.stringify(found)}`);
}

async function names(queries) {
  const found = new Set();
  for (const query of queries) {
    try {
      for (const [name] of await rows(query)) found.add(String(name));
    } catch (error) {
      throw new Error(`${query}: ${error.message}`);
    }
  }
  return [...found];
}

async function views() {
  const found = {};
  for (const [view, query] of Object.entries(task.views)) {
    try {
      found[view] = (await rows(query)).length;
    } catch (error) {
      throw new Error(`${view}: ${error.message}`);
    }
  }
  return found;
}

// JavaScript's numbers do not hold 64 bits, so that integers are asked for as text.
const quoted = { clickhouse_settings: { output_format_json_quote_64bit_integers: 1 } };
const asText = (value) => (value === null ? null : String(value));

async function types() {
  const [first] = await rows(task.types, reader, quoted);
  const [further] = await rows(task.further_types, reader, quoted);
  return { compared: first.map(asText), further: further.length };
}

async function stream() {
  const answer = await reader.query({ query: task.stream, format: "JSONCompactEachRow" });
  let count = 0;
  let total = 0;
  for await (const block of answer.stream()) {
    for (const row of block) {
      count += 1;
      total += Number(row.json()[0]);
    }
  }
  return [count, total];
}

// The client binds no parameters of its own: it escapes values of the server's parameters.
async function parameters() {
  const query_params = { n: task.number, t: task.text };
  const [row] = await rows("SELECT {n:UInt64}, {t:String}", reader, { query_params });
  return row.map(asText);
}

function cancelled() {
  const abort_signal = AbortSignal.timeout(1000);
  return refusal(() => rows(task.long, reader, { abort_signal }));
}

const few = { max_result_rows: String(task.limit), result_overflow_mode: "break" };
const operations = {
  connect_without_password: async () => (await rows("SELECT 1", open("default", "")))[0][0],
  connect_as_reader: async () => {
    const found = await reader.ping();
    if (!found.success) throw found.error;
    return (await rows("SELECT 1"))[0][0];
  },
  version: async () => (await rows("SELECT version()"))[0][0],
  ...Object.fromEntries(
    Object.entries(task.trees).map(([operation, queries]) => [operation, () => names(queries)]),
  ),
  views,
  types,
  server_parameters: parameters,
  limit: async () => {
    const client = open(task.user, task.password, few);
    return (await rows("SELECT number FROM numbers(1000000)", client)).length;
  },
  timeout: () =>
    refusal(() => rows(task.long, reader, { clickhouse_settings: { max_execution_time: 1 } })),
  cancel: cancelled,
  stream,
  wrong_sql: () => refusal(() => rows(task.wrong)),
  write_refused: () => refusal(() => reader.command({ query: task.write })),
};

for (const [operation, carryOut] of Object.entries(operations)) {
  let line;
  try {
    line = { operation, ok: true, detail: await carryOut() };
  } catch (error) {
    line = { operation, ok: false, detail: `${error.code ?? ""} ${error.stack ?? error}` };
  }
  console.log(JSON.stringify(line));
}
process.exit(0);
