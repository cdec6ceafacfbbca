//! `config/*`, and reloading the configuration when its file has changed.
//!
//! What a change widens waits for a person: it is asked in the daemon's own log, and in force once it is confirmed there, by
//! `config/confirm`, or because a person made it with `config/set` or `config/write`. Confirmed settings are events of that log.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::config::{Configuration, Confirm, Get, Set, Text, Write};
use linger_protocol::config::{Confirmed as Outcome, Waiting as Waits};
use linger_protocol::error::Code;
use linger_protocol::event::NoticeCode;
use linger_protocol::id::{QuestionId, SessionId};
use linger_protocol::permission::Answered;
use linger_protocol::question::{Answer, Blocks, Question, QuestionOption, Subject};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Caller, Services, trust};
use crate::config::{AfterRestart, Changes, Confirmed, EditError, Record, Reload, Trusted, Waiting};
use crate::question;
use crate::question::permission::hash;
use crate::session::actor::{AnswerLimit, Author, Command, KeyedReply, Stale};
use crate::session::state::State;
use crate::store::idempotency::Key;
use crate::sys::disk;
use crate::sys::task;

/// The extra delay when the file is empty or gone: a slow editor may be about to write it, and reading it now would drop all
/// rules.
const EMPTIED: Duration = Duration::from_secs(1);

/// The longest list of changes that a question shows, in bytes: users read it all.
pub(super) const MAX_SHOWN: usize = 32 << 10;

/// The answer that puts the changes into force.
pub(super) const CONFIRM: &str = "confirm";

/// The answer that leaves them out until the file changes again.
pub(super) const KEEP: &str = "keep";

/// The question about changes that wait, as far as this daemon has asked it.
#[derive(Debug, Default)]
pub struct Asked(Mutex<AskedState>);

#[derive(Debug, Default)]
struct AskedState {
    question: Option<(QuestionId, Arc<Waiting>)>,
    /// The changes that a person has left out.
    kept: Option<Arc<Waiting>>,
    /// Whether an earlier daemon may have left a question open.
    is_stale: bool,
}

impl Asked {
    fn state(&self) -> MutexGuard<'_, AskedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The question about these changes.
    fn about(&self, waiting: &Waiting) -> Option<QuestionId> {
        self.state().question.as_ref().filter(|(_, about)| **about == *waiting).map(|(question, _)| question.clone())
    }
}

/// Continues with the confirmed settings of the last daemon. The first start with an empty database takes the file as it is, unless
/// it `follows_a_death`: a tool could remove the database and kill the daemon.
pub async fn begin(services: &Arc<Services>, follows_a_death: bool) {
    let (confirmed, trusted, has_question) = confirmed_earlier(services, follows_a_death).await;
    services.config.begin_trust(trusted);
    // The first start takes what it finds of them too.
    super::files::survey(services).await;
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

/// Waits until a changed configuration is reloaded: a client that connects may have just written it. If nothing has changed, it
/// touches no file.
pub async fn refresh(services: &Services) {
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
async fn review(services: &Services) {
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

/// What sessions say when the configuration has changed.
const WAITS: &str = "the configuration was changed, and some of it waits until you confirm it: `linger config confirm`";

/// The question about these changes. Only a list that is shown whole can be confirmed.
fn ask(waiting: &Waiting) -> Question {
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
fn digest(waiting: &Waiting) -> String {
    hash(&json!({ "kind": "configuration", "changes": waiting.lines() }))
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
    if let Some(about) = workspace {
        trust::answered(services, about, &name, who).await?;
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

/// What is in force, and what waits.
pub async fn get(services: &Services, caller: &Caller, params: Get) -> Result<Configuration, RpcError> {
    caller.must_be_outside(services, "read the configuration")?;
    refresh(services).await;
    // Those that were just written wait too.
    super::files::survey(services).await;
    let config = services.config.clone();
    let text = match params.text {
        true => Some(blocking(move || config.text().map_err(EditError::from)).await?),
        false => None,
    };
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
    caller.must_be_process(services, "confirm the configuration")?;
    refresh(services).await;
    super::files::survey(services).await;
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
    caller.must_be_process(services, "change the configuration")?;
    let (config, by) = (services.config.clone(), caller.name());
    let confirmed = blocking(move || config.set(&params.name, &params.value, &by)).await?;
    apply(services).await;
    Ok(Outcome { confirmed })
}

/// Replaces the text of the file; what that widens is confirmed.
pub async fn write(services: &Services, caller: &Caller, params: Write) -> Result<Outcome, RpcError> {
    caller.must_be_process(services, "change the configuration")?;
    let (config, by) = (services.config.clone(), caller.name());
    let Write { text, digest, dry_run } = params;
    let is_before = move |now: &str| hash(&json!(now)) == digest;
    let confirmed = blocking(move || config.write(is_before, &text, &by, dry_run)).await?;
    apply(services).await;
    Ok(Outcome { confirmed })
}

/// Confirms changes, if they are still those that wait.
async fn put_into_force(services: &Services, waiting: Arc<Waiting>, by: String) -> Result<(), RpcError> {
    tracing::info!(target: "config", by, changes = ?waiting.lines(), "confirmed");
    let config = services.config.clone();
    let confirmed = blocking(move || config.confirm(&waiting, &by)).await;
    // Of no other question: the next review asks what waits then.
    services.config_question.state().question = None;
    apply(services).await;
    confirmed
}

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

fn stale() -> RpcError {
    RpcError::new(Code::WrongDigest, "the configuration has changed since it was shown")
        .hint("look at it again with `linger config` or config/get")
}
