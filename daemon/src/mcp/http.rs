//! Streamable HTTP: each message of ours is a request, and what a server says comes in the bodies of the answers.
//!
//! Source: MCP 2025-11-25 and 2026-07-28, "Transports". A stream of the server's own is opened if it has one. With a handshake, a
//! stream that ends before its answer is resumed after the last event that had an id.
//! A server without an `Authorization` of the configuration gets the token of its login ([`super::login`]).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::challenge::Challenge;
use super::heard::Heard;
use super::jsonrpc;
use super::lines::MAX_MESSAGE;
use super::login::Logins;
use super::peer::{About, Channel, Failure, Outgoing};
use super::settings::PER_REQUEST;
use crate::diagnostics::secret::Secret;
use crate::provider::Framing;
use crate::provider::sse::Framer;
use crate::tool::text;

/// The header with the server's name for the connection.
const SESSION: &str = "mcp-session-id";

/// The header with the revision of the protocol.
const PROTOCOL: &str = "mcp-protocol-version";

/// The headers with a request's method, and with the name or the address that it is about (2026-07-28).
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// The prefix of headers with arguments of a call (2026-07-28).
const ARGUMENT: &str = "mcp-param-";

/// The header with the id of the last event, where a stream is resumed.
const LAST_EVENT: &str = "last-event-id";

/// How often a stream is resumed without an event of it: the server has forgotten it.
const MAX_RESUMES: usize = 5;

/// The most bytes of an error's body that are shown.
const SHOWN: usize = 300;

/// How long a server may take to show that it is of the older transport.
const PROBE: Duration = Duration::from_secs(3);

/// The longest message that may be the error of a server that has forgotten the session, in bytes.
const MAX_ERROR: usize = 4 << 10;

/// The pauses before a stream is opened again: the first and shortest, so that no server makes the daemon spin, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How long a server may take to hear that a connection has ended; nothing waits for it.
const LEAVE: Duration = Duration::from_secs(5);

/// An address and what each request to it carries.
#[derive(Clone)]
pub(super) struct Address {
    client: Client,
    url: Url,
    headers: HeaderMap,
    session: Arc<OnceLock<HeaderValue>>,
    protocol: Arc<OnceLock<HeaderValue>>,
    /// The login there; absent if the configuration has a token.
    login: Option<ServerLogin>,
}

/// A server's login.
#[derive(Clone)]
pub(super) struct ServerLogin {
    pub(super) logins: Arc<Logins>,
    /// The address that its tokens are for.
    pub(super) server: String,
    /// The command that logs in.
    pub(super) command: String,
}

impl Address {
    /// Fails if a header is none.
    pub(super) fn new(
        client: Client,
        url: Url,
        headers: &BTreeMap<String, String>,
        login: ServerLogin,
    ) -> Result<Self, String> {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let key: HeaderName = name.parse().map_err(|_| format!("`{name}` is not the name of a header"))?;
            let mut value: HeaderValue =
                value.parse().map_err(|_| format!("the value of the header {name} is none"))?;
            value.set_sensitive(true);
            all.insert(key, value);
        }
        let login = (!all.contains_key(AUTHORIZATION)).then_some(login);
        Ok(Self { client, url, headers: all, session: Arc::default(), protocol: Arc::default(), login })
    }

    /// The revision that both have agreed on; later requests say it.
    pub(super) fn agreed(&self, protocol: &str) {
        if let Ok(protocol) = protocol.parse() {
            let _first = self.protocol.set(protocol);
        }
    }

    /// The headers of a message; without a handshake they repeat what it is about.
    fn headers(&self, about: Option<&About>) -> HeaderMap {
        let mut headers = self.headers.clone();
        if let Some(About { method, name, arguments }) = about {
            let named = [(PROTOCOL, Some(PER_REQUEST)), (METHOD, Some(method.as_str())), (NAME, name.as_deref())];
            // A name that is no header's value is left out: the server says what it misses.
            let fit = |(key, value): (&'static str, Option<&str>)| {
                Some((HeaderName::from_static(key), HeaderValue::from_str(value?).ok()?))
            };
            headers.extend(named.into_iter().filter_map(fit));
            headers.extend(arguments.iter().filter_map(|(name, value)| {
                let name = HeaderName::try_from(format!("{ARGUMENT}{name}")).ok()?;
                Some((name, HeaderValue::try_from(encoded(value)).ok()?))
            }));
            return headers;
        }
        headers.extend(self.session.get().map(|id| (HeaderName::from_static(SESSION), id.clone())));
        headers.extend(self.protocol.get().map(|id| (HeaderName::from_static(PROTOCOL), id.clone())));
        headers
    }

    /// Sends the messages of the queue, until its last sender is gone.
    pub(super) async fn carry(self, mut queue: mpsc::Receiver<Outgoing>, heard: Arc<Heard>) {
        let mut sending = JoinSet::new();
        loop {
            tokio::select! {
                Some(message) = queue.recv() => {
                    let (address, heard) = (self.clone(), heard.clone());
                    sending.spawn(async move { address.deliver(message, &heard).await });
                }
                Some(_) = sending.join_next() => {}
                else => return,
            }
        }
    }

    /// Sends one message, and takes what comes because of it.
    async fn deliver(&self, Outgoing { text, id, dropped, about }: Outgoing, heard: &Heard) {
        let headers = self.headers(about.as_ref());
        let exchange = self.exchange(text, headers, Sent { id, resumes: about.is_none() }, heard);
        let delivered = match dropped {
            Some(dropped) => tokio::select! {
                delivered = exchange => delivered,
                () = dropped.cancelled() => return,
            },
            None => exchange.await,
        };
        let problem = delivered.err().unwrap_or_else(|| Problem::Lost("the answer ended before its result".to_owned()));
        let is_forgotten = matches!(problem, Problem::Forgotten);
        match (id, problem) {
            // Nothing, if it has been answered.
            (Some(id), Problem::NotTaken(why)) => heard.peer.lose(id, Failure::NotTaken(why)),
            (Some(id), Problem::Forgotten) => heard.peer.lose(id, Failure::Forgotten),
            (Some(id), Problem::Lost(why)) => heard.peer.lose(id, Failure::Lost(why)),
            (None, problem) => tracing::debug!(target: "mcp", ?problem, "a message was not taken"),
        }
        if is_forgotten {
            heard.forget();
        }
    }

    /// Sends a message and reads what comes because of it, until the request `resumes` is answered if the stream allows that.
    async fn exchange(&self, text: String, headers: HeaderMap, sent: Sent, heard: &Heard) -> Result<(), Problem> {
        let mut read = self.post(text, headers, sent, heard).await?;
        let mut left = MAX_RESUMES;
        let resumes = || sent.resumes && sent.id.is_some_and(|id| heard.peer.is_open(id));
        while let (true, Some((event, pause))) = (resumes(), &read.resume) {
            let event = event.clone();
            if left == 0 {
                break;
            }
            // A server may say `retry: 0`, and end each stream at once.
            sleep(pause.unwrap_or(FIRST_PAUSE).clamp(FIRST_PAUSE, LONGEST_PAUSE)).await;
            let Some(again) = self.stream(Some(&event), sent.stream(), heard).await else { break };
            let is_new = again.resume.as_ref().is_some_and(|(id, _)| *id != event);
            left = if is_new { MAX_RESUMES } else { left - 1 };
            read = StreamRead { resume: again.resume.or(read.resume), ..again };
        }
        read.cut.map_or(Ok(()), |why| Err(Problem::Lost(why)))
    }

    async fn post(&self, text: String, headers: HeaderMap, sent: Sent, heard: &Heard) -> Result<StreamRead, Problem> {
        let token = self.token().await;
        let mut response = self.send(text.clone(), headers.clone(), token.as_ref()).await?;
        if let (Some(login), StatusCode::UNAUTHORIZED) = (&self.login, response.status()) {
            let another = match &token {
                Some(token) => login.logins.renew(&login.server, token).await,
                None => None,
            };
            if let Some(token) = another {
                response = self.send(text, headers, Some(&token)).await?;
            }
            if response.status() == StatusCode::UNAUTHORIZED {
                let is_challenge = response.headers().contains_key(WWW_AUTHENTICATE);
                let challenge = Challenge::of(response.headers());
                if !is_challenge && self.has_forgotten(StatusCode::UNAUTHORIZED, &body(response).await) {
                    return Err(Problem::Forgotten);
                }
                return Err(Problem::NotTaken(login.refused(challenge, heard)));
            }
        }
        if let (Some(login), StatusCode::FORBIDDEN) = (&self.login, response.status()) {
            let challenge = Challenge::of(response.headers());
            if challenge.is_insufficient {
                return Err(Problem::NotTaken(login.too_narrow(challenge)));
            }
        }
        if let Some(session) = response.headers().get(SESSION) {
            let _first = self.session.set(session.clone());
        }
        if !response.status().is_success() {
            self.refused(response, sent, heard).await?;
            return Ok(StreamRead::default());
        }
        let has_forgotten = |message: &[u8]| {
            let message = std::str::from_utf8(message).ok().filter(|it| it.len() <= MAX_ERROR && it.contains("error"));
            message.is_some_and(|message| is_session_error(message) && self.has_forgotten(StatusCode::OK, message))
        };
        read(response, sent, heard, has_forgotten).await
    }

    /// Whether a refusal says that the server does not know the session, or this client, any more: after a restart.
    fn has_forgotten(&self, status: StatusCode, said: &str) -> bool {
        let (has_session, is_agreed) = (self.session.get().is_some(), self.protocol.get().is_some());
        let said = said.to_lowercase();
        let is_said = has_session && said.contains("session") || said.contains("initializ");
        is_agreed && (is_said || has_session && matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE))
    }

    /// Whether the server at this address is one of the transport before Streamable HTTP: a stream that begins with an endpoint.
    pub(super) async fn is_older(&self) -> bool {
        let request = self.client.get(self.url.clone()).headers(self.headers(None)).header(ACCEPT, "text/event-stream");
        let probe = async {
            let mut response = bearer(request, self.token().await.as_ref()).send().await.ok()?;
            let first = response.chunk().await.ok()??;
            Some(String::from_utf8_lossy(&first).trim_start().starts_with("event: endpoint"))
        };
        timeout(PROBE, probe).await.ok().flatten().unwrap_or_default()
    }

    async fn token(&self) -> Option<Secret> {
        let login = self.login.as_ref()?;
        login.logins.token(&login.server).await
    }

    async fn send(&self, text: String, headers: HeaderMap, token: Option<&Secret>) -> Result<Response, Problem> {
        let request = self.client.post(self.url.clone()).headers(headers).header(CONTENT_TYPE, "application/json");
        let request = request.header(ACCEPT, "application/json, text/event-stream").body(text);
        bearer(request, token).send().await.map_err(|error| {
            if error.is_connect() { Problem::NotTaken(why(&error)) } else { Problem::Lost(why(&error)) }
        })
    }

    /// Takes an answer that is no success. A JSON-RPC error in it is the answer to what was sent, whatever its id.
    async fn refused(&self, response: Response, sent: Sent, heard: &Heard) -> Result<(), Problem> {
        let status = response.status();
        let body = body(response).await;
        let is_known = !matches!(status, StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS);
        if is_known && self.has_forgotten(status, text::head(&body, MAX_ERROR)) {
            return Err(Problem::Forgotten);
        }
        let is_login = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) && !body.contains("jsonrpc");
        if let Some(id) = sent.id.filter(|_| !is_login && is_rpc_error(&body)) {
            heard.line(body.as_bytes(), Channel::ReplyTo(id));
            return Ok(());
        }
        let hint = match status {
            StatusCode::UNAUTHORIZED => "; it refuses the token in `headers`",
            StatusCode::FORBIDDEN => "; the token does not allow this",
            _ => "",
        };
        let said = text::one_line(text::head(body.trim(), SHOWN));
        let why = format!("{} answered {status}: {said}{hint}", self.url.authority());
        // A server that failed may have done it.
        let is_refusal = status.is_client_error() || status.is_redirection();
        Err(if is_refusal { Problem::NotTaken(why) } else { Problem::Lost(why) })
    }

    /// Reads the server's own stream, if it has one, until the connection ends.
    pub(super) async fn listen(self, heard: Arc<Heard>) {
        let (mut pause, mut last) = (FIRST_PAUSE, None);
        loop {
            let began = Instant::now();
            let Some(read) = self.stream(last.as_deref(), Channel::Shared, &heard).await else { return };
            pause = if began.elapsed() > LONGEST_PAUSE { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            let wanted = read.resume.as_ref().and_then(|(_, wanted)| *wanted);
            last = read.resume.map(|(id, _)| id).or(last);
            sleep(pause.max(wanted.unwrap_or_default()).min(LONGEST_PAUSE)).await;
        }
    }

    /// Tells the server at the connection's end that it may forget it, if it has a name for it.
    pub(super) async fn end_session(self, ended: CancellationToken) {
        ended.cancelled().await;
        if self.session.get().is_none() {
            return;
        }
        let request = self.client.delete(self.url.clone()).headers(self.headers(None)).timeout(LEAVE);
        // It may refuse this, or be gone.
        let left = bearer(request, self.token().await.as_ref()).send().await;
        tracing::debug!(target: "mcp", status = ?left.map(|response| response.status()), "left");
    }

    /// Reads a stream that the server has for us: its own, or after an event the rest of the one that had it. `None` if it has none.
    async fn stream(&self, after: Option<&str>, channel: Channel, heard: &Heard) -> Option<StreamRead> {
        let mut request = self.client.get(self.url.clone()).headers(self.headers(None));
        request = request.header(ACCEPT, "text/event-stream");
        if let Some(after) = after {
            request = request.header(LAST_EVENT, HeaderValue::from_str(after).ok()?);
        }
        let token = self.token().await;
        Some(match bearer(request, token.as_ref()).send().await {
            Ok(response) if response.status().is_success() => read_events(response, |data| {
                heard.line(data, channel);
                true
            })
            .await
            .unwrap_or_else(|why| StreamRead { cut: Some(why), resume: None }),
            Ok(_) => return None,
            Err(error) => StreamRead { cut: Some(why(&error)), resume: None },
        })
    }
}

impl ServerLogin {
    /// The server wants a login: it ends, and says so until there is one.
    fn refused(&self, challenge: Challenge, heard: &Heard) -> String {
        let why = format!("it needs a login: `{}`", self.command);
        self.logins.want(&self.server, challenge);
        heard.peer.end(why.clone());
        heard.ended.cancel();
        why
    }

    /// The login does not allow this request; others it does.
    fn too_narrow(&self, challenge: Challenge) -> String {
        let scope = challenge.scope.as_deref().map(|scope| text::one_line(text::head(scope, SHOWN)));
        let more = scope.map_or_else(|| "more rights".to_owned(), |scope| format!("more rights ({scope})"));
        self.logins.want(&self.server, challenge);
        format!("it needs a login with {more}: `{}`", self.command)
    }
}

/// A message that was sent.
#[derive(Clone, Copy)]
struct Sent {
    /// The request that it is, if it wants an answer.
    id: Option<u64>,
    /// Whether its stream may be resumed.
    resumes: bool,
}

impl Sent {
    /// The channel of the stream that answers it.
    fn stream(self) -> Channel {
        self.id.map_or(Channel::Shared, Channel::StreamOf)
    }

    /// The channel of its whole answer.
    fn reply(self) -> Channel {
        self.id.map_or(Channel::Shared, Channel::ReplyTo)
    }
}

/// Why a message has no answer.
#[derive(Debug)]
enum Problem {
    /// It was not taken.
    NotTaken(String),
    /// The same, because the server does not know the session any more.
    Forgotten,
    /// Whether it was taken is unknown.
    Lost(String),
}

/// Whether a body has a JSON-RPC error.
fn is_rpc_error(body: &str) -> bool {
    let Some(messages) = jsonrpc::read(body) else { return false };
    messages.iter().any(|message| message.method.is_none() && message.error.is_some())
}

/// Whether a message is an error about the connection, and not about what was asked.
fn is_session_error(message: &str) -> bool {
    let read = jsonrpc::read(message).unwrap_or_default();
    let [jsonrpc::Incoming { method: None, error: Some(error), .. }] = &read[..] else { return false };
    let (code, said) = jsonrpc::described(error);
    let said = said.to_lowercase();
    // Those of JSON-RPC and its servers; the words may be a tool's own otherwise.
    let is_servers = code == -32600 || (-32099..=-32000).contains(&code);
    let is_session =
        ["session id", "session-id", "mcp session", "session not found", "unknown session", "invalid session"];
    is_servers && (said.contains("initializ") || is_session.iter().any(|words| said.contains(words)))
}

/// The part of an answer that was read.
#[derive(Default)]
struct StreamRead {
    /// The last event that had an id, and the pause that the server wants before the stream is resumed after it.
    resume: Option<(String, Option<Duration>)>,
    /// Why it is not whole.
    cut: Option<String>,
}

fn bearer(request: RequestBuilder, token: Option<&Secret>) -> RequestBuilder {
    match token {
        Some(token) => request.bearer_auth(token.reveal()),
        None => request,
    }
}

/// An argument of a call as the value of a header (2026-07-28, "Value encoding").
fn encoded(value: &str) -> String {
    let is_plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && value.trim() == value;
    if is_plain && !value.starts_with("=?") {
        value.to_owned()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(value))
    }
}

/// Takes the messages of a body: one, or a stream of events.
async fn read(
    response: Response,
    sent: Sent,
    heard: &Heard,
    has_forgotten: impl Fn(&[u8]) -> bool,
) -> Result<StreamRead, Problem> {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
        let body = whole(response).await.map_err(Problem::Lost)?;
        if has_forgotten(&body) {
            return Err(Problem::Forgotten);
        }
        if !body.trim_ascii().is_empty() {
            heard.line(&body, sent.reply());
        }
        return Ok(StreamRead::default());
    }
    let mut forgotten = false;
    let read = read_events(response, |data| {
        forgotten = has_forgotten(data);
        if !forgotten {
            heard.line(data, sent.stream());
        }
        !forgotten
    });
    let read = read.await;
    if forgotten { Err(Problem::Forgotten) } else { read.map_err(Problem::Lost) }
}

/// Gives the data of each event to `on`, until that returns false. Fails if one is too large.
async fn read_events(mut response: Response, mut on: impl FnMut(&[u8]) -> bool) -> Result<StreamRead, String> {
    let mut framer = Framer::new(Framing::Sse);
    let mut goes_on = true;
    // Some servers begin with an event without data.
    let mut on = |_: &str, data: &str| {
        if goes_on && !data.is_empty() {
            goes_on = on(data.as_bytes());
        }
    };
    let cut = loop {
        match response.chunk().await {
            Ok(Some(chunk)) => framer.push(&chunk, &mut on).map_err(|error| error.to_string())?,
            Ok(None) => break None,
            Err(error) => break Some(why(&error)),
        }
    };
    framer.finish(&mut on);
    Ok(StreamRead { resume: framer.resume().map(|(id, pause)| (id.to_owned(), pause)), cut })
}

/// The text of an answer that is no success; empty if it cannot be read.
async fn body(response: Response) -> String {
    String::from_utf8_lossy(&whole(response).await.unwrap_or_default()).into_owned()
}

async fn whole(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| why(&error))? {
        if body.len() + chunk.len() > MAX_MESSAGE {
            return Err(format!("it sent a message of more than {MAX_MESSAGE} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Why a request failed, without its address, which may hold a secret.
fn why(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let what = if error.is_connect() { "cannot connect" } else { "no answer" };
    format!("{what}: {cause}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_that_is_no_headers_value_is_encoded() {
        let check = |value: &str, expect: &str| assert_eq!(encoded(value), expect, "{value:?}");
        check("us west 1", "us west 1");
        check("", "");
        check(" padded", "=?base64?IHBhZGRlZA==?=");
        check("a\r\nX-Evil: 1", "=?base64?YQ0KWC1FdmlsOiAx?=");
        check("世界", "=?base64?5LiW55WM?=");
        check("=?base64?IA==?=", "=?base64?PT9iYXNlNjQ/SUE9PT89?=");
    }
}
