//! `/v1/…`: the interface that OpenAI's clients speak.
//!
//! A model's name alone is a plain proxy: the caller's messages and tools, and nothing is kept. `agent/NAME` and `MODEL|TOOL|TOOL`
//! run linger's loop in a session with those tools; `X-Linger-Session` binds a request to a session that is there.
//!
//! | file | owns |
//! |---|---|
//! | `asked` | a request in a form that both interfaces have in common, and whom it asks |
//! | `answer` | what comes back: from a session, or from a completion without one |
//! | `chat`, `responses` | the two interfaces: requests taken apart, answers put together |

mod answer;
mod asked;
mod chat;
mod responses;

use std::path::PathBuf;

use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use linger_protocol::agent::{Item, Status};
use linger_protocol::daemon::Model;
use linger_protocol::id::SessionId;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Duration, timeout};

use super::events::{ALIVE, COMMENT};
use super::reply::{Failure, Reply, json_of};
use super::route::{Client, Query};
use answer::{Piece, Running};

/// The session of a request, and of its answer.
const SESSION: HeaderName = HeaderName::from_static("x-linger-session");

/// The directory of the session that a request makes, where the token names none.
const DIRECTORY: HeaderName = HeaderName::from_static("x-linger-directory");

/// How long a stream waits for its first piece before it begins: what fails until then has a status of its own.
const FIRST: Duration = Duration::from_secs(10);

/// What the headers and the query of a request ask for.
struct Options {
    session: Option<SessionId>,
    directory: Option<PathBuf>,
    /// Whether all of linger's events are wanted in the stream.
    has_events: bool,
}

/// Answers a request.
pub(super) async fn route(
    client: Client,
    method: &Method,
    parts: &[&str],
    query: &Query,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Reply, Failure> {
    let text =
        |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
    let options = Options {
        session: text(&SESSION).map(SessionId::from),
        directory: text(&DIRECTORY).map(PathBuf::from),
        has_events: query.get("events") == Some("all"),
    };
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
    error_value(failure).to_string()
}

fn error_value(failure: &Failure) -> Value {
    let kind = match failure.status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "server_error",
    };
    let message = match &failure.hint {
        Some(hint) => format!("{}; {hint}", failure.message),
        None => failure.message.clone(),
    };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": failure.code } })
}

impl Options {
    /// The directory of a new session: the header's, or the token's.
    fn directory(&self, client: &Client) -> Option<PathBuf> {
        let granted = || client.wire.welcome.pointer("/grant/directory")?.as_str().map(PathBuf::from);
        self.directory.clone().or_else(granted)
    }

    /// [`Self::directory`], or a failure that says how to name one.
    fn required_directory(&self, client: &Client) -> Result<PathBuf, Failure> {
        let none = || {
            Failure::bad_request("no directory is known for the session")
                .hint("mint a token with `--dir`, or send the header X-Linger-Directory")
        };
        self.directory(client).ok_or_else(none)
    }
}

/// A row of `/v1/models`.
fn row(id: &str, by: &str) -> Value {
    json!({ "id": id, "object": "model", "created": 0, "owned_by": by })
}

/// The models that can be used, and the agents of the directory.
async fn rows(client: &mut Client, options: &Options) -> Result<Vec<Value>, Failure> {
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

async fn models(mut client: Client, options: Options) -> Result<Reply, Failure> {
    let data = rows(&mut client, &options).await?;
    json_of(&json!({ "object": "list", "data": data }))
}

async fn model(mut client: Client, options: Options, name: &str) -> Result<Reply, Failure> {
    if name.starts_with("agent/") {
        options.required_directory(&client)?;
    }
    let found = rows(&mut client, &options).await?.into_iter().find(|row| row.get("id").is_some_and(|id| id == name));
    let none =
        || Failure::not_found(format!("no model '{name}' can be used")).hint("`GET /v1/models` lists those that can");
    json_of(&found.ok_or_else(none)?)
}

/// The tools that `MODEL|TOOL` can name.
async fn tools(mut client: Client, options: Options) -> Result<Reply, Failure> {
    let tools: Value = client.wire.get("tool/list", json!({ "cwd": options.directory(&client) })).await?;
    json_of(&json!({ "object": "list", "data": tools }))
}

/// The name of an object: a word of OpenAI's, and a random one.
fn name(word: &str) -> String {
    /// The characters of the random one: 120 bits.
    const RANDOM: usize = 24;
    format!("{word}{}", crate::sys::clock::random_word(RANDOM))
}

/// The first piece of a stream that is not only an event, if it comes soon, with the events before it; a failure has its own status then.
async fn first(running: &mut Running) -> Result<Vec<Piece>, Failure> {
    let mut pieces = Vec::new();
    let begun = async {
        while let Some(piece) = running.pieces.recv().await {
            match piece {
                Piece::Failed(failure) => return Err(failure),
                piece @ Piece::Event(_) => pieces.push(piece),
                piece => {
                    pieces.push(piece);
                    break;
                }
            }
        }
        Ok(())
    };
    // A model that thinks for longer gets its stream all the same.
    timeout(FIRST, begun).await.unwrap_or(Ok(()))?;
    Ok(pieces)
}

/// The next piece of a stream; says meanwhile that it is alive. `None` at its end, and when the client has gone.
async fn next(first: &mut Vec<Piece>, running: &mut Running, sender: &mpsc::Sender<Bytes>) -> Option<Piece> {
    if !first.is_empty() {
        return Some(first.remove(0));
    }
    loop {
        tokio::select! {
            piece = running.pieces.recv() => return piece,
            () = tokio::time::sleep(ALIVE) => sender.send(Bytes::from_static(COMMENT)).await.ok()?,
            () = sender.closed() => return None,
        }
    }
}

/// One of linger's events within a stream, by a name that strict clients do not know. `first` is the field that lets OpenAI's own
/// clients pass over it: they read the data of each event, whatever its name.
fn event_line(event: &serde_json::value::RawValue, first: &str) -> Bytes {
    let fields = event.get().strip_prefix('{').unwrap_or("}");
    Bytes::from(format!("event: linger\ndata: {{{first},{fields}\n\n"))
}

/// Names the session of an answer.
fn with_session(mut reply: Reply, session: Option<&SessionId>) -> Reply {
    if let Some(value) = session.and_then(|session| HeaderValue::from_str(session.as_str()).ok()) {
        reply.headers_mut().insert(SESSION, value);
    }
    reply
}
