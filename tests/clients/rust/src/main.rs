//! The crate `clickhouse`, with its LZ4 compression. Reads the task from standard input.
//!
//! Its rows are Rust structs, so that views are read in a text format, which it offers too.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use clickhouse::{Client, Row};
use serde::Deserialize;
use serde_json::{json, Value};

type Found = Result<Value, Box<dyn std::error::Error>>;

#[derive(Deserialize)]
struct Task {
    host: String,
    port: u16,
    user: String,
    password: String,
    database: String,
    trees: BTreeMap<String, Vec<String>>,
    views: BTreeMap<String, String>,
    types: String,
    further_types: String,
    text: String,
    number: u64,
    limit: u64,
    long: String,
    stream: String,
    wrong: String,
    write: String,
}

#[derive(Row, Deserialize)]
struct Types {
    largest: u64,
    smallest: i64,
    half: f64,
    text: String,
    missing: Option<String>,
}

#[derive(Row, Deserialize)]
struct Bound {
    number: u64,
    text: String,
}

fn open(task: &Task, user: &str, password: &str) -> Client {
    Client::default()
        .with_url(format!("http://{}:{}", task.host, task.port))
        .with_user(user)
        .with_password(password)
        .with_database(&task.database)
}

/// The rows of a query in the format JSONCompactEachRow.
async fn lines(client: &Client, sql: &str) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    // A question mark would be a parameter.
    let query = client.query(&sql.replace('?', "??"));
    let bytes = query.fetch_bytes("JSONCompactEachRow")?.collect().await?;
    let text = String::from_utf8(bytes.to_vec())?;
    Ok(text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?)
}

async fn names(client: &Client, queries: &[String]) -> Found {
    let mut found = Vec::new();
    for sql in queries {
        let rows = lines(client, sql)
            .await
            .map_err(|error| format!("{sql}: {error}"))?;
        found.extend(rows.into_iter().map(|row| row[0].clone()));
    }
    Ok(Value::Array(found))
}

async fn views(client: &Client, task: &Task) -> Found {
    let mut found = serde_json::Map::new();
    for (view, sql) in &task.views {
        let rows = lines(client, sql)
            .await
            .map_err(|error| format!("{view}: {error}"))?;
        found.insert(view.clone(), json!(rows.len()));
    }
    Ok(Value::Object(found))
}

async fn types(client: &Client, task: &Task) -> Found {
    let first: Types = client.query(&task.types).fetch_one().await?;
    let further = lines(client, &task.further_types).await?;
    let columns = further[0].as_array().map_or(0, Vec::len);
    let compared = json!([
        first.largest.to_string(),
        first.smallest.to_string(),
        first.half.to_string(),
        first.text,
        first.missing
    ]);
    Ok(json!({ "compared": compared, "further": columns }))
}

async fn bound_by_client(client: &Client, task: &Task) -> Found {
    let query = client.query("SELECT toUInt64(?) AS number, ? AS text");
    let row: Bound = query.bind(task.number).bind(&task.text).fetch_one().await?;
    Ok(json!([row.number.to_string(), row.text]))
}

async fn bound_by_server(client: &Client, task: &Task) -> Found {
    let query = client.query("SELECT {n:UInt64} AS number, {t:String} AS text");
    let query = query.param("n", task.number).param("t", &task.text);
    let row: Bound = query.fetch_one().await?;
    Ok(json!([row.number.to_string(), row.text]))
}

async fn stream(client: &Client, task: &Task) -> Found {
    let mut cursor = client.query(&task.stream).fetch::<u64>()?;
    let (mut count, mut total) = (0u64, 0u64);
    while let Some(number) = cursor.next().await? {
        count += 1;
        total += number;
    }
    Ok(json!([count, total]))
}

async fn cancel(client: &Client, task: &Task) -> Found {
    let query = client.query(&task.long).fetch_one::<u64>();
    match tokio::time::timeout(Duration::from_secs(1), query).await {
        Err(_gone) => Ok(json!("the future was dropped")),
        Ok(found) => Err(format!("it ended before: {found:?}").into()),
    }
}

fn refusal<T>(found: Result<T, clickhouse::error::Error>) -> Found {
    match found {
        Err(error) => Ok(json!(error.to_string())),
        Ok(_rows) => Err("it was not refused".into()),
    }
}

async fn one(client: &Client) -> Found {
    Ok(json!(client.query("SELECT 1").fetch_one::<u8>().await?))
}

async fn carry_out(operation: &str, task: &Task) -> Found {
    let client = open(task, &task.user, &task.password);
    match operation {
        "connect_without_password" => one(&open(task, "default", "")).await,
        "connect_as_reader" => one(&client).await,
        "version" => Ok(json!(
            client
                .query("SELECT version()")
                .fetch_one::<String>()
                .await?
        )),
        "views" => views(&client, task).await,
        "types" => types(&client, task).await,
        "client_parameters" => bound_by_client(&client, task).await,
        "server_parameters" => bound_by_server(&client, task).await,
        "limit" => {
            let few = client
                .with_setting("max_result_rows", task.limit.to_string())
                .with_setting("result_overflow_mode", "break");
            let rows: Vec<u64> = few
                .query("SELECT number FROM numbers(1000000)")
                .fetch_all()
                .await?;
            Ok(json!(rows.len()))
        }
        "timeout" => {
            let hasty = client.with_setting("max_execution_time", "1");
            refusal(hasty.query(&task.long).fetch_one::<u64>().await)
        }
        "cancel" => cancel(&client, task).await,
        "stream" => stream(&client, task).await,
        "wrong_sql" => refusal(client.query(&task.wrong).fetch_one::<u64>().await),
        "write_refused" => refusal(client.query(&task.write).execute().await),
        tree => names(&client, &task.trees[tree]).await,
    }
}

#[tokio::main]
async fn main() {
    let mut given = String::new();
    std::io::stdin()
        .read_to_string(&mut given)
        .expect("a task on standard input");
    let task: Task = serde_json::from_str(&given).expect("a task as JSON");
    let others = "connect_without_password connect_as_reader version views types client_parameters
        server_parameters limit timeout cancel stream wrong_sql write_refused";
    let trees = task.trees.keys().map(String::as_str);
    for operation in others.split_whitespace().chain(trees) {
        let line = match carry_out(operation, &task).await {
            Ok(detail) => json!({ "operation": operation, "ok": true, "detail": detail }),
            Err(error) => {
                let detail = error.to_string();
                json!({ "operation": operation, "ok": false, "detail": detail })
            }
        };
        println!("{line}");
    }
}
