//! Responses: bodies, failures and what they are on the wire.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use linger_protocol::RpcError;
use linger_protocol::error::Code;
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;

/// A response of the gateway, whole or streaming.
pub(super) type Reply = Response<Body>;

/// How many pieces of a stream may wait until the client reads: the reader of the daemon's socket stops then, and the daemon holds
/// a position.
const WAITING: usize = 4;

/// The body of a response.
pub(super) enum Body {
    /// All of it.
    Full(Option<Bytes>),
    /// Pieces as they come; the client is gone when the sender sees it closed.
    Stream(mpsc::Receiver<Bytes>),
}

impl Body {
    pub(super) fn full(bytes: impl Into<Bytes>) -> Self {
        Self::Full(Some(bytes.into()).filter(|bytes: &Bytes| !bytes.is_empty()))
    }

    /// A body that streams, and where its pieces go.
    pub(super) fn stream() -> (mpsc::Sender<Bytes>, Self) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (sender, Self::Stream(receiver))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(pieces) => pieces.poll_recv(cx).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// A request that is refused or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    /// For programs.
    pub(super) code: String,
    /// One line for people.
    pub(super) message: String,
    pub(super) hint: Option<String>,
    /// How long to wait before the next request.
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    pub(super) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), message: message.into(), hint: None, retry_after: None }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// There is no such route.
    pub(super) fn nothing_here() -> Self {
        Self::not_found("there is nothing under this path").hint("`linger help http` lists what there is")
    }

    /// The route takes only `methods`.
    pub(super) fn wrong_method(methods: &str) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", format!("this takes {methods}"))
    }

    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub(super) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message).hint(
            "send `Authorization: Bearer TOKEN`; `linger token mint` makes one, `linger gateway url` opens the page",
        )
    }

    /// The daemon cannot be reached, or hung up.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    pub(super) fn json(&self) -> String {
        json!({ "error": { "code": self.code, "message": self.message, "hint": self.hint } }).to_string()
    }

    pub(super) fn reply(&self, body: String) -> Reply {
        let mut reply = text_json(self.status, body);
        if self.status == StatusCode::UNAUTHORIZED {
            reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"linger\""));
        }
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        reply
    }
}

/// JSON-RPC's own codes.
const INVALID_PARAMS: i32 = -32602;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const OVERSIZED: i32 = -32007;

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        let status = match error.code() {
            Some(
                Code::UnknownSession
                | Code::UnknownPermission
                | Code::UnknownQuestion
                | Code::UnknownArtifact
                | Code::UnknownBlob
                | Code::UnknownServer
                | Code::UnknownMessage
                | Code::UnknownToken,
            ) => StatusCode::NOT_FOUND,
            Some(Code::NotAllowed) => StatusCode::FORBIDDEN,
            Some(Code::Unauthorized) => StatusCode::UNAUTHORIZED,
            Some(
                Code::AlreadyAnswered
                | Code::UnknownCursor
                | Code::WrongDigest
                | Code::Busy
                | Code::Idle
                | Code::Binned
                | Code::FileChanged
                | Code::Uncertain
                | Code::NotAttached,
            ) => StatusCode::CONFLICT,
            Some(Code::TooMuch) => StatusCode::PAYLOAD_TOO_LARGE,
            Some(Code::Ending) => StatusCode::SERVICE_UNAVAILABLE,
            Some(
                Code::Storage | Code::Damaged | Code::Internal | Code::Version | Code::BadConfig | Code::NoKeychain,
            ) => StatusCode::INTERNAL_SERVER_ERROR,
            Some(Code::ServerFailed) => StatusCode::BAD_GATEWAY,
            Some(_) => StatusCode::BAD_REQUEST,
            None => match error.code {
                INVALID_PARAMS | INVALID_REQUEST => StatusCode::BAD_REQUEST,
                METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
                OVERSIZED => StatusCode::PAYLOAD_TOO_LARGE,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
        };
        let known = Code::ALL.iter().find(|(_, number, _)| *number == error.code).map(|(_, _, name)| snake(name));
        let code = known.unwrap_or_else(|| "bad_request".to_owned());
        Self { status, code, hint: error.get_hint().map(str::to_owned), message: error.message, retry_after: None }
    }
}

/// `UnknownSession` as `unknown_session`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

/// A response with this JSON.
pub(super) fn text_json(status: StatusCode, json: String) -> Reply {
    let mut response = Response::new(Body::full(json));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A response with this value as JSON.
pub(super) fn json_of(value: &impl Serialize) -> Result<Reply, Failure> {
    let text = serde_json::to_string(value);
    let text = text.map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()))?;
    Ok(text_json(StatusCode::OK, text))
}

/// A response of server-sent events, and where they go.
pub(super) fn event_stream() -> (mpsc::Sender<Bytes>, Reply) {
    let (sender, body) = Body::stream();
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx would keep pieces back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    (sender, response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_daemon_have_a_fitting_status_and_keep_their_words() {
        let check = |code, status: u16, name: &str| {
            let failure = Failure::from(RpcError::new(code, "what").hint("do"));
            assert_eq!((failure.status.as_u16(), failure.code.as_str()), (status, name));
            assert_eq!(failure.json(), format!(r#"{{"error":{{"code":"{name}","message":"what","hint":"do"}}}}"#));
        };
        check(Code::UnknownSession, 404, "unknown_session");
        check(Code::NotAllowed, 403, "not_allowed");
        check(Code::Unauthorized, 401, "unauthorized");
        check(Code::UnknownCursor, 409, "unknown_cursor");
        check(Code::TooMuch, 413, "too_much");
        check(Code::Ending, 503, "ending");
        check(Code::KeyMissing, 400, "key_missing");
        let params = Failure::from(RpcError { code: -32602, message: "x".to_owned(), data: None });
        assert_eq!(params.status.as_u16(), 400);
    }
}
