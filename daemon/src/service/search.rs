//! `session/search`: full text search over the messages of all sessions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::sys::task::spawn_blocking;
use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::event::{Event, EventBody, MessageAdded};
use linger_protocol::id::SessionId;
use linger_protocol::message::text_of;
use linger_protocol::path;
use linger_protocol::search::{FoundMessage, FoundMessages, Search};

use super::{Caller, Services};
use crate::log::Stored;
use crate::store::words::{Term, query, terms};
use crate::store::{BINNED, SessionRow, Wanted};
use crate::sys::disk;
use crate::tool::text::head;

/// The rows of an answer, and the most of them.
const ROWS: u32 = 20;
const MAX_ROWS: u32 = 200;

/// The longest text to search for, in bytes, and the most terms: a sentence.
const MAX_TEXT: usize = 1000;
const MAX_TERMS: usize = 32;

/// How many matches are looked at together. Matches of sessions that do not count (in the bin, or removed a moment ago) are few.
const BATCH: usize = 64;

/// The most matches that are looked at.
const MAX_MATCHES: usize = 2000;

/// The sessions of one directory that are searched, the latest first.
const MAX_SESSIONS: u32 = 10_000;

/// How much of a message a row shows: before the match and in all, in characters.
const BEFORE: usize = 40;
const SNIPPET: usize = 160;

/// How much of a message is looked through for the match, in bytes: the index has no words of what follows, and a message may have
/// megabytes, each character of which takes four times its room here.
const MAX_LOOKED_AT: usize = 256 << 10;

/// The messages that have all of these words, the best match first.
pub async fn search(services: &Services, caller: &Caller, params: Search) -> Result<FoundMessages, RpcError> {
    let Search { text, cwd, limit } = params;
    let readable = caller.readable(services).await?;
    let terms = terms(&text);
    if text.len() > MAX_TEXT || terms.len() > MAX_TERMS {
        return Err(RpcError::new(Code::TooMuch, format!("a search may have {MAX_TERMS} words and {MAX_TEXT} bytes")));
    }
    if terms.is_empty() {
        return Err(RpcError::new(Code::BadValue, "there is no word to search for")
            .hint("words are letters and digits, such as: parser \"off by one\" conf*"));
    }
    let here = match cwd {
        None => None,
        Some(cwd) => {
            let seen = cwd.clone();
            let real = disk::probe(&cwd, disk::TIMEOUT, move || seen.canonicalize().ok()).await.flatten();
            let cwd = Some(path::text(&real.unwrap_or(cwd)).into_owned());
            let wanted = Wanted { cwd, bin: Some(false), ..Wanted::default() };
            Some(services.store.sessions(wanted, MAX_SESSIONS, None, |row| row.id).await?)
        }
    };
    let among = match (readable, here) {
        (None, here) => here,
        (tree, None) => tree,
        (Some(tree), Some(here)) => Some(here.into_iter().filter(|session| tree.contains(session)).collect()),
    };
    let limit = limit.unwrap_or(ROWS).min(MAX_ROWS) as usize;
    let (mut rows, mut skip, mut behind) = (Vec::new(), 0, 0);
    let mut sessions: HashMap<SessionId, Option<SessionRow>> = HashMap::new();
    while rows.len() < limit && skip < MAX_MATCHES {
        let matches = services.search.find(query(&terms), among.clone(), BATCH, skip).await?;
        behind = matches.behind;
        let is_last = matches.events.len() < BATCH;
        skip += BATCH;
        for n in matches.events {
            if rows.len() >= limit {
                break;
            }
            let Some((session, stored)) = services.store.numbered(n).await? else { continue };
            let row = match sessions.entry(session) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    let row = services.store.session(unknown.key().clone()).await?;
                    unknown.insert(row.filter(|row| row.state != BINNED))
                }
            };
            let Some(row) = row.clone() else { continue };
            let terms = terms.clone();
            // A large one would hold up others.
            rows.extend(spawn_blocking(move || found(&row, &stored, &terms)).await.ok().flatten());
        }
        if is_last {
            break;
        }
    }
    Ok(FoundMessages { rows, behind })
}

/// The row of a match; absent if the event is no message.
fn found(row: &SessionRow, stored: &Stored, terms: &[Term]) -> Option<FoundMessage> {
    let event: Event = serde_json::from_str(&stored.data).ok()?;
    let EventBody::Message(MessageAdded { role, content, .. }) = event.body else { return None };
    Some(FoundMessage {
        session: row.id.clone(),
        name: row.name.clone(),
        cwd: path::from_text(&row.cwd),
        seq: stored.seq,
        at: stored.at,
        role,
        snippet: snippet(&text_of(&content), terms),
    })
}

/// The text around the first term, in one line.
fn snippet(text: &str, terms: &[Term]) -> String {
    let text = head(text, MAX_LOOKED_AT);
    let line: Vec<char> = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().collect();
    let same = |one: &char, two: &char| one == two || one.to_lowercase().eq(two.to_lowercase());
    let starts = terms.iter().filter_map(|term| {
        let term: Vec<char> = term.text.split_whitespace().collect::<Vec<_>>().join(" ").chars().collect();
        let is_at = |part: &[char]| part.iter().zip(&term).all(|(one, two)| same(one, two));
        line.windows(term.len().max(1)).position(is_at)
    });
    let first = starts.min().unwrap_or(0);
    let start = first.saturating_sub(BEFORE);
    let shown: String = line.iter().skip(start).take(SNIPPET).collect();
    let (before, after) = (if start > 0 { "…" } else { "" }, if start + SNIPPET < line.len() { "…" } else { "" });
    format!("{before}{shown}{after}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use linger_protocol::place::Places;
    use serde_json::json;
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::service::{Authority, Setup, session};
    use crate::session::reading::subscription::ShownItem;
    use crate::store::words::Words;

    /// More than any of these takes; a hang fails the test.
    const SOON: Duration = Duration::from_secs(60);

    fn open(dir: &Path) -> Arc<Services> {
        let services = Services::open(Setup::of(Places::below(dir).unwrap()), CancellationToken::new()).unwrap();
        drop(services.search.start(&services.store));
        services
    }

    async fn close(services: Arc<Services>) {
        services.registry.pause().await;
        services.store.close().await.unwrap();
    }

    /// How many messages have the word, and how many events the index has not seen.
    async fn count(services: &Services, text: &str) -> (usize, u64) {
        let params = Search { text: text.to_owned(), ..Search::default() };
        let found = search(services, &Caller::new(Authority::Daemon), params).await.unwrap();
        (found.rows.len(), found.behind)
    }

    #[tokio::test]
    async fn an_index_that_is_missing_broken_or_of_another_database_is_made_again_from_the_log() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let me = Caller::new(Authority::Daemon);
        let mut paths = Vec::new();
        for (dir, word) in [(&other, "haystack"), (&dir, "needle")] {
            let services = open(dir.path());
            let create = json!({ "cwd": dir.path(), "model": "demo" });
            let created = session::create(&services, &me, serde_json::from_value(create).unwrap()).await.unwrap();
            let attach = json!({ "session": created.session });
            let (_, mut live) = session::attach(&services, &me, serde_json::from_value(attach).unwrap()).await.unwrap();
            let prompt = json!({ "session": created.session, "content": format!("say: {word}") });
            session::prompt(&services, &me, serde_json::from_value(prompt).unwrap()).await.unwrap();
            let is_end = |what: &ShownItem| matches!(what, ShownItem::Event(stored) if stored.kind == "turn_finished");
            while !is_end(&timeout(SOON, live.next()).await.unwrap().unwrap().what) {}
            assert_eq!(count(&services, word).await, (2, 0));
            paths.push(Words::path(&services.store.path));
            close(services).await;
        }
        let foreign = std::fs::read(&paths[0]).unwrap();
        for content in [None, Some(&b"no database at all"[..]), Some(&foreign[..])] {
            crate::store::files::clear_database(&paths[1]).unwrap();
            if let Some(content) = content {
                std::fs::write(&paths[1], content).unwrap();
            }
            let services = open(dir.path());
            assert_eq!(count(&services, "needle").await, (2, 0));
            assert_eq!(count(&services, "haystack").await, (0, 0));
            close(services).await;
        }
    }

    #[test]
    fn a_snippet_is_what_stands_around_the_first_word() {
        let check = |text: &str, words: &str, expect: &str| assert_eq!(snippet(text, &terms(words)), expect);
        check("The  Parser\nis broken", "parser", "The Parser is broken");
        check("größer: ÄPFEL", "äpfel", "größer: ÄPFEL");
        check("nothing of it", "else", "nothing of it");
        let long = format!("{}needle{}", "x ".repeat(100), " y".repeat(200));
        let shown = snippet(&long, &terms("Needle"));
        assert!(shown.starts_with("…") && shown.ends_with("…") && shown.contains("needle"), "{shown}");
        assert_eq!(shown.chars().count(), SNIPPET + 2);
        let longest = format!("begins {}needle", "x ".repeat(MAX_LOOKED_AT));
        assert!(snippet(&longest, &terms("needle")).starts_with("begins x"));
    }
}
