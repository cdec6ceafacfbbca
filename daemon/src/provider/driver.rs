//! Drives one attempt over HTTP: sends the encoded request, decodes the response, and ends in exactly one terminal event.
//!
//! A [`HttpStream`] does nothing unless polled; dropping it closes its connection.
//! The key goes only to the host of the endpoint's base URL, because redirects are not followed.
//! An answer has five timeouts: the connection's, and those of `timeouts`.
//! Deliberately absent: retries.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, UNIX_EPOCH};

use linger_protocol::message::Usage;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, Url};
use tokio::time::{Instant, timeout_at};

use super::address;
use super::encoding::Encoding;
use super::failure::{one_line, spell};
use super::network::Network;
use super::own_fields::FieldPlace;
use super::route::Route;
use super::sse::Framer;
pub use super::timeouts::Timeouts;
use super::timeouts::{Deadline, Deadlines, silence};
use super::transport_error::{failed, failure_of, proxy_auth_required, redirect_failure};
use super::types::{Codec, Decoder, Failure, FailureClass, HttpRequest, Request, StreamEvent};
use super::unstreamed::{Opening, page};
use crate::diagnostics::secret::{Redactor, Secret};
use crate::sys::clock;
use crate::sys::task;

/// The largest response, in bytes: a few hundred for each token of the longest answers.
const MAX_BODY: usize = 128 << 20;
/// The most bytes of an error's body that are read.
const MAX_ERROR_BODY: usize = 64 << 10;
/// The timeout of an error's body: the status alone is useful, and would be lost at the response's timeout.
const ERROR_BODY: Duration = Duration::from_secs(5);
/// The most available bytes to decode together: a few hundred tokens.
const BATCH: usize = 64 << 10;
/// The timeout for the rest of a body after a complete answer, so that its connection can be reused.
const DRAIN: Duration = Duration::from_secs(1);
/// How long the end of a stream may take after the answer is over: some servers leave the connection open.
const LAST_PIECE: Duration = Duration::from_secs(2);
/// The largest `Retry-After` that is parsed, in seconds.
const MAX_RETRY_AFTER: f64 = 30.0 * 86_400.0;

/// A provider's address and wire format.
#[derive(Clone)]
pub struct Endpoint {
    /// The provider's name, for messages.
    pub name: String,
    /// The base of request paths.
    pub base_url: String,
    /// The wire format.
    pub codec: Arc<dyn Codec>,
    /// The key; absent if it needs none.
    pub key: Option<Secret>,
    /// Headers and query parameters of the user's own.
    pub fields: Arc<Vec<(FieldPlace, String, FieldText)>>,
    /// How long each part of an answer may take.
    pub limits: Timeouts,
    /// Proxies and certificates.
    pub network: Arc<Network>,
    /// Removes secrets from the messages of failures.
    pub redactor: Redactor,
}

/// The value of a field.
#[derive(Clone, Debug)]
pub enum FieldText {
    /// Written in the configuration; no secret.
    Plain(String),
    /// From a variable or a command.
    Secret(Secret),
}

impl FieldText {
    fn reveal(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Secret(secret) => secret.reveal(),
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.name).field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

/// One attempt at one request.
pub struct HttpStream {
    state: AttemptState,
    redactor: Redactor,
    deadlines: Deadlines,
    /// Decoded events not returned yet; kept here so that `next` is cancel safe.
    events: Vec<StreamEvent>,
    /// Whether `next` has returned events.
    returned_any: bool,
    /// The usage once the attempt has ended.
    final_usage: Usage,
    /// Whether any content came, once the attempt has ended.
    had_content: bool,
}

enum AttemptState {
    Sending(Pin<Box<dyn Future<Output = Result<reqwest::Response, Failure>> + Send>>, Opening),
    Reading(Box<ResponseReader>),
    Ended,
}

struct ResponseReader {
    response: reqwest::Response,
    opening: Opening,
    framer: Framer,
    decoder: Box<dyn Decoder>,
    /// Body bytes so far.
    received: usize,
    /// When the stream is at its end, because the answer is over.
    ends: Option<Instant>,
}

impl std::fmt::Debug for HttpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match self.state {
            AttemptState::Sending(..) => "sending",
            AttemptState::Reading(_) => "reading",
            AttemptState::Ended => "ended",
        };
        f.debug_tuple("HttpStream").field(&state).finish()
    }
}

impl HttpStream {
    /// Encodes `request`; [`HttpStream::next`] sends it.
    pub fn start(endpoint: &Endpoint, request: &Request<'_>, encoding: &mut Encoding) -> Self {
        let encoded = encoding.encode(endpoint.codec.as_ref(), request);
        Self::with(endpoint.clone(), encoded)
    }

    /// An attempt at a request that is encoded already.
    pub fn with(endpoint: Endpoint, encoded: HttpRequest) -> Self {
        let opening = Opening::new(endpoint.codec.clone());
        let (redactor, limits) = (endpoint.redactor.clone(), endpoint.limits);
        Self {
            state: AttemptState::Sending(Box::pin(send(endpoint, encoded)), opening),
            redactor,
            deadlines: Deadlines::new(limits),
            events: Vec::new(),
            returned_any: false,
            final_usage: Usage::default(),
            had_content: false,
        }
    }

    /// The usage so far; see [`super::Stream::usage`].
    pub fn usage(&self) -> Usage {
        match &self.state {
            AttemptState::Reading(reading) => reading.decoder.usage(),
            AttemptState::Sending(..) | AttemptState::Ended => self.final_usage,
        }
    }

    /// Whether any content of the answer has come; see [`super::Stream::has_begun`].
    pub fn has_begun(&self) -> bool {
        match &self.state {
            AttemptState::Reading(reading) => reading.decoder.gathered() > 0,
            AttemptState::Sending(..) | AttemptState::Ended => self.had_content,
        }
    }

    /// The next events; see [`super::Stream::next`].
    pub async fn next(&mut self) -> Vec<StreamEvent> {
        while self.events.is_empty() && !matches!(self.state, AttemptState::Ended) {
            self.advance().await;
            let usage = self.usage();
            if self.events.is_empty() && !self.returned_any && !usage.is_uncounted() {
                self.events.push(StreamEvent::Counted);
            }
        }
        self.returned_any = true;
        if let AttemptState::Reading(reading) = &mut self.state {
            reading.take_ready(&mut self.events).await;
        }
        let mut out = std::mem::take(&mut self.events);
        if let Some(end) = out.iter().position(is_terminal) {
            out.truncate(end + 1);
            (self.final_usage, self.had_content) = (self.usage(), self.has_begun());
            let ended = std::mem::replace(&mut self.state, AttemptState::Ended);
            if let (AttemptState::Reading(reading), Some(StreamEvent::Done(_))) = (ended, out.last()) {
                task::spawn(drain(reading.response));
            }
        }
        if let Some(StreamEvent::Failed(failure)) = out.last_mut() {
            failure.message = one_line(&self.redactor.redact(&failure.message));
        }
        out
    }

    /// Waits for the next response, chunk or timeout.
    async fn advance(&mut self) {
        let now = Instant::now();
        let gathered = match &self.state {
            AttemptState::Reading(reading) => Some(reading.decoder.gathered()),
            AttemptState::Sending(..) | AttemptState::Ended => None,
        };
        let Deadline { at: deadline, is_hard, failure: late } = self.deadlines.next(now, gathered);
        let deadline = match &mut self.state {
            AttemptState::Reading(reading) if reading.decoder.is_finished() => {
                deadline.min(*reading.ends.get_or_insert(now + LAST_PIECE))
            }
            _ => deadline,
        };
        match &mut self.state {
            AttemptState::Ended => {}
            // A stream that always has data would never reach its timeout below.
            AttemptState::Reading(reading) if is_hard && deadline <= now => reading.end(Some(late), &mut self.events),
            AttemptState::Sending(sending, ..) => match timeout_at(deadline, sending).await {
                Ok(Ok(response)) => self.receive(response),
                Ok(Err(failure)) => self.events.push(StreamEvent::Failed(failure)),
                Err(_) => self.events.push(StreamEvent::Failed(late)),
            },
            AttemptState::Reading(reading) => match timeout_at(deadline, reading.response.chunk()).await {
                Ok(chunk) => {
                    self.deadlines.bytes_arrived();
                    reading.take(chunk, &mut self.events);
                }
                Err(_) => reading.end(Some(late), &mut self.events),
            },
        }
    }

    fn receive(&mut self, mut response: reqwest::Response) {
        self.deadlines.bytes_arrived();
        // They are slices of the connection's first buffer, of 8 KiB, which lives as long as they do.
        *response.headers_mut() = HeaderMap::new();
        if let AttemptState::Sending(_, opening) = std::mem::replace(&mut self.state, AttemptState::Ended) {
            let (framer, decoder) = (Framer::new(opening.codec.framing()), opening.codec.decoder());
            self.state = AttemptState::Reading(Box::new(ResponseReader {
                response,
                opening,
                framer,
                decoder,
                received: 0,
                ends: None,
            }));
        }
    }
}

impl ResponseReader {
    /// Takes available chunks without waiting.
    /// The HTTP library has one chunk ready, and the next after its connection task has run; so it yields once before giving up.
    async fn take_ready(&mut self, out: &mut Vec<StreamEvent>) {
        let enough = self.received + BATCH;
        let mut yielded = false;
        while self.received < enough && !out.last().is_some_and(is_terminal) {
            match poll_once(self.response.chunk()).await {
                Poll::Ready(chunk) => {
                    yielded = false;
                    self.take(chunk, out);
                }
                Poll::Pending if yielded => return,
                Poll::Pending => {
                    yielded = true;
                    yield_once().await;
                }
            }
        }
    }

    fn take(&mut self, chunk: reqwest::Result<Option<impl AsRef<[u8]>>>, out: &mut Vec<StreamEvent>) {
        match chunk {
            Ok(Some(chunk)) => self.decode(chunk.as_ref(), out),
            Ok(None) => self.end(None, out),
            Err(error) => self.end(Some(broken_body(&error)), out),
        }
    }

    fn decode(&mut self, chunk: &[u8], out: &mut Vec<StreamEvent>) {
        self.received += chunk.len();
        if let Err(failure) = self.opening.take(chunk) {
            let asked = |failure: Failure| failure.asked(self.response.url());
            return out.extend(failure.map(asked).map(StreamEvent::Failed));
        }
        let decoder = &mut self.decoder;
        let fed = self.framer.push(chunk, &mut |event, data| decoder.feed(event, data, out));
        if let Err(oversize) = fed {
            out.push(StreamEvent::Failed(failed(FailureClass::Rejected, oversize)));
        } else if self.received > MAX_BODY {
            let message = format!("the answer is larger than {} MiB", MAX_BODY >> 20);
            out.push(StreamEvent::Failed(failed(FailureClass::Rejected, message)));
        }
    }

    /// Ends the response. A complete answer counts, however its connection ended.
    fn end(&mut self, reason: Option<Failure>, out: &mut Vec<StreamEvent>) {
        if let Some(answer) = self.opening.whole_answer() {
            self.decoder.feed("", &answer, out);
            return self.decoder.finish(out);
        }
        if let Some(failure) = self.opening.end(reason.as_ref()) {
            return out.push(StreamEvent::Failed(failure));
        }
        let decoder = &mut self.decoder;
        self.framer.finish(&mut |event, data| decoder.feed(event, data, out));
        self.decoder.finish(out);
        if let (Some(StreamEvent::Failed(failure)), Some(reason)) = (out.last_mut(), reason) {
            *failure = reason;
        }
    }
}

fn is_terminal(event: &StreamEvent) -> bool {
    matches!(event, StreamEvent::Done(_) | StreamEvent::Failed(_))
}

/// Polls `future` once, registering its waker.
async fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    let mut future = pin!(future);
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// Lets woken tasks run. Unlike Tokio's `yield_now` it does not poll the I/O driver first.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Fetches a small document, such as a list of models: at most `most` bytes, within `timeout`. With a body it is a POST.
pub async fn get(
    endpoint: &Endpoint,
    asked: super::types::HttpRequest,
    timeout: Duration,
    most: usize,
) -> Result<Vec<u8>, Failure> {
    let read = async {
        let target = RequestTarget::of(endpoint, &asked.path).await?;
        let request = if asked.body.is_empty() {
            target.client.get(target.url.clone())
        } else {
            post(&target, asked.body, &asked.headers)
        };
        let response = send_authorized(endpoint, &target, request, asked.headers).await?;
        read_whole(response, most).await
    };
    let result = tokio::time::timeout(timeout, read).await.unwrap_or_else(|_| Err(silence(timeout)));
    result.map_err(|failure| Failure { message: one_line(&endpoint.redactor.redact(&failure.message)), ..failure })
}

/// A whole body; fails if it is larger than `most` bytes.
async fn read_whole(mut response: reqwest::Response, most: usize) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| broken_body(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > most {
            return Err(failed(FailureClass::Rejected, format!("it answered with more than {} MiB", most >> 20)));
        }
    }
    Ok(body)
}

/// Sends the request; fails unless the response is a success.
async fn send(endpoint: Endpoint, encoded: super::types::HttpRequest) -> Result<reqwest::Response, Failure> {
    let target = RequestTarget::of(&endpoint, &encoded.path).await?;
    let request = post(&target, encoded.body, &encoded.headers);
    let response = send_authorized(&endpoint, &target, request, encoded.headers).await?;
    let header = |name: &str| response.headers().get(name).and_then(|text| text.to_str().ok()).unwrap_or_default();
    let packed = header("content-encoding").trim();
    if !packed.is_empty() && !packed.eq_ignore_ascii_case("identity") {
        let message = format!("the answer is compressed ({}), which was not asked for", one_line(packed));
        return Err(failed(FailureClass::Rejected, message));
    }
    let kind = header("content-type");
    if !kind.starts_with("text/html") {
        return Ok(response);
    }
    let body = read_prefix(response, ERROR_BODY.min(endpoint.limits.first_byte / 2)).await;
    Err(page(&String::from_utf8_lossy(&body)).asked(&target.url))
}

/// A request with this body: JSON, unless the headers to come say otherwise.
fn post(target: &RequestTarget, body: Vec<u8>, headers: &[(&'static str, String)]) -> reqwest::RequestBuilder {
    let request = target.client.post(target.url.clone()).body(body);
    let has_type = headers.iter().any(|(name, _)| *name == "content-type");
    if has_type { request } else { request.header("content-type", "application/json") }
}

/// Where a request goes: its URL and its route.
struct RequestTarget {
    url: Url,
    route: Route,
    client: Client,
}

impl RequestTarget {
    async fn of(endpoint: &Endpoint, path: &str) -> Result<Self, Failure> {
        let mut url = address::join(&endpoint.base_url, path).map_err(|why| failed(FailureClass::NotFound, why))?;
        for (_, name, value) in endpoint.fields.iter().filter(|(part, ..)| *part == FieldPlace::Query) {
            url.query_pairs_mut().append_pair(name, value.reveal());
        }
        let route = endpoint.network.route(&url).map_err(|why| failed(FailureClass::Network, why))?;
        let client = endpoint.network.clients.client(&route, url.scheme() == "https", endpoint.limits.connect).await?;
        Ok(Self { url, route, client })
    }
}

/// Sends a request with its headers and the key; fails unless the response is a success.
async fn send_authorized(
    endpoint: &Endpoint,
    target: &RequestTarget,
    mut request: reqwest::RequestBuilder,
    headers: Vec<(&'static str, String)>,
) -> Result<reqwest::Response, Failure> {
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if let Some(key) = &endpoint.key {
        let (name, value) = endpoint.codec.authorize(key);
        let mut value = HeaderValue::try_from(value).map_err(|_| {
            failed(FailureClass::Auth, format!("the key of {} has characters that no header can carry", endpoint.name))
        })?;
        value.set_sensitive(true);
        request = request.header(name, value);
    }
    for (_, name, value) in endpoint.fields.iter().filter(|(part, ..)| *part == FieldPlace::Header) {
        request = request.header(name.as_str(), field_header(endpoint, name, value)?);
    }
    let response = request.send().await.map_err(|error| connect_failure(endpoint, &error, &target.route))?;
    match response.status() {
        status if status.is_success() => Ok(response),
        status if status.is_redirection() => {
            Err(redirect_failure(&endpoint.name, status.as_u16(), response.headers(), &target.url))
        }
        _ => Err(response_failure(endpoint, response, &target.route).await.asked(&target.url)),
    }
}

/// A header of the user's own.
fn field_header(endpoint: &Endpoint, name: &str, value: &FieldText) -> Result<HeaderValue, Failure> {
    let mut header = HeaderValue::try_from(value.reveal()).map_err(|_| {
        let message = format!("the header {name} of {} has characters that no header can carry", endpoint.name);
        failed(FailureClass::Auth, message)
    })?;
    header.set_sensitive(matches!(value, FieldText::Secret(_)));
    Ok(header)
}

/// The failure of a request without a response.
fn connect_failure(endpoint: &Endpoint, error: &reqwest::Error, route: &Route) -> Failure {
    let failure = failure_of(FailureClass::Connect, error, route);
    if failure.class == FailureClass::Network {
        // The next attempt reads the certificates again, which may be corrected by then.
        endpoint.network.clients.forget(route);
    }
    failure
}

/// The failure of an unsuccessful response, which may be the proxy's own.
async fn response_failure(endpoint: &Endpoint, response: reqwest::Response, route: &Route) -> Failure {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = read_prefix(response, ERROR_BODY.min(endpoint.limits.first_byte / 2)).await;
    match &route.proxy {
        Some(proxy) if status == 407 => proxy_auth_required(proxy),
        Some(proxy) => {
            let failure = with_retry_advice(endpoint.codec.failure(status, &body), status, &headers);
            Failure { message: format!("{}; asked through the proxy {proxy}", failure.message), ..failure }
        }
        None => with_retry_advice(endpoint.codec.failure(status, &body), status, &headers),
    }
}

/// Reads the rest of a body after a complete answer, so that the connection can be reused.
async fn drain(mut response: reqwest::Response) {
    let _ = tokio::time::timeout(DRAIN, async { while let Ok(Some(_)) = response.chunk().await {} }).await;
}

/// The first bytes of a body, as many as arrive in time.
async fn read_prefix(mut response: reqwest::Response, timeout: Duration) -> Vec<u8> {
    let (mut body, late) = (Vec::new(), Instant::now() + timeout);
    while let Ok(Ok(Some(chunk))) = timeout_at(late, response.chunk()).await {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ERROR_BODY {
            break;
        }
    }
    body.truncate(MAX_ERROR_BODY);
    body
}

/// `failure` with `Retry-After` from the headers, or the end of the rate limit.
fn with_retry_advice(mut failure: Failure, status: u16, headers: &HeaderMap) -> Failure {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    failure.retry_after =
        retry_after(header("retry-after-ms"), header("retry-after"), clock::now()).or(failure.retry_after);
    if failure.retry_after.is_none() && status == 429 {
        failure.retry_after = limit_reset(header, clock::now());
    }
    match (header("x-should-retry"), failure.class) {
        (Some("false"), FailureClass::Overloaded | FailureClass::RateLimited) => failure.class = FailureClass::Rejected,
        (Some("true"), FailureClass::Rejected) => failure.class = FailureClass::Overloaded,
        _ => {}
    }
    failure
}

/// The wait of a `Retry-After`; `now` in Unix milliseconds. Zero for a date in the past.
fn retry_after(millis: Option<&str>, seconds_or_date: Option<&str>, now: u64) -> Option<Duration> {
    let duration = |seconds: f64| Duration::try_from_secs_f64(seconds.clamp(0.0, MAX_RETRY_AFTER)).ok();
    if let Some(millis) = millis.and_then(|millis| millis.parse::<f64>().ok()) {
        return duration(millis / 1000.0);
    }
    let text = seconds_or_date?;
    if let Ok(seconds) = text.parse::<f64>() {
        return duration(seconds);
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let since_epoch = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    duration(since_epoch.saturating_sub(Duration::from_millis(now)).as_secs_f64())
}

/// When the exhausted rate limits are over, by OpenAI's headers, which many servers have taken over; `now` in Unix milliseconds.
/// `x-ratelimit-reset-tokens` is a time such as `6m0s` or seconds; OpenRouter's `x-ratelimit-reset` is a moment.
fn limit_reset<'a>(header: impl Fn(&str) -> Option<&'a str>, now: u64) -> Option<Duration> {
    let reset = |suffix: &str| {
        let is_exhausted = header(&format!("x-ratelimit-remaining{suffix}")).is_none_or(|left| left == "0");
        let text = header(&format!("x-ratelimit-reset{suffix}")).filter(|_| is_exhausted)?;
        let now = now as f64 / 1000.0;
        let seconds = match text.parse::<f64>() {
            // A moment, in milliseconds or in seconds.
            Ok(at) if at > 1e11 => at / 1000.0 - now,
            Ok(at) if at > 1e9 => at - now,
            Ok(seconds) => seconds,
            Err(_) => spell(text)?.as_secs_f64(),
        };
        Duration::try_from_secs_f64(seconds.clamp(0.0, MAX_RETRY_AFTER)).ok()
    };
    ["-requests", "-tokens", ""].into_iter().filter_map(reset).max()
}

/// The failure of a truncated body.
fn broken_body(error: &reqwest::Error) -> Failure {
    failure_of(FailureClass::Stream, error, &Route::default())
}

#[cfg(test)]
mod tests;
