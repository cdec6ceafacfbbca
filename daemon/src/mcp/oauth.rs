//! OAuth for servers at an address: finding the authorization server, registering, and getting tokens.
//!
//! Sources: MCP 2025-11-25 and 2026-07-28 "Authorization"; RFC 7591 (registration), RFC 7636 (PKCE, S256 alone), RFC 8707
//! (`resource`), RFC 9207 (`iss`). What servers say is hostile: a token goes to the server alone that it was made for, and a client of
//! the configuration to no authorization server but the one that the server names at that login.
//! Deliberately absent: the browser and the loopback redirect (the client), where to log in ([`super::discovery`]), and storing
//! tokens ([`super::login`]).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Url;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::challenge::{Challenge, union};
use super::discovery::{
    Http, Issuer, Unanswered, answer, authorization_server, bare, challenge, client, covers, parsed, resource, shown,
};
use super::settings::OAuth;
use crate::diagnostics::secret::Secret;
use crate::provider::address;
use crate::sys::clock;

/// The letters of a PKCE verifier (43 to 128, RFC 7636) and of a `state`; each has five random bits.
const VERIFIER: usize = 64;
const STATE: usize = 32;

/// A token is renewed this long before it ends, in milliseconds: a request with it takes a while to arrive.
const EARLY_MS: u64 = 60_000;

/// The scope that gives a token that can be renewed, where the authorization server has it.
const OFFLINE: &str = "offline_access";

/// How a client proves to an authorization server who it is, by RFC 7591's names.
const BASIC: &str = "client_secret_basic";
const POST: &str = "client_secret_post";
const PUBLIC: &str = "none";

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
    /// The scope that was asked for; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
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

    /// The scopes that it was asked for.
    pub(super) fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
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
        let mut registered = self.registered.clone();
        let answer = token(http, &self.endpoint, &mut registered, &form).await?;
        let refresh = answer.refresh_token.or_else(|| self.refresh.clone());
        let expires_at = ends(answer.expires_in.as_ref());
        Ok(Self { access: answer.access_token, refresh, expires_at, registered, ..self.clone() })
    }
}

/// This client, as it is registered at an authorization server.
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
    scope: Option<String>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    /// A bearer token without it.
    token_type: Option<String>,
    refresh_token: Option<String>,
    /// Seconds: a number, or one written as text.
    expires_in: Option<Value>,
}

/// The parameters of the redirect.
pub struct Returned<'a> {
    /// Exchanged for tokens.
    pub code: &'a str,
    /// The word that the login began with.
    pub state: &'a str,
    /// The authorization server, if it names itself.
    pub issuer: Option<&'a str>,
}

/// The facts that are known before a login.
#[derive(Default)]
pub(super) struct Known {
    /// The client of the configuration.
    pub(super) client: OAuth,
    /// The challenge of a refused request; without one, the server is asked for it.
    pub(super) challenge: Option<Challenge>,
    /// The scopes of the login that there is.
    pub(super) granted: Option<String>,
}

/// Begins a login for the server at `server`; `redirect` is where the browser goes with the code.
pub(super) async fn begin(http: &Http, server: &Url, redirect: &str, known: Known) -> Result<Pending, String> {
    let is_local = address::is_loopback(server);
    if !is_local && server.scheme() != "https" {
        return Err(format!("{} is not https: a token would go over the network in the clear", server.authority()));
    }
    let challenge = match known.challenge {
        Some(challenge) => challenge,
        None => challenge(http, server).await?,
    };
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
    let scope = challenge.scope_with(known.granted.as_deref());
    let scope = scope.unwrap_or_else(|| found.scopes_supported.join(" "));
    let scope = Some(scope).filter(|scope| !scope.is_empty());
    let has_offline = issuer.scopes_supported.iter().any(|scope| scope == OFFLINE);
    let scope = scope.map(|scope| if has_offline { union(&scope, OFFLINE) } else { scope });
    let registered =
        registered(http, &issuer, WantedClient { redirect, scope: scope.as_deref() }, known.client).await?;
    let (state, verifier) = (clock::random_word(STATE), clock::random_word(VERIFIER));
    let mut page = parsed(&issuer.authorization_endpoint)?;
    {
        let mut query = page.query_pairs_mut();
        query.append_pair("response_type", "code").append_pair("client_id", &registered.client_id);
        query.append_pair("redirect_uri", redirect).append_pair("state", &state);
        query.append_pair("code_challenge", &s256(&verifier)).append_pair("code_challenge_method", "S256");
        query.append_pair("resource", &resource);
        if let Some(scope) = &scope {
            query.append_pair("scope", scope);
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
        scope,
    })
}

impl Pending {
    /// Gets tokens for the code that the browser brought.
    pub(super) async fn finish(mut self, http: &Http, returned: Returned<'_>) -> Result<Tokens, String> {
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
        let answer = token(http, &self.endpoint, &mut self.registered, &form).await?;
        Ok(Tokens {
            access: answer.access_token,
            refresh: answer.refresh_token,
            expires_at: ends(answer.expires_in.as_ref()),
            endpoint: self.endpoint,
            registered: self.registered,
            resource: self.resource,
            scope: self.scope,
        })
    }
}

/// The use that a client is registered for.
struct WantedClient<'a> {
    redirect: &'a str,
    scope: Option<&'a str>,
}

/// The client of the configuration, where the authorization server can know it; else one that registers itself.
async fn registered(
    http: &Http,
    issuer: &Issuer,
    wanted: WantedClient<'_>,
    client: OAuth,
) -> Result<Registered, String> {
    let OAuth { client_id, client_secret, issuer: only } = client;
    if let Some(only) = only.filter(|only| only.trim_end_matches('/') != issuer.issuer.trim_end_matches('/')) {
        let named = shown(&issuer.issuer);
        return Err(format!(
            "it names the authorization server {named}, and the configuration {only} (`oauth.issuer`)"
        ));
    }
    // An address is the client's metadata, and its name only where the authorization server reads that.
    let is_known = |id: &String| !id.starts_with("https://") || issuer.client_id_metadata_document_supported;
    match client_id.filter(is_known) {
        Some(client_id) => {
            let token_endpoint_auth_method = Some(proof(issuer, client_secret.is_some()).to_owned());
            Ok(Registered { client_id, client_secret, token_endpoint_auth_method })
        }
        None => register(http, issuer, wanted).await,
    }
}

/// How a client with or without a secret proves who it is.
fn proof(issuer: &Issuer, has_secret: bool) -> &'static str {
    let takes = |method: &str| issuer.token_endpoint_auth_methods_supported.iter().any(|it| it == method);
    match (has_secret, takes(POST)) {
        (false, _) => PUBLIC,
        // There are servers that want `client_id` in the form with Basic too.
        (true, true) => POST,
        (true, false) => BASIC,
    }
}

async fn register(http: &Http, issuer: &Issuer, wanted: WantedClient<'_>) -> Result<Registered, String> {
    let Some(endpoint) = &issuer.registration_endpoint else {
        return Err(format!(
            "{} lets no client register itself; register one there, and put its `client_id` into the server's `oauth` table",
            shown(&issuer.issuer)
        ));
    };
    let endpoint = parsed(endpoint)?;
    // A secret only where one is wanted: there is no place for it but the keychain.
    let supported = &issuer.token_endpoint_auth_methods_supported;
    let wants_secret = !supported.is_empty() && !supported.iter().any(|method| method == PUBLIC);
    let method = proof(issuer, wants_secret);
    let mut client_of = json!({
        "client_name": "linger",
        "redirect_uris": [wanted.redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native",
    });
    if let (Some(fields), Some(scope)) = (client_of.as_object_mut(), wanted.scope) {
        // There are servers that give a client no scope but those that it was registered with.
        fields.insert("scope".to_owned(), scope.into());
    }
    let request = client(http, &endpoint).await?.post(endpoint.clone()).header(CONTENT_TYPE, "application/json");
    let response = request.body(client_of.to_string()).send().await;
    let response = response.map_err(|error| error.without_url().to_string())?;
    let registered: Registered = answer(response, &endpoint).await.map_err(|unanswered| unanswered.why)?;
    let token_endpoint_auth_method = registered.token_endpoint_auth_method.or_else(|| Some(method.to_owned()));
    Ok(Registered { token_endpoint_auth_method, ..registered })
}

/// A way in which a client proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientProof {
    /// Its id in the form, and nothing more.
    Id,
    /// Id and secret in the form.
    Form,
    /// Both in a header.
    Header,
    /// The same, and the id in the form too: the official Python SDK wants it there.
    HeaderAndId,
}

impl Registered {
    /// The ways to try, in order: the one that was agreed on, and those that servers want instead.
    fn proofs(&self) -> &'static [ClientProof] {
        match (&self.client_secret, self.token_endpoint_auth_method.as_deref()) {
            (None, _) => &[ClientProof::Id],
            (Some(_), Some(PUBLIC)) => &[ClientProof::Id, ClientProof::Form],
            (Some(_), Some(POST)) => &[ClientProof::Form, ClientProof::HeaderAndId, ClientProof::Header],
            (Some(_), _) => &[ClientProof::Header, ClientProof::HeaderAndId, ClientProof::Form],
        }
    }
}

/// Asks for tokens. A server that does not believe the client is asked in the other ways too, and the one that works is kept.
async fn token(
    http: &Http,
    endpoint: &str,
    registered: &mut Registered,
    form: &[(&str, &str)],
) -> Result<TokenAnswer, String> {
    let endpoint = parsed(endpoint)?;
    let mut refused: Option<String> = None;
    for proof in registered.proofs() {
        match token_by(http, &endpoint, registered, *proof, form).await {
            Ok(answer) => {
                if *proof == ClientProof::Form {
                    registered.token_endpoint_auth_method = Some(POST.to_owned());
                }
                return Ok(answer);
            }
            Err(Unanswered { is_client: true, why }) => drop(refused.get_or_insert(why)),
            Err(Unanswered { why, .. }) => return Err(refused.unwrap_or(why)),
        }
    }
    Err(refused.unwrap_or_default())
}

async fn token_by(
    http: &Http,
    endpoint: &Url,
    registered: &Registered,
    proof: ClientProof,
    form: &[(&str, &str)],
) -> Result<TokenAnswer, Unanswered> {
    let secret = registered.client_secret.as_deref().unwrap_or_default();
    let mut form = form.to_vec();
    if proof != ClientProof::Header {
        form.push(("client_id", &registered.client_id));
    }
    if proof == ClientProof::Form {
        form.push(("client_secret", secret));
    }
    let mut request = client(http, endpoint).await?.post(endpoint.clone());
    if matches!(proof, ClientProof::Header | ClientProof::HeaderAndId) {
        request = request.basic_auth(url::encoded(&registered.client_id), Some(url::encoded(secret)));
    }
    let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").header(ACCEPT, "application/json");
    let response = request.body(url::form(&form)).send().await.map_err(|error| error.without_url().to_string())?;
    let tokens: TokenAnswer = answer(response, endpoint).await?;
    let is_bearer = tokens.token_type.as_ref().is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
    if is_bearer && !tokens.access_token.is_empty() {
        Ok(tokens)
    } else {
        Err(format!("{} gave no bearer token", endpoint.authority()).into())
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
        // A blank as `%20`: there are servers that leave `+` as it is.
        form(&[("", text)]).trim_start_matches('=').replace('+', "%20")
    }
}

fn s256(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}

fn ends(expires_in: Option<&Value>) -> Option<u64> {
    let seconds = match expires_in? {
        Value::String(text) => text.trim().parse().ok(),
        number => number.as_f64().map(|seconds| seconds as u64),
    };
    seconds.map(|seconds: u64| clock::now().saturating_add(seconds.saturating_mul(1000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_proves_itself_as_the_server_takes_it() {
        let check = |methods: &[&str], has_secret: bool, expect: &str| {
            let issuer = json!({ "issuer": "https://h", "authorization_endpoint": "https://h/a",
                "token_endpoint": "https://h/t", "token_endpoint_auth_methods_supported": methods });
            let issuer: Issuer = serde_json::from_value(issuer).unwrap();
            assert_eq!(proof(&issuer, has_secret), expect, "{methods:?}");
        };
        check(&[], false, PUBLIC);
        check(&[], true, BASIC);
        check(&[POST], true, POST);
        check(&[POST, BASIC], true, POST);
        check(&[BASIC], true, BASIC);
        check(&["private_key_jwt"], true, BASIC);
    }

    #[test]
    fn the_challenge_is_that_of_the_rfc() {
        // RFC 7636, appendix B.
        assert_eq!(s256("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
