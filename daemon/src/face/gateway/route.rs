//! Which request does what. Host and Origin come first, then the token, then everything else.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use tokio::sync::OwnedSemaphorePermit;

use super::access::{self, Entry, Token};
use super::log::Line;
use super::peer::{Ends, Peer, is_from_here};
use super::reply::{Body, Failure, Reply};
use super::wire::Wire;
use super::{Gateway, artifact, blob, events, login, openai, page, rpc};

use crate::sys::task;

/// Keeps other origins from reading what a tag of theirs loads.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The header of proxies with the address of the client.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// One connection of a client.
pub(super) struct Connection {
    pub(super) gateway: Arc<Gateway>,
    ends: Ends,
    /// The process at the other end, once it was found.
    found: OnceLock<Peer>,
    /// A connection to the daemon whose request is done, for the next one here.
    idle: Mutex<Option<Idle>>,
}

/// A connection to the daemon that waits for a request with the same authority.
struct Idle {
    wire: Wire,
    token: Token,
    peer: Peer,
    _permit: OwnedSemaphorePermit,
}

/// A caller with a token that the daemon knows.
pub(super) struct Client {
    pub(super) gateway: Arc<Gateway>,
    /// Its connection to the daemon.
    pub(super) wire: Wire,
    token: Token,
    peer: Peer,
}

impl Client {
    /// Another connection to the daemon in the place of a lost one, with the same authority.
    pub(super) async fn reconnect(&mut self) -> Result<(), Failure> {
        self.wire = Wire::open(&self.gateway, Some(&self.token), self.peer).await?;
        Ok(())
    }

    /// A place for a response that streams.
    pub(super) fn stream_permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let permit = self.gateway.streams.clone().try_acquire_owned();
        permit.map_err(|_| {
            let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "too_much", "too many streams at once");
            failure.hint("close some; one stream of `GET /events` has all sessions")
        })
    }
}

impl Connection {
    pub(super) fn new(gateway: Arc<Gateway>, ends: Ends) -> Self {
        Self { gateway, ends, found: OnceLock::new(), idle: Mutex::default() }
    }

    /// The connection to the daemon of the request before, if it has this authority.
    fn take(&self, token: &Token, peer: Peer) -> Option<Wire> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        idle.filter(|idle| idle.token == *token && idle.peer == peer && idle.wire.is_quiet()).map(|idle| idle.wire)
    }

    /// Keeps a connection to the daemon that is bound to nothing, while there are few.
    fn keep(&self, Client { gateway, wire, token, peer }: Client) {
        if let Ok(permit) = gateway.idle.clone().try_acquire_owned() {
            let idle = Idle { wire, token, peer, _permit: permit };
            *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(idle);
        }
    }

    /// The process at the other end, as far as it is known. Behind a proxy it is the proxy, unless the request may come from this
    /// machine: then it could be anyone's here.
    pub(super) async fn peer(&self, entry: &Entry, headers: &HeaderMap) -> Peer {
        let forwarded = headers.get_all(FORWARDED_FOR).iter().next_back().and_then(|value| value.to_str().ok());
        if entry.is_public && is_from_here(forwarded) {
            return Peer::default();
        }
        let ends = self.ends;
        if let Some(found) = self.found.get() {
            return *found;
        }
        let peer = task::spawn_blocking(move || Peer::find(ends)).await.unwrap_or_default();
        if peer.pid().is_some() {
            // Two requests at once have found the same.
            let _known = self.found.set(peer);
        }
        peer
    }
}

/// The query of a request.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Self {
        let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pair = |pair: &str| {
            pair.split_once('=').map_or((decode(pair), String::new()), |(name, value)| (decode(name), decode(value)))
        };
        Self(text.split('&').filter(|pair| !pair.is_empty()).map(pair).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Answers one request.
pub(super) async fn answer(connection: &Connection, request: Request<Incoming>) -> Reply {
    let begun = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let entry = connection.gateway.hosts.check(&request);
    let origin = entry.as_ref().ok().and_then(|entry| entry.origin.clone());
    let answered = match entry {
        Ok(entry) => route(connection, &entry, request, &path).await,
        Err(failure) => Err(failure),
    };
    let is_openai = path.starts_with("/v1/");
    let mut reply = answered.unwrap_or_else(|failure| {
        let json = if is_openai { openai::error(&failure) } else { failure.json() };
        failure.reply(json)
    });
    let headers = reply.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Some(origin) = origin.and_then(|origin| HeaderValue::from_str(&origin).ok()) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("x-linger-session"));
        headers.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
        headers.insert(VARY, HeaderValue::from_static("origin"));
    }
    let pid = connection.found.get().and_then(|peer| peer.pid());
    let line =
        Line { method: method.as_str(), path: &path, status: reply.status().as_u16(), took: begun.elapsed(), pid };
    connection.gateway.log.write(&line);
    reply
}

async fn route(
    connection: &Connection,
    entry: &Entry,
    request: Request<Incoming>,
    path: &str,
) -> Result<Reply, Failure> {
    if access::is_preflight(&request, entry) {
        return Ok(preflight());
    }
    let method = match *request.method() {
        Method::HEAD => Method::GET,
        ref method => method.clone(),
    };
    let parts: Vec<Cow<'_, str>> =
        path.split('/').skip(1).map(|part| percent_decode_str(part).decode_utf8_lossy()).collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let gateway = &connection.gateway;
    match (&method, parts.as_slice()) {
        (&Method::GET, [""]) => return page::file("index.html"),
        (&Method::GET, ["page", name]) => return page::file(name),
        (&Method::POST, ["login"]) => return login::login(connection, entry, request).await,
        _ => {}
    }
    let (head, body) = request.into_parts();
    let token = access::token(&head.headers, entry)?;
    let peer = connection.peer(entry, &head.headers).await;
    let is_rpc = method == Method::POST && parts == ["rpc"];
    let kept = if is_rpc { connection.take(&token, peer) } else { None };
    let wire = match kept {
        Some(wire) => wire,
        None => Wire::open(gateway, Some(&token), peer).await?,
    };
    let mut client = Client { gateway: gateway.clone(), wire, token, peer };
    let query = Query::parse(head.uri.query().unwrap_or_default());
    match (&method, parts.as_slice()) {
        (&Method::POST, ["logout"]) => login::logout(gateway, entry),
        (&Method::GET, ["me"]) => login::me(&client),
        (&Method::POST, ["rpc"]) => {
            let (reply, is_free) = rpc::call(&mut client, body).await?;
            if is_free {
                connection.keep(client);
            }
            Ok(reply)
        }
        (&Method::GET, ["events"]) => events::stream(client, &query, &head.headers).await,
        (&Method::GET, ["blob", id]) => blob::get(client, id).await,
        (&Method::POST, ["artifact", ""]) => artifact::put(client, &head.headers, body).await,
        (&Method::GET, ["artifact", ""]) => artifact::list(client, &query).await,
        (&Method::GET, ["artifact", id]) => artifact::get(client, id, &head.headers).await,
        (&Method::GET, ["artifact", id, "meta"]) => artifact::meta(client, id).await,
        (&Method::DELETE, ["artifact", id]) => artifact::delete(client, id).await,
        (_, ["v1", rest @ ..]) => openai::route(client, &method, rest, &query, &head.headers, body).await,
        (_, rest) => Err(unknown(rest)),
    }
}

/// Why there is nothing here.
fn unknown(parts: &[&str]) -> Failure {
    let allow = match parts {
        [""] | ["me" | "events"] | ["page" | "blob", _] | ["artifact", _, "meta"] => "GET",
        ["artifact", ""] => "GET and POST",
        ["artifact", _] => "GET and DELETE",
        ["login" | "logout" | "rpc"] => "POST",
        _ => {
            return Failure::not_found("there is nothing under this path")
                .hint("`linger help http` lists what there is");
        }
    };
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", format!("this takes {allow}"))
}

/// What a page of a configured origin may send.
fn preflight() -> Reply {
    let mut response = Response::new(Body::full(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    let allowed =
        "authorization, content-type, last-event-id, x-linger-session, x-linger-directory, x-original-filename";
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(allowed));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    headers.insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
    response
}
