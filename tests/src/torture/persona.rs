//! A client that does not give up: it comes back after every loss, reads on from its cursor, and sends again what was not
//! answered, with the same key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use serde_json::{Value, json};

use super::questions::open_questions;
use crate::check::{Entry, Seen, Transcript};
use crate::harness::{Client, Daemon};

/// How long a daemon may be away, or a request unanswered: what takes longer will not come.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// How long it waits before it tries again.
pub(super) const AGAIN: Duration = Duration::from_millis(4);

/// A client with a name, over as many connections as it takes.
pub(super) struct Persona {
    daemon: Arc<Daemon>,
    name: String,
    client: Option<Client>,
    /// What it saw over connections that are gone.
    before: Transcript,
    /// Sessions that it is attached to.
    attached: Vec<String>,
    /// Keys that it has used.
    keys: u32,
    /// How often it was told that the storage failed.
    pub(super) told: u64,
}

/// Something that must not be, in one line.
pub(super) type Wrong = String;

impl Persona {
    pub(super) fn new(daemon: &Arc<Daemon>, name: &str) -> Self {
        let (daemon, name) = (daemon.clone(), name.to_owned());
        Self { daemon, name, client: None, before: Transcript::default(), attached: Vec::new(), keys: 0, told: 0 }
    }

    /// A key for one more thing.
    pub(super) fn key(&mut self) -> String {
        self.keys += 1;
        format!("{}-{}", self.name, self.keys)
    }

    /// A connection that is attached as the last one was.
    async fn connected(&mut self, until: Instant) -> Result<&Client, Wrong> {
        while self.client.is_none() {
            if Instant::now() > until {
                return Err(format!("I14: {} finds no daemon within {PATIENCE:?}", self.name));
            }
            match Client::connect(&self.daemon.dirs, &self.name).await {
                Ok(client) => self.take_up(client).await?,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
        self.client.as_ref().ok_or_else(|| "no connection".to_owned())
    }

    async fn take_up(&mut self, client: Client) -> Result<(), Wrong> {
        client.continues(std::mem::take(&mut self.before));
        let cursors: Vec<_> = self
            .attached
            .iter()
            .map(|session| (session.clone(), client.look(|seen| seen.cursor(session).map(str::to_owned))))
            .collect();
        for (session, cursor) in cursors {
            match client.request("session/attach", json!({ "session": session, "after": cursor })).await {
                Some(Ok(_)) => {}
                Some(Err(error)) if may_pass(&error) => {
                    self.told += u64::from(error.code() == Some(Code::Storage));
                    self.before = client.hang_up();
                    return Ok(());
                }
                Some(Err(error)) => {
                    self.before = client.hang_up();
                    return Err(format!("I3: {} cannot read on after {cursor:?}: {error}", self.name));
                }
                None => {
                    self.before = client.hang_up();
                    return Ok(());
                }
            }
        }
        self.client = Some(client);
        Ok(())
    }

    /// Hangs up; it comes back when there is something to do.
    pub(super) fn hang_up(&mut self) {
        if let Some(client) = self.client.take() {
            self.before = client.hang_up();
        }
    }

    /// Sends a request until it is answered.
    pub(super) async fn request(&mut self, method: &str, params: Value) -> Result<Result<Value, RpcError>, Wrong> {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.connected(until).await?.request(method, params.clone()).await;
            match answer {
                Some(Err(error)) if may_pass(&error) && Instant::now() < until => {
                    self.told += u64::from(error.code() == Some(Code::Storage));
                    tokio::time::sleep(AGAIN).await;
                }
                Some(answer) => return Ok(answer),
                None => {
                    self.hang_up();
                    if Instant::now() > until {
                        return Err(format!("I14: {method} of {} is never answered", self.name));
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// As [`Self::request`]; what is refused is wrong. A daemon that died in its very first start has not recorded what it found in
    /// the configuration: a person confirms that once.
    pub(super) async fn must(&mut self, method: &str, params: Value) -> Result<Value, Wrong> {
        let mut answered = self.request(method, params.clone()).await?;
        if matches!(&answered, Err(error) if error.message.contains("waits until you confirm it")) {
            self.confirm().await?;
            answered = self.request(method, params.clone()).await?;
        }
        answered.map_err(|error| format!("run: {method} {params} is refused: {} {error}", error.code))
    }

    /// Confirms what of the configuration waits.
    async fn confirm(&mut self) -> Result<(), Wrong> {
        if let Ok(found) = self.request("config/get", json!({})).await?
            && let Some(digest) = found["waiting"].get("digest")
        {
            let _second = self.request("config/confirm", json!({ "digest": digest })).await?;
        }
        Ok(())
    }

    /// Makes a session in the workspace.
    pub(super) async fn create(&mut self, more: Value) -> Result<String, Wrong> {
        let key = self.key();
        let mut params = json!({ "cwd": self.daemon.workspace(), "key": key });
        for (name, value) in more.as_object().into_iter().flatten() {
            params[name] = value.clone();
        }
        let created = self.must("session/create", params).await?;
        Ok(created["session"].as_str().unwrap_or_default().to_owned())
    }

    /// Attaches, from the beginning or where it was; a connection that is made anew has done so by itself.
    pub(super) async fn attach(&mut self, session: &str) -> Result<(), Wrong> {
        if self.attached.iter().any(|attached| attached == session) {
            return self.connected(Instant::now() + PATIENCE).await.map(drop);
        }
        self.must("session/attach", json!({ "session": session })).await?;
        self.attached.push(session.to_owned());
        Ok(())
    }

    /// Forgets what it saw, as a terminal that was closed; gives it.
    pub(super) fn forget(&mut self) -> Transcript {
        self.hang_up();
        self.attached.clear();
        std::mem::take(&mut self.before)
    }

    /// Sends a prompt; gives its key.
    pub(super) async fn prompt(&mut self, session: &str, text: &str, when: &str) -> Result<String, Wrong> {
        let key = self.key();
        self.must("session/prompt", json!({ "session": session, "content": text, "when": when, "key": key })).await?;
        Ok(key)
    }

    /// What it saw so far.
    pub(super) fn transcript(&self) -> Transcript {
        self.client.as_ref().map_or_else(|| self.before.clone(), Client::transcript)
    }

    /// Gives `look` what it saw so far, without a copy of it: a transcript is long, and is looked at every few milliseconds.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Transcript) -> T) -> T {
        match &self.client {
            Some(client) => client.look(look),
            None => look(&self.before),
        }
    }

    /// Waits until `look` finds something in what it saw, coming back after each loss.
    pub(super) async fn sees<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&Transcript) -> Option<T>,
    ) -> Result<T, Wrong> {
        let until = Instant::now() + PATIENCE;
        loop {
            if self.client.as_ref().is_some_and(|client| client.has_hung_up() || must_attach_again(client)) {
                self.hang_up();
            }
            self.connected(until).await?;
            if let Some(found) = self.look(&mut look) {
                return Ok(found);
            }
            if Instant::now() > until {
                return Err(format!("run: {} never sees {what}:\n{}", self.name, self.look(Transcript::outline)));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// What the session is doing.
    pub(super) async fn state(&mut self, session: &str) -> Result<String, Wrong> {
        let rows = self.must("session/list", json!({ "matching": session })).await?;
        Ok(rows[0]["state"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the session and its children have nothing to do any more, and takes up what waits for a word.
    pub(super) async fn settle(&mut self, session: &str) -> Result<(), Wrong> {
        let until = Instant::now() + PATIENCE;
        loop {
            let rows = self.must("session/list", json!({})).await?;
            let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
            let rows = rows.iter().filter(|row| row["session"] == session || row["parent"] == session);
            let mut busy = Vec::new();
            for row in rows {
                let queued = row["queued"].as_u64().unwrap_or_default();
                match row["state"].as_str().unwrap_or_default() {
                    "idle" if queued == 0 => continue,
                    "idle" | "offered" => {
                        let params = json!({ "session": row["session"], "key": self.key() });
                        // It may have gone on by itself meanwhile.
                        let _idle = self.request("session/continue", params).await?;
                    }
                    // As in `must`: its provider may wait for that.
                    "waiting" => self.confirm().await?,
                    _ => {}
                }
                busy.push(row.to_string());
            }
            if busy.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                let seen = self.look(Transcript::outline);
                return Err(format!("I6: session {session} never comes to rest: {}\n{seen}", busy.join("\n")));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Waits until it has seen all that is stored.
    pub(super) async fn reads_to_the_end(&mut self, session: &str) -> Result<(), Wrong> {
        let rows = self.must("session/list", json!({ "matching": session })).await?;
        let head: u64 = rows[0]["cursor"].as_str().unwrap_or_default().parse().unwrap_or_default();
        let seen = |seen: &Transcript| seen.events().filter(|seen| seen.session == session).filter_map(Seen::seq).max();
        self.sees(&format!("event {head}"), |transcript| (seen(transcript) >= Some(head)).then_some(())).await
    }

    /// Answers every permission and question that waits, the way `decide` says.
    pub(super) async fn answers(&mut self, mut decide: impl FnMut(&str) -> &'static str) -> Result<usize, Wrong> {
        let waiting: Vec<(String, String)> = self.look(|seen| {
            let done: Vec<&str> = seen.of("permission_resolved").map(|seen| seen.str("permission")).collect();
            seen.of("permission_requested")
                .filter(|asked| !done.contains(&asked.str("permission")))
                .map(|asked| (asked.str("permission").to_owned(), asked.str("digest").to_owned()))
                .collect()
        });
        for (permission, digest) in &waiting {
            let decision = decide(permission);
            let key = format!("a-{}-{permission}", self.name);
            let params = json!({ "permission": permission, "decision": decision, "digest": digest, "key": key });
            // The turn may have ended, or somebody else may have been first.
            let _late = self.request("permission/answer", params).await?;
        }
        let asked = self.must("permission/list", json!({})).await?;
        let attached = |row: &&Value| self.attached.iter().any(|session| row["session"] == *session);
        // Those of children, which are in the one inbox.
        let others: Vec<Value> = asked.as_array().into_iter().flatten().filter(|row| !attached(row)).cloned().collect();
        for row in &others {
            let permission = row["permission"].as_str().unwrap_or_default();
            let (decision, key) = (decide(permission), format!("a-{}-{permission}", self.name));
            let params = json!({ "permission": permission, "decision": decision, "digest": row["digest"], "key": key });
            let _late = self.request("permission/answer", params).await?;
        }
        let questions = self.look(open_questions);
        for question in &questions {
            let likes = decide(question.id()).starts_with("allow");
            let params = question.answer(likes, &self.name);
            let _late = self.request("question/answer", params).await?;
        }
        Ok(waiting.len() + others.len() + questions.len())
    }
}

/// Whether the last thing that the daemon said is that it cannot read on for this client.
fn must_attach_again(client: &Client) -> bool {
    client.last(|seen| seen.kind() == "notice" && seen.seq().is_none() && seen.str("text").contains("attach again"))
}

/// Whether what was refused may be granted in a moment.
fn may_pass(error: &RpcError) -> bool {
    matches!(error.code(), Some(Code::Ending | Code::Storage))
}

/// The prompts that a client was told were accepted, by key.
pub(super) fn accepted(transcript: &Transcript, wanted: &str) -> Vec<String> {
    let of = |entry: &Entry| match entry {
        Entry::Accepted { prompt, key: Some(key), .. } if key == wanted => Some(prompt.clone()),
        _ => None,
    };
    transcript.0.iter().filter_map(of).collect()
}
