//! `GET /events`: server-sent events of one session, or of all. The id of each is its cursor, so a reader that comes back with
//! `Last-Event-ID` reads on where it was.

use std::collections::BTreeSet;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::HeaderMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use tokio::time::{Instant, sleep_until};

use super::client::{Client, Query};
use super::reply::{Failure, Reply, event_stream};

use crate::sys::task;

/// How often a stream says that it is alive: proxies close what is silent for a minute.
pub(super) const ALIVE: Duration = Duration::from_secs(15);

/// The comment that says so.
pub(super) const COMMENT: &[u8] = b":\n\n";

/// The fields of a notification that the stream needs.
#[derive(Deserialize)]
struct Notice<'a> {
    #[serde(borrow)]
    cursor: Cow<'a, str>,
    #[serde(borrow)]
    event: KindField<'a>,
}

#[derive(Deserialize)]
struct KindField<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

/// Streams events until the client or the daemon is gone.
pub(super) async fn stream(client: Client, query: &Query, headers: &HeaderMap) -> Result<Reply, Failure> {
    let permit = client.stream_permit()?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    let after = last.or_else(|| query.get("after").filter(|after| !after.is_empty()));
    let list = |name: &str| {
        let text = query.get(name)?;
        Some(text.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect::<Vec<_>>())
    };
    let mut params = Map::new();
    params.extend(after.map(|after| ("after".to_owned(), after.into())));
    let mut wire = client.wire;
    // `session/attach` knows no kinds.
    let mut kinds: Option<BTreeSet<String>> = None;
    if let Some(session) = query.get("session") {
        params.insert("session".to_owned(), session.into());
        if query.get("deltas").is_some_and(|deltas| matches!(deltas, "0" | "false")) {
            params.insert("deltas".to_owned(), false.into());
        }
        // The daemon looks at who may be one.
        if query.get("person") == Some("1") {
            params.insert("person".to_owned(), true.into());
        }
        kinds = list("kinds").map(|kinds| kinds.into_iter().collect());
        wire.ask("session/attach", params).await?;
    } else {
        for name in ["kinds", "sessions"] {
            params.extend(list(name).map(|list| (name.to_owned(), json!(list))));
        }
        wire.ask("events/subscribe", Value::Object(params)).await?;
    }
    let (sender, reply) = event_stream();
    task::spawn(async move {
        let _permit = permit;
        // Browsers wait three seconds otherwise.
        let mut send = sender.send(Bytes::from_static(b"retry: 1000\n\n")).await;
        let mut alive = Instant::now() + ALIVE;
        while send.is_ok() {
            let piece = tokio::select! {
                notice = wire.next() => match notice {
                    Some(notice) => event(&notice, kinds.as_ref()),
                    None => return,
                },
                () = sleep_until(alive) => Some(Bytes::from_static(COMMENT)),
                () = sender.closed() => return,
            };
            let Some(piece) = piece else { continue };
            alive = Instant::now() + ALIVE;
            send = sender.send(piece).await;
        }
    });
    Ok(reply)
}

/// A notification as an event, unless its kind is not wanted.
fn event(notice: &RawValue, kinds: Option<&BTreeSet<String>>) -> Option<Bytes> {
    let Notice { cursor, event } = serde_json::from_str(notice.get()).ok()?;
    let is_wanted = kinds.is_none_or(|kinds| event.kind == "caught_up" || kinds.contains(event.kind.as_ref()));
    // A message of the daemon's is one line.
    is_wanted.then(|| Bytes::from(format!("id: {cursor}\ndata: {}\n\n", notice.get())))
}
