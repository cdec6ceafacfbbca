//! `/v1/…`: the interface that OpenAI's clients speak.
//!
//! A model's name alone is a plain proxy: the caller's messages and tools, and nothing is kept. `agent/NAME` and `MODEL|TOOL|TOOL`
//! run linger's loop in a session with those tools; `X-Linger-Session` binds a request to a session that is there.
//!
//! | file | owns |
//! |---|---|
//! | `asked` | a request in a form that both interfaces have in common, and whom it asks |
//! | `answer` | what comes back: from a session, or from a completion without one |
//! | `options`, `object`, `stream` | headers and query; objects of OpenAI's; an answer in pieces |
//! | `chat`, `responses` | the two interfaces: requests taken apart, answers put together |

mod answer;
mod asked;
mod chat;
mod object;
mod options;
mod responses;
mod stream;

use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Method, StatusCode};
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
        (_, ["chat", "completions"] | ["responses"]) => Err(wrong_method("POST")),
        (_, ["models", ..] | ["tools"]) => Err(wrong_method("GET")),
        _ => Err(Failure::not_found("there is nothing under this path").hint("`linger help http` lists what there is")),
    }
}

fn wrong_method(method: &str) -> Failure {
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", format!("this takes {method}"))
}

/// A failure in OpenAI's form.
pub(super) fn error(failure: &Failure) -> String {
    object::error_value(failure).to_string()
}

/// A row of `/v1/models`.
fn row(id: &str, by: &str) -> Value {
    json!({ "id": id, "object": "model", "created": 0, "owned_by": by })
}

/// The models that can be used, and the agents of the directory.
async fn rows(client: &mut Client, options: &RequestOptions) -> Result<Vec<Value>, Failure> {
    let models: Vec<Model> = client.wire.get("model/list", json!({ "all": true })).await?;
    let usable = models.iter().filter(|model| model.ready && model.problem.is_none());
    let by = |model: &Model| model.model.split('/').next().unwrap_or_default().to_owned();
    let mut rows: Vec<Value> = usable.map(|model| row(&model.model, &by(model))).collect();
    if let Some(cwd) = options.directory(client) {
        let agents: Vec<Item> = client.wire.get("agent/list", json!({ "cwd": cwd })).await?;
        let active = agents.iter().filter(|agent| agent.status == Status::Active);
        rows.extend(active.map(|agent| row(&format!("agent/{}", agent.name), "linger")));
    }
    Ok(rows)
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
    let tools: Value = client.wire.get("tool/list", json!({ "cwd": options.directory(&client) })).await?;
    json_of(&json!({ "object": "list", "data": tools }))
}
