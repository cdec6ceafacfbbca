//! `/v1/…`: the interface that OpenAI's clients speak.
//!
//! A model's name alone is a plain proxy: the caller's messages and tools, and nothing is kept. `agent/NAME` and `MODEL|TOOL|TOOL`
//! run linger's loop in a session with those tools; `X-Linger-Session` binds a request to a session that is there.
//!
//! | file | owns |
//! |---|---|
//! | `asked`, `choice` | a request in a form that both interfaces have in common, and whom it asks; its options |
//! | `names` | names of models as strangers write them |
//! | `answer`, `turn`, `repeat` | what comes back: from a completion without a session, or from a turn in one |
//! | `options`, `object`, `stream` | headers and query; objects of OpenAI's; an answer in pieces |
//! | `chat`, `responses` | the two interfaces: requests taken apart, answers put together |
//! | `native` | an answer that is the provider's own, event by event |
//! | `unsupported` | a sentence for what there is not |

mod answer;
mod asked;
mod chat;
mod choice;
mod names;
mod native;
mod object;
mod options;
mod piece;
mod repeat;
mod responses;
mod stream;
mod turn;
mod unsupported;

use hyper::Method;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use linger_protocol::agent::{Item, Status};
use linger_protocol::daemon::Model;
use serde_json::{Value, json};

use super::client::{Client, Query};
use super::reply::{Failure, Reply, json_of};
use options::RequestOptions;

/// Answers a request.
pub(super) async fn route(
    client: Client,
    method: &Method,
    parts: &[&str],
    query: &Query,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Reply, Failure> {
    let options = RequestOptions::read(headers, query);
    match (method, parts) {
        (&Method::POST, ["chat", "completions"]) => chat::answer(client, options, body).await,
        (&Method::POST, ["responses"]) => responses::answer(client, options, body).await,
        (&Method::GET, ["models"]) => models(client, options).await,
        (&Method::GET, ["models", name @ ..]) => model(client, options, &name.join("/")).await,
        (&Method::GET, ["tools"]) => tools(client, options).await,
        (_, ["chat", "completions"] | ["responses"]) => Err(Failure::wrong_method("POST")),
        (_, ["models", ..] | ["tools"]) => Err(Failure::wrong_method("GET")),
        (_, parts) => Err(unsupported::failure(parts)),
    }
}

/// A failure in OpenAI's form.
pub(super) fn error(failure: &Failure) -> String {
    object::error_value(failure).to_string()
}

/// A row of `/v1/models`.
fn row(id: &str, by: &str) -> Value {
    json!({ "id": id, "object": "model", "created": 0, "owned_by": by })
}

/// A row with the sizes of the model, by the names that OpenRouter and vLLM have for them and clients read.
fn with_limits(mut row: Value, model: &Model) -> Value {
    let limits = [
        ("context_length", model.context_window),
        ("max_model_len", model.context_window),
        ("max_output_tokens", model.max_output),
    ];
    if let Some(fields) = row.as_object_mut() {
        fields.extend(limits.into_iter().filter_map(|(name, limit)| Some((name.to_owned(), limit?.into()))));
    }
    row
}

/// The models that can be used, their aliases, and the agents of the directory.
async fn rows(client: &mut Client, options: &RequestOptions) -> Result<Vec<Value>, Failure> {
    let models: Vec<Model> = client.wire.get("model/list", json!({ "all": true })).await?;
    let usable = models.iter().filter(|model| model.ready && model.problem.is_none());
    let by = |model: &Model| model.model.split('/').next().unwrap_or_default().to_owned();
    let mut rows: Vec<Value> = usable.map(|model| with_limits(row(&model.model, &by(model)), model)).collect();
    let aliases = client.gateway.models.iter();
    let aliases: Vec<Value> = aliases.map(|(alias, model)| alias_row(&rows, alias, model)).collect();
    rows.extend(aliases);
    if let Some(cwd) = options.directory(client) {
        let agents: Vec<Item> =
            client.wire.get("agent/list", json!({ "cwd": linger_protocol::path::text(&cwd) })).await?;
        let active = agents.iter().filter(|agent| agent.status == Status::Active);
        rows.extend(active.map(|agent| row(&format!("agent/{}", agent.name), "linger")));
    }
    Ok(rows)
}

/// The row of an alias: its model's, under another name.
fn alias_row(rows: &[Value], alias: &str, model: &str) -> Value {
    let found = rows.iter().find(|row| row.get("id").is_some_and(|id| id == model));
    let mut row = found.cloned().unwrap_or_else(|| row(model, "linger"));
    if let Some(id) = row.get_mut("id") {
        *id = alias.into();
    }
    row
}

async fn models(mut client: Client, options: RequestOptions) -> Result<Reply, Failure> {
    let data = rows(&mut client, &options).await?;
    json_of(&json!({ "object": "list", "data": data }))
}

async fn model(mut client: Client, options: RequestOptions, name: &str) -> Result<Reply, Failure> {
    if name.starts_with("agent/") {
        options.required_directory(&client)?;
    }
    let found = rows(&mut client, &options).await?.into_iter().find(|row| row.get("id").is_some_and(|id| id == name));
    let none =
        || Failure::not_found(format!("no model '{name}' can be used")).hint("`GET /v1/models` lists those that can");
    json_of(&found.ok_or_else(none)?)
}

/// The tools that `MODEL|TOOL` can name.
async fn tools(mut client: Client, options: RequestOptions) -> Result<Reply, Failure> {
    let tools: Value = client
        .wire
        .get("tool/list", json!({ "cwd": options.directory(&client).as_deref().map(linger_protocol::path::text) }))
        .await?;
    json_of(&json!({ "object": "list", "data": tools }))
}
