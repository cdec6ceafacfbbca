//! Where to log in: the metadata of servers and of authorization servers.
//!
//! Sources: RFC 9728 (metadata of the protected resource), RFC 8414 (metadata of the authorization server). What servers say is
//! hostile: lengths are bounded, addresses are `https` or on this machine, and no redirect is followed.
//! Deliberately absent: what is done with it ([`super::oauth`]).

use std::sync::Arc;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::challenge::Challenge;
use crate::provider::address;
use crate::tool::{BoxFuture, text};

/// An HTTP client for an address, with the proxies and certificates of the configuration.
pub type Http = Arc<dyn Fn(reqwest::Url) -> BoxFuture<'static, Result<reqwest::Client, String>> + Send + Sync>;

/// The largest metadata or answer with tokens, in bytes: real ones have a few thousand.
const MAX_ANSWER: usize = 64 << 10;

/// The most bytes of what a server says that are shown.
const SHOWN: usize = 300;

/// The metadata of a protected resource.
#[derive(Default, Deserialize)]
pub(super) struct Resource {
    pub(super) resource: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) authorization_servers: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) scopes_supported: Vec<String>,
}

/// The metadata of an authorization server.
#[derive(Deserialize)]
pub(super) struct Issuer {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) registration_endpoint: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) code_challenge_methods_supported: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) scopes_supported: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) authorization_response_iss_parameter_supported: bool,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) client_id_metadata_document_supported: bool,
}

/// A field that may be `null`, which means that it is absent.
fn nullable<'de, T: Default + Deserialize<'de>, D: serde::Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Why an answer has nothing of use.
pub(super) struct Unanswered {
    /// Whether the authorization server does not believe who the client is.
    pub(super) is_client: bool,
    /// For people.
    pub(super) why: String,
}

impl From<String> for Unanswered {
    fn from(why: String) -> Self {
        Self { is_client: false, why }
    }
}

/// Asks the server without a token.
pub(super) async fn challenge(http: &Http, server: &Url) -> Result<Challenge, String> {
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let request = client(http, server).await?.post(server.clone());
    let request =
        request.header(ACCEPT, "application/json, text/event-stream").header(CONTENT_TYPE, "application/json");
    let request = request.body(hello.to_string());
    let response = request.send().await.map_err(|error| error.without_url().to_string())?;
    Ok(match response.status() {
        StatusCode::UNAUTHORIZED => Challenge::of(response.headers()),
        _ => Challenge::default(),
    })
}

/// The metadata of the server, where it says so or at the well-known places; without any the server is its own issuer.
pub(super) async fn resource(http: &Http, server: &Url, named: Option<&str>) -> Result<Resource, String> {
    if let Some(named) = named {
        let place = checked(named, address::is_loopback(server))?;
        let found = metadata(http, &place).await?;
        return found.ok_or_else(|| format!("there is no metadata at {}", shown(named)));
    }
    for place in well_known(server, "oauth-protected-resource") {
        if let Some(found) = metadata(http, &place).await? {
            return Ok(found);
        }
    }
    Ok(Resource::default())
}

pub(super) async fn authorization_server(http: &Http, issuer: &str, is_local: bool) -> Result<Issuer, String> {
    let url = checked(issuer, is_local)?;
    // Not at the root of the host where the issuer has a path: there may be another one.
    let own = |name: &str| well_known(&url, name).into_iter().next();
    let mut places: Vec<Url> =
        own("oauth-authorization-server").into_iter().chain(own("openid-configuration")).collect();
    let path = url.path().trim_end_matches('/');
    places.extend(url.join(&format!("{path}/.well-known/openid-configuration")).ok().filter(|_| !path.is_empty()));
    for place in places {
        let Some(found) = metadata::<Issuer>(http, &place).await? else { continue };
        // RFC 8414, 3.3.
        if found.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
            return Err(format!("the metadata of {} is of another issuer, {}", shown(issuer), shown(&found.issuer)));
        }
        for endpoint in
            [Some(&found.token_endpoint), Some(&found.authorization_endpoint), found.registration_endpoint.as_ref()]
        {
            endpoint.map(|it| checked(it, is_local)).transpose()?;
        }
        return Ok(found);
    }
    Err(format!("{} does not say where to log in (no authorization server metadata)", shown(issuer)))
}

/// The well-known places of a URL: with its path, and of its host.
fn well_known(url: &Url, name: &str) -> Vec<Url> {
    let path = url.path().trim_end_matches('/');
    let mut places = vec![format!("/.well-known/{name}{path}")];
    if !path.is_empty() {
        places.push(format!("/.well-known/{name}"));
    }
    let bare = bare(url);
    places.iter().filter_map(|place| bare.join(place).ok()).collect()
}

/// The JSON at an address; absent if there is none.
async fn metadata<T: for<'a> Deserialize<'a>>(http: &Http, place: &Url) -> Result<Option<T>, String> {
    let response = client(http, place).await?.get(place.clone()).header(ACCEPT, "application/json").send().await;
    let response = response.map_err(|error| error.without_url().to_string())?;
    match response.status() {
        status if status.is_client_error() => Ok(None),
        _ => answer(response, place).await.map(Some).map_err(|unanswered| unanswered.why),
    }
}

/// Reads an answer. What it says is not quoted where it may hold a token.
pub(super) async fn answer<T: for<'a> Deserialize<'a>>(mut response: Response, from: &Url) -> Result<T, Unanswered> {
    let (status, from) = (response.status(), from.authority().to_owned());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error.without_url().to_string())? {
        if body.len() + chunk.len() > MAX_ANSWER {
            return Err(format!("{from} sent more than {MAX_ANSWER} bytes").into());
        }
        body.extend_from_slice(&chunk);
    }
    if !status.is_success() {
        let error: Value = serde_json::from_slice(&body).unwrap_or_default();
        let field = |name: &str| error.get(name).and_then(Value::as_str).map(shown);
        let said: Vec<String> = ["error", "error_description"].into_iter().filter_map(field).collect();
        let is_about_client = || said.iter().any(|said| said.contains("client"));
        let is_client = match said.first().map(String::as_str) {
            Some("invalid_client" | "unauthorized_client") => true,
            Some("invalid_request") => is_about_client(),
            _ => status == StatusCode::UNAUTHORIZED,
        };
        let why = format!("{from} answered {status} {}", said.join(": ")).trim_end().to_owned();
        return Err(Unanswered { is_client, why });
    }
    serde_json::from_slice(&body).map_err(|error| {
        format!("the answer of {from} cannot be read: line {}, column {}", error.line(), error.column()).into()
    })
}

pub(super) async fn client(http: &Http, url: &Url) -> Result<Client, String> {
    http(url.clone()).await
}

/// An address that a token or a code may go to. One on this machine is for servers on this machine: a server elsewhere must not
/// have us ask it.
fn checked(text: &str, is_local: bool) -> Result<Url, String> {
    let url = parsed(text)?;
    match (url.scheme(), address::is_loopback(&url)) {
        ("https", false) => Ok(url),
        ("https" | "http", true) if is_local => Ok(url),
        _ => Err(format!("{} is not an https address", shown(text))),
    }
}

pub(super) fn parsed(text: &str) -> Result<Url, String> {
    Url::parse(text).map_err(|_| format!("{} is no URL", shown(text)))
}

/// Whether the metadata of this resource is that of the server: the same origin, and its path or one above.
pub(super) fn covers(named: &str, server: &Url) -> bool {
    let Ok(named) = Url::parse(named) else { return false };
    let (above, path) = (named.path().trim_end_matches('/'), server.path());
    let is_below = path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    named.origin() == server.origin() && is_below
}

/// Without what is behind the path.
pub(super) fn bare(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url
}

pub(super) fn shown(said: &str) -> String {
    text::one_line(text::head(said, SHOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_of_another_server_does_not_count() {
        let server = Url::parse("https://h/a/mcp").unwrap();
        let check = |named: &str, expect: bool| assert_eq!(covers(named, &server), expect, "{named}");
        check("https://h/a/mcp", true);
        check("https://h", true);
        check("https://h/a/", true);
        check("https://h/a/m", false);
        check("https://evil/a/mcp", false);
        check("http://h/a/mcp", false);
        check("nonsense", false);
    }

    #[test]
    fn codes_and_tokens_go_to_https_or_to_this_machine() {
        let check = |url: &str, expect: [bool; 2]| {
            assert_eq!([true, false].map(|is_local| checked(url, is_local).is_ok()), expect, "{url}");
        };
        check("https://h/token", [true, true]);
        check("http://127.0.0.1:1/token", [true, false]);
        check("http://h/token", [false, false]);
        check("file:///etc/passwd", [false, false]);
    }

    #[test]
    fn metadata_is_looked_for_with_the_path_first() {
        let url = Url::parse("https://h/a/mcp?x=1").unwrap();
        let places: Vec<String> = well_known(&url, "oauth-protected-resource").iter().map(Url::to_string).collect();
        let at = "https://h/.well-known/oauth-protected-resource";
        assert_eq!(places, [format!("{at}/a/mcp"), at.to_owned()]);
    }
}
