// Requests to the store. At most CONCURRENT queries run at once; others are queued.

const BASE = "/dashboards/api";
const CONCURRENT = 4;
const waiting = [];
let running = 0;

/** Every dashboard file: uid, title, folder, description, tags, error. */
export const listDashboards = () => got(`${BASE}/dashboards`);

/** One dashboard file, unchanged. */
export const loadDashboard = (uid) => got(`${BASE}/dashboards/${encodeURIComponent(uid)}`);

/** The answer to one query of a dashboard: {sql, elapsed_s, result}. Throws QueryError. */
export async function ask(asked, signal) {
  await turn(signal);
  try {
    const answer = await fetch(`${BASE}/query`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(asked),
      signal,
    });
    const found = await answer.json();
    if (!answer.ok) throw new QueryError(found.error, found.sql);
    return found;
  } catch (error) {
    if (error instanceof TypeError) throw new QueryError("The store does not respond.");
    throw error;
  } finally {
    running -= 1;
    waiting.shift()?.();
  }
}

/** A query failed. sql: the query, if it got that far. */
export class QueryError extends Error {
  constructor(message, sql = "") {
    super(message);
    this.sql = sql;
  }
}

async function turn(signal) {
  while (running >= CONCURRENT) await new Promise((resolve) => waiting.push(resolve));
  if (signal?.aborted) {
    waiting.shift()?.();
    throw signal.reason;
  }
  running += 1;
}

async function got(url) {
  const answer = await fetch(url);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}
