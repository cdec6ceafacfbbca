//! `POST /login`, `POST /logout`, `GET /me`: the page's cookie, and what its token may do.

use hyper::body::Incoming;
use hyper::header::{HeaderValue, SET_COOKIE};
use hyper::{Request, StatusCode};
use linger_protocol::token::Minted;
use serde::Deserialize;
use serde_json::json;

use super::access::{COOKIE_NAME, Entry};
use super::body;
use super::client::{Client, Connection};
use super::reply::{Failure, Reply, json_of, text_json};
use super::shared::Gateway;
use super::wire::Wire;

/// How long a browser keeps the cookie, in seconds: browsers allow 400 days; the token in it ends earlier.
const COOKIE_AGE: u32 = 400 * 24 * 3600;

#[derive(Deserialize)]
struct Login {
    code: String,
}

/// Exchanges a code of `linger gateway url` for a cookie.
pub(super) async fn login(
    connection: &Connection,
    entry: &Entry,
    request: Request<Incoming>,
) -> Result<Reply, Failure> {
    let (gateway, peer) = (&connection.gateway, connection.peer(entry, request.headers()).await);
    let Login { code } = body::json(request.into_body()).await?;
    let mut wire = Wire::open(gateway, None, peer).await?;
    let exchanged: Minted = wire.get("token/exchange", json!({ "code": code })).await.map_err(|trouble| {
        let failure = Failure::from(trouble);
        match failure.status {
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => Failure { status: StatusCode::UNAUTHORIZED, ..failure },
            _ => failure,
        }
    })?;
    let mut reply = json_of(&json!({ "grant": exchanged.grant }))?;
    let cookie = cookie(gateway, entry, &exchanged.token, COOKIE_AGE)?;
    reply.headers_mut().insert(SET_COOKIE, cookie);
    Ok(reply)
}

/// Takes the cookie away. The token stays good: `linger token revoke` ends it.
pub(super) fn logout(gateway: &Gateway, entry: &Entry) -> Result<Reply, Failure> {
    let mut reply = text_json(StatusCode::OK, "{}".to_owned());
    reply.headers_mut().insert(SET_COOKIE, cookie(gateway, entry, "", 0)?);
    Ok(reply)
}

/// The grant of the token.
pub(super) fn me(client: &Client) -> Result<Reply, Failure> {
    json_of(&json!({ "grant": client.wire.welcome.get("grant") }))
}

fn cookie(gateway: &Gateway, entry: &Entry, token: &str, age: u32) -> Result<HeaderValue, Failure> {
    let secure = if gateway.hosts.is_secure(entry) { "; Secure" } else { "" };
    let text = format!("{COOKIE_NAME}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}");
    let mut value = HeaderValue::from_str(&text).map_err(|_| Failure::bad_request("that is no token"))?;
    value.set_sensitive(true);
    Ok(value)
}
