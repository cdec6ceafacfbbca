//! OAuth for servers at an address: finding the authorization server, registering, and getting tokens.
//!
//! Sources: MCP 2025-11-25 "Authorization"; RFC 9728 (metadata of the protected resource), RFC 8414 (metadata of the authorization
//! server), RFC 7591 (registration), RFC 7636 (PKCE, S256 alone), RFC 8707 (`resource`), RFC 9207 (`iss`). What servers say is
//! hostile: lengths are bounded, addresses are `https` or on this machine, no redirect is followed, and a token goes to the server
//! alone that it was made for.
//! Deliberately absent: the browser and the loopback redirect (the client), and storing tokens ([`super::login`]).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use reqwest::{Client, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Http;
use crate::diagnostics::secret::Secret;
use crate::provider::address;
use crate::sys::clock;
use crate::tool::text;

/// The largest metadata or answer with tokens, in bytes: real ones have a few thousand.
const MAX_ANSWER: usize = 64 << 10;

/// The most bytes of what a server says that are shown.
const SHOWN: usize = 300;

/// The letters of a PKCE verifier (43 to 128, RFC 7636) and of a `state`; each has five random bits.
const VERIFIER: usize = 64;
const STATE: usize = 32;

/// A token is renewed this long before it ends, in milliseconds: a request with it takes a while to arrive.
const EARLY_MS: u64 = 60_000;

/// The tokens for one server, as they are stored.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Tokens {
    access: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh: Option<String>,
    /// When `access` ends, in Unix milliseconds; absent if the server does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
    /// Where new ones come from.
    endpoint: String,
    registered: Registered,
    resource: String,
}

impl Tokens {
    pub(super) fn access(&self) -> Secret {
        Secret::new(&self.access)
    }

    /// All that must be redacted.
    pub(super) fn secrets(&self) -> impl Iterator<Item = Secret> {
        let all = [Some(&self.access), self.refresh.as_ref(), self.registered.client_secret.as_ref()];
        all.into_iter().flatten().map(|text| Secret::new(text))
    }

    pub(super) fn is_stale(&self) -> bool {
        self.expires_at.is_some_and(|at| at <= clock::now() + EARLY_MS)
    }

    pub(super) fn can_renew(&self) -> bool {
        self.refresh.is_some()
    }

    /// Newer ones. Fails with the reason.
    pub(super) async fn renewed(&self, http: &Http) -> Result<Self, String> {
        let refresh = self.refresh.as_deref().ok_or("there is no refresh token")?;
        let form = [("grant_type", "refresh_token"), ("refresh_token", refresh), ("resource", &self.resource)];
        let answer = token(http, &self.endpoint, &self.registered, &form).await?;
        let refresh = answer.refresh_token.or_else(|| self.refresh.clone());
        Ok(Self { access: answer.access_token, refresh, expires_at: ends(answer.expires_in), ..self.clone() })
    }
}

/// What we are to an authorization server.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Registered {
    client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token_endpoint_auth_method: Option<String>,
}

/// A login that waits for a person in a browser.
pub(super) struct Pending {
    /// The page to open.
    pub(super) page: Url,
    state: String,
    verifier: String,
    redirect: String,
    endpoint: String,
    issuer: String,
    says_issuer: bool,
    registered: Registered,
    resource: String,
}

/// The metadata of a protected resource.
#[derive(Deserialize)]
struct Resource {
    resource: Option<String>,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

/// The metadata of an authorization server.
#[derive(Deserialize)]
struct Issuer {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    registration_endpoint: Option<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    token_type: String,
    refresh_token: Option<String>,
    expires_in: Option<u64>,
}

/// What came back to the redirect.
pub(super) struct Returned<'a> {
    pub(super) code: &'a str,
    pub(super) state: &'a str,
    pub(super) issuer: Option<&'a str>,
}

/// Begins a login for the server at `server`; `redirect` is where the browser goes with the code.
pub(super) async fn begin(http: &Http, server: &Url, redirect: &str) -> Result<Pending, String> {
    let is_local = address::is_loopback(server);
    if !is_local && server.scheme() != "https" {
        return Err(format!("{} is not https: a token would go over the network in the clear", server.authority()));
    }
    let challenge = challenge(http, server).await?;
    let found = resource(http, server, challenge.metadata.as_deref()).await?;
    let resource = match &found.resource {
        // Else a server could have us get a token for another one (RFC 9728, 3.3).
        Some(named) if !covers(named, server) => {
            return Err(format!("its metadata is of another server: {}", shown(named)));
        }
        Some(named) => named.clone(),
        None => bare(server).to_string(),
    };
    let root = || bare(server).join("/").map(String::from).unwrap_or_default();
    let issuer = found.authorization_servers.first().cloned().unwrap_or_else(root);
    let issuer = authorization_server(http, &issuer, is_local).await?;
    if !issuer.code_challenge_methods_supported.iter().any(|method| method == "S256") {
        return Err(format!("{} does not support PKCE with S256", shown(&issuer.issuer)));
    }
    let scopes = if found.scopes_supported.is_empty() { &issuer.scopes_supported } else { &found.scopes_supported };
    let scope = challenge.scope.unwrap_or_else(|| scopes.join(" "));
    let registered = register(http, &issuer, redirect).await?;
    let (state, verifier) = (clock::random_word(STATE), clock::random_word(VERIFIER));
    let mut page = parsed(&issuer.authorization_endpoint)?;
    {
        let mut query = page.query_pairs_mut();
        query.append_pair("response_type", "code").append_pair("client_id", &registered.client_id);
        query.append_pair("redirect_uri", redirect).append_pair("state", &state);
        query.append_pair("code_challenge", &s256(&verifier)).append_pair("code_challenge_method", "S256");
        query.append_pair("resource", &resource);
        if !scope.is_empty() {
            query.append_pair("scope", &scope);
        }
    }
    let says_issuer = issuer.authorization_response_iss_parameter_supported;
    let (endpoint, issuer) = (issuer.token_endpoint, issuer.issuer);
    Ok(Pending {
        page,
        state,
        verifier,
        redirect: redirect.to_owned(),
        endpoint,
        issuer,
        says_issuer,
        registered,
        resource,
    })
}

impl Pending {
    /// Gets tokens for the code that the browser brought.
    pub(super) async fn finish(self, http: &Http, returned: Returned<'_>) -> Result<Tokens, String> {
        if returned.state != self.state {
            return Err("the answer of the browser belongs to another login".to_owned());
        }
        match returned.issuer {
            Some(issuer) if issuer != self.issuer => {
                return Err("the answer is from another authorization server".to_owned());
            }
            None if self.says_issuer => {
                return Err("the answer does not say which authorization server it is from".to_owned());
            }
            _ => {}
        }
        let form = [
            ("grant_type", "authorization_code"),
            ("code", returned.code),
            ("redirect_uri", &self.redirect),
            ("code_verifier", &self.verifier),
            ("resource", &self.resource),
        ];
        let answer = token(http, &self.endpoint, &self.registered, &form).await?;
        Ok(Tokens {
            access: answer.access_token,
            refresh: answer.refresh_token,
            expires_at: ends(answer.expires_in),
            endpoint: self.endpoint,
            registered: self.registered,
            resource: self.resource,
        })
    }
}

/// What a 401 says in `WWW-Authenticate`.
#[derive(Debug, Default, PartialEq)]
struct Challenge {
    metadata: Option<String>,
    scope: Option<String>,
}

/// Asks the server without a token.
async fn challenge(http: &Http, server: &Url) -> Result<Challenge, String> {
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let request = client(http, server).await?.post(server.clone());
    let request =
        request.header(ACCEPT, "application/json, text/event-stream").header(CONTENT_TYPE, "application/json");
    let request = request.body(hello.to_string());
    let response = request.send().await.map_err(|error| error.without_url().to_string())?;
    if response.status() != StatusCode::UNAUTHORIZED {
        return Ok(Challenge::default());
    }
    let said = response.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    Ok(said.map(parameters).fold(Challenge::default(), |all, one| Challenge {
        metadata: all.metadata.or(one.metadata),
        scope: all.scope.or(one.scope),
    }))
}

/// The parameters of a `WWW-Authenticate` that matter here.
fn parameters(header: &str) -> Challenge {
    let value = |name: &str| {
        let at = header.find(&format!("{name}="))?;
        let rest = header.get(at + name.len() + 1..)?;
        let value = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next()?,
            None => rest.split([',', ' ']).next()?,
        };
        (!value.is_empty()).then(|| value.to_owned())
    };
    Challenge { metadata: value("resource_metadata"), scope: value("scope") }
}

/// The metadata of the server, where it says so or at the well-known places; without any the server is its own issuer.
async fn resource(http: &Http, server: &Url, named: Option<&str>) -> Result<Resource, String> {
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
    Ok(Resource { resource: None, authorization_servers: Vec::new(), scopes_supported: Vec::new() })
}

async fn authorization_server(http: &Http, issuer: &str, is_local: bool) -> Result<Issuer, String> {
    let url = checked(issuer, is_local)?;
    let mut places = well_known(&url, "oauth-authorization-server");
    places.extend(well_known(&url, "openid-configuration"));
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

async fn register(http: &Http, issuer: &Issuer, redirect: &str) -> Result<Registered, String> {
    let Some(endpoint) = &issuer.registration_endpoint else {
        return Err(format!("{} lets no client register itself", shown(&issuer.issuer)));
    };
    let endpoint = parsed(endpoint)?;
    let client_of = json!({
        "client_name": "linger",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    });
    let request = client(http, &endpoint).await?.post(endpoint.clone()).header(CONTENT_TYPE, "application/json");
    let response = request.body(client_of.to_string()).send().await;
    answer(response.map_err(|error| error.without_url().to_string())?, &endpoint).await
}

async fn token(
    http: &Http,
    endpoint: &str,
    registered: &Registered,
    form: &[(&str, &str)],
) -> Result<TokenAnswer, String> {
    let endpoint = parsed(endpoint)?;
    let mut body = url::form(form);
    let mut request = client(http, &endpoint).await?.post(endpoint.clone());
    match (&registered.client_secret, registered.token_endpoint_auth_method.as_deref()) {
        (Some(secret), Some("client_secret_post")) => {
            body += &format!("&{}", url::form(&[("client_id", &registered.client_id), ("client_secret", secret)]));
        }
        (Some(secret), method) if method != Some("none") => {
            request = request.basic_auth(url::encoded(&registered.client_id), Some(url::encoded(secret)));
        }
        _ => body += &format!("&{}", url::form(&[("client_id", &registered.client_id)])),
    }
    let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").header(ACCEPT, "application/json");
    let response = request.body(body).send().await.map_err(|error| error.without_url().to_string())?;
    let tokens: TokenAnswer = answer(response, &endpoint).await?;
    match tokens.token_type.eq_ignore_ascii_case("bearer") && !tokens.access_token.is_empty() {
        true => Ok(tokens),
        false => Err(format!("{} gave no bearer token", endpoint.authority())),
    }
}

mod url {
    //! Forms as servers read them.

    pub(super) fn form(pairs: &[(&str, &str)]) -> String {
        let mut url = reqwest::Url::parse("http://h/").ok();
        if let Some(url) = &mut url {
            url.query_pairs_mut().extend_pairs(pairs);
        }
        url.and_then(|url| url.query().map(str::to_owned)).unwrap_or_default()
    }

    pub(super) fn encoded(text: &str) -> String {
        form(&[("", text)]).trim_start_matches('=').to_owned()
    }
}

/// The JSON at an address; absent if there is none.
async fn metadata<T: for<'a> Deserialize<'a>>(http: &Http, place: &Url) -> Result<Option<T>, String> {
    let response = client(http, place).await?.get(place.clone()).header(ACCEPT, "application/json").send().await;
    let response = response.map_err(|error| error.without_url().to_string())?;
    match response.status() {
        status if status.is_client_error() => Ok(None),
        _ => answer(response, place).await.map(Some),
    }
}

/// Reads an answer. What it says is not quoted where it may hold a token.
async fn answer<T: for<'a> Deserialize<'a>>(mut response: Response, from: &Url) -> Result<T, String> {
    let (status, from) = (response.status(), from.authority().to_owned());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error.without_url().to_string())? {
        if body.len() + chunk.len() > MAX_ANSWER {
            return Err(format!("{from} sent more than {MAX_ANSWER} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    if !status.is_success() {
        let error: Value = serde_json::from_slice(&body).unwrap_or_default();
        let field = |name: &str| error.get(name).and_then(Value::as_str).map(shown);
        let said: Vec<String> = ["error", "error_description"].into_iter().filter_map(field).collect();
        return Err(format!("{from} answered {status} {}", said.join(": ")).trim_end().to_owned());
    }
    serde_json::from_slice(&body).map_err(|error| {
        format!("the answer of {from} cannot be read: line {}, column {}", error.line(), error.column())
    })
}

async fn client(http: &Http, url: &Url) -> Result<Client, String> {
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

fn parsed(text: &str) -> Result<Url, String> {
    Url::parse(text).map_err(|_| format!("{} is no URL", shown(text)))
}

/// Whether the metadata of this resource is that of the server: the same origin, and its path or one above.
fn covers(named: &str, server: &Url) -> bool {
    let Ok(named) = Url::parse(named) else { return false };
    let (above, path) = (named.path().trim_end_matches('/'), server.path());
    let is_below = path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    named.origin() == server.origin() && is_below
}

/// Without what is behind the path.
fn bare(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url
}

fn s256(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}

fn ends(expires_in: Option<u64>) -> Option<u64> {
    expires_in.map(|seconds| clock::now().saturating_add(seconds.saturating_mul(1000)))
}

fn shown(said: &str) -> String {
    text::one_line(text::head(said, SHOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_is_that_of_the_rfc() {
        // RFC 7636, appendix B.
        assert_eq!(s256("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn the_header_names_the_metadata() {
        let check = |header: &str, metadata: Option<&str>, scope: Option<&str>| {
            let expect = Challenge { metadata: metadata.map(str::to_owned), scope: scope.map(str::to_owned) };
            assert_eq!(parameters(header), expect, "{header}");
        };
        check("Bearer", None, None);
        check("Bearer resource_metadata=\"https://h/m\", scope=\"a b\"", Some("https://h/m"), Some("a b"));
        check("Bearer error=\"invalid_token\", resource_metadata=https://h/m", Some("https://h/m"), None);
    }

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
