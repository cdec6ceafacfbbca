//! The configuration in force: reading a changed file, applying it, and asking about what waits for a person.
//!
//! A change that widens is asked about in the daemon's own log. It is in force once it is confirmed there or by `config/confirm`, or
//! because a person made it with `config/set` or `config/write`. Confirmed settings are events of that log.

use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::event::NoticeCode;
use linger_protocol::id::SessionId;
use linger_protocol::question::{Blocks, Question, QuestionOption, Subject};
use serde_json::json;
use tokio::time::timeout;

use super::Services;
use super::open_questions::{CONFIRM, KEEP, MAX_SHOWN};
use crate::config::{AfterRestart, EditError, Waiting};
use crate::question;
use crate::question::permission::hash;
use crate::session::messages::{Command, Stale};
use crate::sys::disk;
use crate::sys::task;

/// Waits until a changed configuration is reloaded: a client that connects may have just written it. If nothing has changed, it
/// touches no file.
pub(super) async fn refresh(services: &Services) {
    if !services.config.may_have_changed() {
        return;
    }
    let (mut changed, place) = (services.providers.changed.subscribe(), &services.places.config);
    let is_read = async {
        let has_changed = || {
            let config = services.config.clone();
            disk::probe(place, disk::SHORT_TIMEOUT, move || config.has_changed())
        };
        // The watcher reloads after a delay, so that it does not read a half-written file.
        while has_changed().await == Some(true) && changed.changed().await.is_ok() {}
    };
    if timeout(disk::SHORT_TIMEOUT, is_read).await.is_err() {
        // Some file systems report no changes.
        let config = services.config.clone();
        disk::probe(place, disk::SHORT_TIMEOUT, move || config.reload()).await;
        apply(services).await;
    }
}

/// Applies the configuration: servers, keys, the question about what waits, and turns that wait for it.
pub(super) async fn apply(services: &Services) {
    services.configure_servers();
    services.providers.read_own_keys();
    review(services).await;
    services.providers.changed.send_replace(());
    if services.config.after_restart() == Some(AfterRestart::Resume) {
        task::spawn(services.registry.clone().resume_unconfigured());
    }
}

/// Asks about the changes that wait, in place of an earlier question.
pub(super) async fn review(services: &Services) {
    loop {
        let waiting = services.config.waiting();
        let (needed, earlier) = {
            let asked = services.config_question.state();
            let earlier = asked.question.clone();
            let is_kept = waiting.is_some() && waiting == asked.kept;
            let is_same = waiting.as_ref() == earlier.as_ref().map(|(_, about)| about);
            (asked.is_stale || !is_kept && !is_same, earlier)
        };
        if !needed {
            return;
        }
        let asked = waiting.as_deref().map(|waiting| Box::new(ask(waiting)));
        let asked = services
            .registry
            .ask(&SessionId::daemon(), |reply| Command::AskAbout(Subject::Configuration, Stale::All, asked, reply))
            .await;
        match asked {
            Ok(question) => {
                let is_new = question.is_some() && question.as_ref() != earlier.as_ref().map(|(question, _)| question);
                let mut state = services.config_question.state();
                state.question = question.zip(waiting.clone());
                state.is_stale = false;
                drop(state);
                if is_new {
                    services.registry.warn_all(NoticeCode::ConfigWaits, WAITS);
                }
            }
            Err(error) => {
                // It is in force nowhere, and `config/get` shows it all the same.
                tracing::error!(target: "config", error = error.message, "cannot ask about the changed configuration");
                return;
            }
        }
        if services.config.waiting() == waiting {
            return;
        }
    }
}

/// The notice of each loaded session when the configuration has changed.
const WAITS: &str = "the configuration was changed, and some of it waits until you confirm it: `linger config confirm`";

/// The question about these changes. Only a list that is shown whole can be confirmed.
pub(super) fn ask(waiting: &Waiting) -> Question {
    let lines = waiting.shown();
    let list: String = lines.iter().map(|line| format!("\n{line}")).collect();
    let mut options =
        vec![QuestionOption::new(CONFIRM, "put this into force"), QuestionOption::new(KEEP, "leave it out")];
    let mut text = format!("the configuration was changed; this is not in force until you confirm it:{list}");
    if list.len() > MAX_SHOWN {
        text = format!("the configuration was changed in {} places: `linger config confirm` shows them", lines.len());
        options.remove(0);
    }
    Question { about: Some(Subject::Configuration), ..question::choice(text, options, Blocks::Nothing, None) }
}

/// The hash of changes; that of their question, and of a longer list.
pub(super) fn digest(waiting: &Waiting) -> String {
    hash(&json!({ "kind": "configuration", "changes": waiting.lines() }))
}

/// Confirms changes, if they are still those that wait.
pub(super) async fn put_into_force(services: &Services, waiting: Arc<Waiting>, by: String) -> Result<(), RpcError> {
    tracing::info!(target: "config", by, changes = ?waiting.lines(), "confirmed");
    let config = services.config.clone();
    let confirmed = blocking(move || config.confirm(&waiting, &by)).await;
    // The next review asks about what waits then.
    services.config_question.state().question = None;
    apply(services).await;
    confirmed
}

/// Runs a change of the configuration, which blocks on the disk, and words its error.
pub(super) async fn blocking<T: Send + 'static>(
    change: impl FnOnce() -> Result<T, EditError> + Send + 'static,
) -> Result<T, RpcError> {
    let changed = task::spawn_blocking(change).await;
    changed.map_err(|error| RpcError::new(Code::Internal, error.to_string()))?.map_err(|error| match error {
        EditError::Stale => stale(),
        EditError::Broken(error) => error.into(),
        EditError::Unrecorded(_) => {
            RpcError::new(Code::Storage, error.to_string()).hint("check whether the disk is full")
        }
        error => RpcError::new(Code::BadConfig, error.to_string())
            .hint("nothing was written; `linger help configuration` lists the keys"),
    })
}

pub(super) fn stale() -> RpcError {
    RpcError::new(Code::WrongDigest, "the configuration has changed since it was shown")
        .hint("look at it again with `linger config` or config/get")
}
