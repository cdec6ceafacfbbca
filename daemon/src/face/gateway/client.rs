//! A caller: its connection to the gateway, the process behind it, its token, and its connection to the daemon.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hyper::StatusCode;
use hyper::header::HeaderMap;
use percent_encoding::percent_decode_str;
use tokio::sync::OwnedSemaphorePermit;

use super::access::{Entry, Token};
use super::peer::{Ends, Peer, is_from_here};
use super::reply::Failure;
use super::shared::Gateway;
use super::wire::Wire;
use crate::sys::task;

/// The header of proxies with the address of the client.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// The headers that show a proxy, whatever name of the gateway it uses.
const OF_PROXIES: [&str; 4] = [FORWARDED_FOR, "forwarded", "via", "x-real-ip"];

/// One connection of a client.
pub(super) struct Connection {
    pub(super) gateway: Arc<Gateway>,
    ends: Ends,
    /// The process at the other end, once it was found.
    pub(super) found: OnceLock<Peer>,
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
    pub(super) token: Token,
    pub(super) peer: Peer,
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
    pub(super) fn take(&self, token: &Token, peer: Peer) -> Option<Wire> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        idle.filter(|idle| idle.token == *token && idle.peer == peer && idle.wire.is_quiet()).map(|idle| idle.wire)
    }

    /// Keeps a connection to the daemon that is bound to nothing, while there are few.
    pub(super) fn keep(&self, Client { gateway, wire, token, peer }: Client) {
        if let Ok(permit) = gateway.idle.clone().try_acquire_owned() {
            let idle = Idle { wire, token, peer, _permit: permit };
            *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(idle);
        }
    }

    /// The process at the other end, as far as it is known. Behind a proxy it is the proxy, unless the request may come from this
    /// machine: then it could be any process here.
    pub(super) async fn peer(&self, entry: &Entry, headers: &HeaderMap) -> Peer {
        let forwarded = headers.get_all(FORWARDED_FOR).iter().next_back().and_then(|value| value.to_str().ok());
        let is_proxied = entry.is_public || OF_PROXIES.iter().any(|name| headers.contains_key(*name));
        if is_proxied && is_from_here(forwarded) {
            return Peer::Hidden;
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
    pub(super) fn parse(text: &str) -> Self {
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
