//! Which request does what. Host and Origin come first, then the token, then everything else.

use std::borrow::Cow;
use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, CACHE_CONTROL, HeaderName, HeaderValue,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;

use super::access::{self, Entry};
use super::client::{Client, Connection, Query};
use super::log::AccessLine;
use super::reply::{Body, Failure, Reply};
use super::wire::Wire;
use super::{artifact, blob, events, login, openai, page, rpc};

/// Keeps other origins from reading what a tag of theirs loads.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

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
        headers.insert(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("x-linger-session, x-linger-warning, retry-after"),
        );
        headers.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
        headers.insert(VARY, HeaderValue::from_static("origin"));
    }
    let pid = connection.found.get().and_then(|peer| peer.pid());
    let line = AccessLine {
        method: method.as_str(),
        path: &path,
        status: reply.status().as_u16(),
        took: begun.elapsed(),
        pid,
    };
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
        _ => return Failure::nothing_here(),
    };
    Failure::wrong_method(allow)
}

/// The methods and headers that a page of a configured origin may send.
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
