//! `POST /rpc`: one JSON-RPC request, passed on as it is.

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::body;
use super::client::Client;
use super::reply::{Failure, Reply, text_json};
use super::wire::Trouble;

/// The methods that are about one connection: `GET /events` has what they are for.
const OF_CONNECTIONS: [&str; 7] = [
    "daemon/hello",
    "session/attach",
    "session/detach",
    "events/subscribe",
    "events/unsubscribe",
    "completion/start",
    "completion/cancel",
];

#[derive(Deserialize)]
struct Request {
    method: String,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    #[serde(default)]
    id: Option<Box<RawValue>>,
}

/// The prefix of methods that leave something at their connection.
const UPLOADS: &str = "artifact/";

/// The answer to a request, and whether its connection to the daemon is free for another one.
pub(super) async fn call(client: &mut Client, body: hyper::body::Incoming) -> Result<(Reply, bool), Failure> {
    let bytes = body::read(body, body::MAX_JSON).await?;
    let Request { method, params, id } = serde_json::from_slice(&bytes).map_err(|error| {
        let failure = Failure::bad_request(format!("the body is no JSON-RPC request: {error}"));
        failure.hint("one object with `method`, `params` and `id`; no batch")
    })?;
    if OF_CONNECTIONS.contains(&method.as_str()) {
        let failure = Failure::bad_request(format!("{method} is about one connection"));
        return Err(failure.hint("`GET /events` streams events, `POST /v1/chat/completions` asks a model"));
    }
    let id = id.as_ref().map_or("null", |id| id.get());
    let params = params.or_else(|| to_raw_value(&json!({})).ok());
    let mut answered = client.wire.ask(&method, &params).await;
    if let Err(Trouble::Unsent) = answered {
        // The daemon closed the connection after the request before.
        client.reconnect().await?;
        answered = client.wire.ask(&method, &params).await;
    }
    let answer = match answered {
        Ok(result) => format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{}}}", result.get()),
        Err(Trouble::Refused(error)) => {
            let error = json!(error);
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}")
        }
        Err(lost @ (Trouble::Unsent | Trouble::Lost)) => return Err(lost.into()),
    };
    Ok((text_json(StatusCode::OK, answer), !method.starts_with(UPLOADS)))
}
