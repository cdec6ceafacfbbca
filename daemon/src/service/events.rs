//! `events/*`: what happens in all sessions, in one stream.

use std::collections::BTreeSet;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::events::{ALL_KINDS, NOW, Subscribe, Subscribed, USUAL_KINDS, stored_kinds};
use linger_protocol::id::SessionId;

use super::{Caller, Services};
use crate::session::reading::feed::Feed;
use crate::store::feed::{Filter, Place};

/// The most sessions that a subscription names; for more, subscribe to all.
const MAX_SESSIONS: usize = 256;

/// The most kinds that a subscription names: several times as many as there are.
const MAX_KINDS: usize = 256;

/// Subscribes to the events of all sessions that the caller may read, stored and new.
pub async fn subscribe(
    services: &Services,
    caller: &Caller,
    params: Subscribe,
) -> Result<(Subscribed, Feed), RpcError> {
    let scope = caller.scope(services)?;
    let Subscribe { sessions, kinds, after } = params;
    let sessions = match sessions {
        Some(sessions) => Some(known(services, caller, sessions).await?),
        None => None,
    };
    let kinds = wanted(kinds)?;
    let store = &services.store;
    let at = match after {
        None => Place::default(),
        Some(cursor) if cursor.0 == NOW => store.newest().await?,
        Some(cursor) => match Place::parse(&cursor) {
            Some(place) if store.knows(place).await? => place,
            _ => {
                let text = format!("unknown cursor '{cursor}' for the events of all sessions");
                return Err(RpcError::new(Code::UnknownCursor, text)
                    .hint("leave `after` out to read from the beginning, or say \"now\""));
            }
        },
    };
    let feed = Feed::new(store.clone(), at, Filter { sessions, kinds, scope });
    Ok((Subscribed { cursor: at.cursor() }, feed))
}

/// The sessions that are named; fails if there is no such session, or the caller may not read one.
async fn known(
    services: &Services,
    caller: &Caller,
    sessions: Vec<SessionId>,
) -> Result<BTreeSet<SessionId>, RpcError> {
    if sessions.len() > MAX_SESSIONS {
        return Err(RpcError::new(Code::TooMuch, format!("a subscription may name {MAX_SESSIONS} sessions"))
            .hint("leave `sessions` out for all"));
    }
    for session in &sessions {
        caller.may_read(services, session).await?;
        if services.store.session(session.clone()).await?.is_none() && !session.is_daemon() {
            return Err(RpcError::new(Code::UnknownSession, format!("there is no session '{session}'"))
                .hint("`linger ls` lists the sessions"));
        }
    }
    Ok(sessions.into_iter().collect())
}

/// The kinds that are named; none for all.
fn wanted(kinds: Option<Vec<String>>) -> Result<Option<BTreeSet<String>>, RpcError> {
    let Some(kinds) = kinds else { return Ok(Some(USUAL_KINDS.map(str::to_owned).into())) };
    if kinds.len() > MAX_KINDS {
        return Err(RpcError::new(Code::TooMuch, format!("a subscription may name {MAX_KINDS} kinds")));
    }
    if kinds.iter().any(|kind| kind == ALL_KINDS) {
        return Ok(None);
    }
    match kinds.iter().find(|kind| !stored_kinds().any(|known| known == kind.as_str())) {
        None => Ok(Some(kinds.into_iter().collect())),
        Some(kind) => {
            let text = format!("'{kind}' is no kind of stored event");
            let hint = format!("the kinds are {}; \"*\" stands for all", stored_kinds().collect::<Vec<_>>().join(", "));
            Err(RpcError::new(Code::BadValue, text).hint(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linger_protocol::place::Places;
    use serde_json::json;
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::service::{Authority, Setup, session};

    /// More than any of these takes; a hang fails the test.
    const SOON: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_session_sees_its_own_tree_and_the_children_to_come_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let services = Services::open(Setup::of(Places::below(dir.path()).unwrap()), CancellationToken::new()).unwrap();
        let create = async |by: &Caller| {
            let params = json!({ "cwd": dir.path(), "model": "demo", "mode": "plan" });
            session::create(&services, by, serde_json::from_value(params).unwrap()).await.unwrap().session
        };
        let user = Caller::new(Authority::Daemon);
        let (own, other) = (create(&user).await, create(&user).await);
        let me = Caller::new(Authority::Session(own.clone()));
        let child = create(&me).await;
        let (_, mut feed) = subscribe(&services, &me, Subscribe::default()).await.unwrap();
        let next = async |feed: &mut Feed| {
            timeout(SOON, feed.ready()).await.unwrap();
            let items = feed.take(true).await.unwrap();
            items.into_iter().filter_map(|item| item.session).collect::<Vec<_>>()
        };
        assert_eq!(next(&mut feed).await, [own.clone(), child.clone()]);
        create(&user).await;
        let late = create(&Caller::new(Authority::Session(child))).await;
        let mut seen = Vec::new();
        while seen.is_empty() {
            seen.extend(next(&mut feed).await);
        }
        assert_eq!(seen, [late]);
        let named = Subscribe { sessions: Some(vec![other]), ..Subscribe::default() };
        assert_eq!(subscribe(&services, &me, named).await.err().and_then(|it| it.code()), Some(Code::NotAllowed));
        services.registry.pause().await;
        services.store.close().await.unwrap();
    }
}
