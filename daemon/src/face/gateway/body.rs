//! The body of a request: read whole, up to a bound and within a time limit.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::{Body as _, Bytes, Incoming};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout, timeout_at};

use super::reply::Failure;

/// The largest body of JSON, in bytes: a conversation with a picture or two.
pub(super) const MAX_JSON: usize = 1 << 20;

/// How long a client may be silent in the middle of a body.
const SILENCE: Duration = Duration::from_secs(10);

/// How long a body of JSON may take in all: at 20 KB a second.
const JSON_TIME: Duration = Duration::from_secs(60);

/// Reads all of a body of up to `limit` bytes.
pub(super) async fn read(mut body: Incoming, limit: usize) -> Result<Vec<u8>, Failure> {
    let deadline = Instant::now() + JSON_TIME;
    let much = || {
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_much", format!("a request may have {limit} bytes"))
            .hint("put large things into files of the workspace, or send an artifact")
    };
    if body.size_hint().lower() > limit as u64 {
        return Err(much());
    }
    let mut bytes = Vec::new();
    while let Some(data) = next(&mut body, deadline).await? {
        if bytes.len() + data.len() > limit {
            return Err(much());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// The next bytes of a body; `None` at its end.
pub(super) async fn next(body: &mut Incoming, deadline: Instant) -> Result<Option<Bytes>, Failure> {
    let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
    let frame = timeout_at(deadline, timeout(SILENCE, frame)).await.ok().and_then(Result::ok);
    let slow = || Failure::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the request did not come whole in time");
    match frame.ok_or_else(slow)? {
        None => Ok(None),
        Some(Err(error)) => Err(Failure::bad_request(format!("the request cannot be read: {error}"))),
        Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
    }
}

/// Reads a body of JSON.
pub(super) async fn json<T: DeserializeOwned>(body: Incoming) -> Result<T, Failure> {
    let bytes = read(body, MAX_JSON).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Failure::bad_request(format!("the body is not what it should be: {error}")))
}
