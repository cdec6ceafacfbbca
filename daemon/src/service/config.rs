//! `config/*`, and reloading the configuration when its file has changed.

use std::sync::Arc;
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::config::{Configuration, Confirm, Get, Set, Text, Write};
use linger_protocol::config::{Confirmed as Outcome, Waiting as Waits};
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::permission::Answered;
use linger_protocol::question::{Answer, Subject};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::in_force::{apply, ask, blocking, digest, put_into_force, refresh, review, stale};
use super::open_questions::{CONFIRM, KEEP};
use super::{Caller, Services, files, trust};
use crate::config::{Changes, Confirmed, EditError, Record, Reload, Trusted, Waiting};
use crate::question::permission::hash;
use crate::session::messages::{AnswerLimit, Author, Command, KeyedReply};
use crate::session::state::State;
use crate::store::idempotency::Key;
use crate::sys::task;

/// The extra delay when the file is empty or gone: a slow editor may be about to write it, and reading it now would drop all
/// rules.
const EMPTIED: Duration = Duration::from_secs(1);

/// Continues with the confirmed settings of the last daemon. The first start with an empty database takes the file as it is, unless
/// it `follows_a_death`: a tool could remove the database and kill the daemon.
pub async fn begin(services: &Arc<Services>, follows_a_death: bool) {
    let (confirmed, trusted, has_question) = confirmed_earlier(services, follows_a_death).await;
    services.config.begin_trust(trusted);
    // The first start takes what it finds of them too.
    files::survey(services).await;
    let (config, record) = (services.config.clone(), record(services));
    if let Err(error) = task::spawn_blocking(move || config.begin(confirmed, record)).await {
        tracing::error!(target: "config", %error, "nothing of the configuration is confirmed");
    }
    services.config_question.state().is_stale = has_question;
    services.configure_servers();
    services.providers.read_own_keys();
    review(services).await;
}

/// The settings that were confirmed, `None` at the very first start; what is trusted of workspaces; and whether a question about others is open.
async fn confirmed_earlier(services: &Services, follows_a_death: bool) -> (Option<Value>, Trusted, bool) {
    let nothing = || Some(json!({}));
    match services.store.session(SessionId::daemon()).await {
        Ok(Some(row)) => {
            let state = State::from_stored(&row.fold).unwrap_or_default();
            let is_open = state.open_questions().any(|it| it.about == Some(Subject::Configuration));
            let daemon = state.daemon.into_value();
            (daemon.confirmed.or_else(nothing), daemon.trusted, is_open)
        }
        Ok(None) if !follows_a_death && is_first(services).await => (None, Trusted::new(), false),
        Ok(None) => (nothing(), Trusted::new(), false),
        Err(error) => {
            tracing::error!(target: "config", %error, "cannot read what is confirmed: everything that widens waits");
            (nothing(), Trusted::new(), false)
        }
    }
}

/// Whether this is the first start with an empty database, and not one after a crash.
async fn is_first(services: &Services) -> bool {
    services.restarts == 0 && services.store.counts().await.is_ok_and(|([sessions, _], _)| sessions == 0)
}

/// Stores what is confirmed in the daemon's own log.
fn record(services: &Services) -> Record {
    let registry = Arc::downgrade(&services.registry);
    Record(Box::new(move |confirmed: Confirmed| {
        let (reply, stored) = oneshot::channel();
        let registry = registry.upgrade().ok_or("the daemon is ending")?;
        registry.send(&SessionId::daemon(), Command::Confirmed(confirmed, reply));
        stored.blocking_recv().map_err(|error| error.to_string())?.map_err(|error| error.message)
    }))
}

/// Reloads the configuration whenever its file has changed; ends when no change can come any more.
pub async fn watch(services: Arc<Services>, mut changes: Changes) {
    loop {
        let notices = changes.take_notices();
        services.config.set_watched(changes.error(), notices);
        let Some(next) = changes.next().await else { return };
        changes = next;
        let config = services.config.clone();
        if task::spawn_blocking(move || config.is_emptied()).await.unwrap_or(false) {
            tokio::time::sleep(EMPTIED).await;
        }
        let config = services.config.clone();
        match task::spawn_blocking(move || config.reload()).await {
            Ok(Reload::Unchanged) => {}
            Ok(Reload::Changed) => tracing::info!(target: "config", "reloaded"),
            Ok(Reload::Broken(error)) => {
                tracing::error!(target: "config", %error, "broken; the last good one stays in use")
            }
            Err(error) => tracing::error!(target: "config", %error, "cannot reload"),
        }
        apply(&services).await;
    }
}

/// Answers a question of the daemon's own; one about the configuration has its effect before this returns.
pub async fn answer(services: &Services, answer: Answer, by: Author, key: Option<Key>) -> Result<Answered, RpcError> {
    // A change of the file replaces the question.
    refresh(services).await;
    let about = services.config_question.state().question.clone();
    let waiting = about.filter(|(question, _)| *question == answer.question).map(|(_, waiting)| waiting);
    let workspace = services.trust_questions.about(&answer.question);
    let (name, who) = (answer.answer.clone(), by.name.clone());
    let given = |reply| Command::Answer(answer, by, AnswerLimit::None, KeyedReply { key, reply });
    services.registry.ask(&SessionId::daemon(), given).await?;
    if let Some((root, waiting)) = workspace {
        trust::answered(services, root, waiting, &name, who).await?;
        return Ok(Answered { outcome: "won".to_owned() });
    }
    match waiting {
        Some(waiting) if name == CONFIRM => put_into_force(services, waiting, who).await?,
        Some(waiting) if name == KEEP => {
            let mut asked = services.config_question.state();
            (asked.question, asked.kept) = (None, Some(waiting));
        }
        _ => {}
    }
    Ok(Answered { outcome: "won".to_owned() })
}

/// The settings in force, and the changes that wait.
pub async fn get(services: &Services, _: &Caller, params: Get) -> Result<Configuration, RpcError> {
    refresh(services).await;
    // Those that were just written wait too.
    files::survey(services).await;
    let config = services.config.clone();
    let text = if params.text { Some(blocking(move || config.text().map_err(EditError::from)).await?) } else { None };
    let waits = |waiting: Arc<Waiting>| Waits {
        digest: digest(&waiting),
        question: services.config_question.about(&waiting),
        changes: waiting.shown(),
    };
    Ok(Configuration {
        file: services.places.config_file(),
        settings: services.config.settings(),
        error: services.config.error().map(|error| error.to_string()),
        waiting: services.config.waiting().map(waits),
        warnings: services.config.written_warnings(),
        text: text.map(|text| Text { digest: hash(&json!(text)), text }),
    })
}

/// Puts the changes that wait into force.
pub async fn confirm(services: &Services, caller: &Caller, params: Confirm) -> Result<Outcome, RpcError> {
    refresh(services).await;
    files::survey(services).await;
    let Some(waiting) = services.config.waiting() else { return Ok(Outcome::default()) };
    if digest(&waiting) != params.digest {
        return Err(stale());
    }
    let confirmed = waiting.lines();
    let options = ask(&waiting).options;
    if let Some(question) = services.config_question.about(&waiting)
        && options.iter().any(|option| option.name == CONFIRM)
    {
        let answer = Answer {
            question,
            answer: CONFIRM.to_owned(),
            value: None,
            reason: None,
            digest: None,
            rules: Vec::new(),
            key: None,
        };
        let given =
            |reply| Command::Answer(answer, caller.author(), AnswerLimit::None, KeyedReply { key: None, reply });
        match services.registry.ask(&SessionId::daemon(), given).await {
            Err(error) if error.code() != Some(Code::AlreadyAnswered) => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    put_into_force(services, waiting, caller.name()).await?;
    Ok(Outcome { confirmed })
}

/// Sets one key in the file; what that widens is confirmed.
pub async fn set(services: &Services, caller: &Caller, params: Set) -> Result<Outcome, RpcError> {
    let (config, by) = (services.config.clone(), caller.name());
    let confirmed = blocking(move || config.set(&params.name, &params.value, &by)).await?;
    apply(services).await;
    Ok(Outcome { confirmed })
}

/// Replaces the text of the file; what that widens is confirmed.
pub async fn write(services: &Services, caller: &Caller, params: Write) -> Result<Outcome, RpcError> {
    let (config, by) = (services.config.clone(), caller.name());
    let Write { text, digest, dry_run } = params;
    let is_before = move |now: &str| hash(&json!(now)) == digest;
    let confirmed = blocking(move || config.write(is_before, &text, &by, dry_run)).await?;
    apply(services).await;
    Ok(Outcome { confirmed })
}
