//! Streamable HTTP: each message of ours is a request, and what a server says comes in the bodies of the answers.
//!
//! Source: MCP 2025-11-25 and 2026-07-28, "Transports". A stream of the server's own is opened if it has one.
//! Deliberately absent: resuming a cut stream (its request fails, with an outcome that is unknown).
//! A server without an `Authorization` of the configuration gets the token of its login ([`super::login`]).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::connection::{Heard, PER_REQUEST};
use super::lines::MAX_MESSAGE;
use super::login::Logins;
use super::peer::Outgoing;
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

/// The most bytes of an error's body that are shown.
const SHOWN: usize = 300;

/// The pauses before the server's own stream is opened again: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// An address and what each request to it carries.
#[derive(Clone)]
pub(super) struct Address {
    client: Client,
    url: Url,
    headers: HeaderMap,
    session: Arc<OnceLock<HeaderValue>>,
    protocol: Arc<OnceLock<HeaderValue>>,
    /// The login there; absent if the configuration has a token.
    login: Option<Login>,
}

/// A server's login.
#[derive(Clone)]
pub(super) struct Login {
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
        login: Login,
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
    fn headers(&self, about: Option<&(String, Option<String>)>) -> HeaderMap {
        let mut headers = self.headers.clone();
        if let Some((method, name)) = about {
            let named = [(PROTOCOL, Some(PER_REQUEST)), (METHOD, Some(method.as_str())), (NAME, name.as_deref())];
            // A name that is no header's value is left out: the server says what it misses.
            let fit = |(key, value): (&'static str, Option<&str>)| {
                Some((HeaderName::from_static(key), HeaderValue::from_str(value?).ok()?))
            };
            headers.extend(named.into_iter().filter_map(fit));
            return headers;
        }
        headers.extend(self.session.get().map(|id| (HeaderName::from_static(SESSION), id.clone())));
        headers.extend(self.protocol.get().map(|id| (HeaderName::from_static(PROTOCOL), id.clone())));
        headers
    }

    /// Sends the messages of the queue, until nobody can add one.
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
        let delivered = match dropped {
            Some(dropped) => tokio::select! {
                delivered = self.post(text, headers, heard) => delivered,
                () = dropped.cancelled() => return,
            },
            None => self.post(text, headers, heard).await,
        };
        let problem = delivered.err().unwrap_or_else(|| "the answer ended before its result".to_owned());
        match id {
            // Nothing, if it has been answered.
            Some(id) => heard.peer.lose(id, &problem),
            None => tracing::debug!(target: "mcp", problem, "a message was not taken"),
        }
    }

    async fn post(&self, text: String, headers: HeaderMap, heard: &Heard) -> Result<(), String> {
        let token = self.token().await;
        let mut response = self.send(text.clone(), headers.clone(), token.as_ref()).await?;
        if let (Some(login), true) = (&self.login, response.status() == StatusCode::UNAUTHORIZED) {
            let another = match &token {
                Some(token) => login.logins.renew(&login.server, token).await,
                None => None,
            };
            match another {
                Some(token) => response = self.send(text, headers, Some(&token)).await?,
                None => return Err(login.refused(heard)),
            }
            if response.status() == StatusCode::UNAUTHORIZED {
                return Err(login.refused(heard));
            }
        }
        if let Some(session) = response.headers().get(SESSION) {
            let _first = self.session.set(session.clone());
        }
        let status = response.status();
        if status == StatusCode::NOT_FOUND && self.session.get().is_some() {
            heard.peer.end("it has forgotten the connection");
            heard.ended.cancel();
        }
        if !status.is_success() {
            return self.refused(response, heard).await;
        }
        read(response, heard).await
    }

    async fn token(&self) -> Option<Secret> {
        let login = self.login.as_ref()?;
        login.logins.token(&login.server).await
    }

    async fn send(&self, text: String, headers: HeaderMap, token: Option<&Secret>) -> Result<Response, String> {
        let request = self.client.post(self.url.clone()).headers(headers).header(CONTENT_TYPE, "application/json");
        let request = request.header(ACCEPT, "application/json, text/event-stream").body(text);
        bearer(request, token).send().await.map_err(|error| why(&error))
    }

    /// Reads an answer that is no success; it may hold a JSON-RPC error all the same.
    async fn refused(&self, response: Response, heard: &Heard) -> Result<(), String> {
        let status = response.status();
        let body = whole(response).await.unwrap_or_default();
        let body = String::from_utf8_lossy(&body);
        if serde_json::from_str::<Value>(&body)
            .is_ok_and(|value| value.get("error").is_some() && value.get("id").is_some())
        {
            heard.line(body.as_bytes());
            return Ok(());
        }
        let hint = match status {
            StatusCode::UNAUTHORIZED => "; it refuses the token in `headers`",
            StatusCode::FORBIDDEN => "; the token does not allow this",
            _ => "",
        };
        Err(format!(
            "{} answered {status}: {}{hint}",
            self.url.authority(),
            text::one_line(text::head(body.trim(), SHOWN))
        ))
    }

    /// Reads the server's own stream, if it has one, until the connection ends.
    pub(super) async fn listen(self, heard: Arc<Heard>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let began = Instant::now();
            let request =
                self.client.get(self.url.clone()).headers(self.headers(None)).header(ACCEPT, "text/event-stream");
            let token = self.token().await;
            match bearer(request, token.as_ref()).send().await {
                Ok(response) if response.status().is_success() => {
                    let _cut = read(response, &heard).await;
                }
                // It has none.
                Ok(_) => return,
                Err(_) => {}
            }
            pause = if began.elapsed() > LONGEST_PAUSE { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            sleep(pause).await;
        }
    }
}

impl Login {
    /// The server wants a login: it ends, and says so until there is one.
    fn refused(&self, heard: &Heard) -> String {
        let why = format!("it needs a login: `{}`", self.command);
        self.logins.want(&self.server);
        heard.peer.end(why.clone());
        heard.ended.cancel();
        why
    }
}

fn bearer(request: RequestBuilder, token: Option<&Secret>) -> RequestBuilder {
    match token {
        Some(token) => request.bearer_auth(token.reveal()),
        None => request,
    }
}

/// Takes the messages of a body: one, or a stream of events.
async fn read(mut response: Response, heard: &Heard) -> Result<(), String> {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
        let body = whole(response).await?;
        if !body.is_empty() {
            heard.line(&body);
        }
        return Ok(());
    }
    let mut framer = Framer::new(Framing::Sse);
    // Some servers begin with an event without data.
    let mut on = |_: &str, data: &str| {
        if !data.is_empty() {
            heard.line(data.as_bytes());
        }
    };
    while let Some(chunk) = response.chunk().await.map_err(|error| why(&error))? {
        framer.push(&chunk, &mut on).map_err(|error| error.to_string())?;
    }
    framer.finish(&mut on);
    Ok(())
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
