//! Transcripts: actor, turn and calls with a scripted provider and a real store, one line an event.
//!
//! A [`Scene`] is one session. The store is SQLite in a directory of its own (in memory where the
//! machine has such a directory); tools are the real ones. A crash drops the actor and its turn and
//! loads the session again. Nothing waits for time to pass: a test waits for a line of the transcript,
//! an answer waits for a gate.

mod answers;
mod artifacts;
mod background;
mod budgets;
mod changes;
mod checkpoints;
mod circles;
mod crashes;
mod drafts;
mod failures;
mod files;
mod gone;
mod hooks;
mod hostile;
mod orders;
mod outages;
mod patches;
mod permissions;
mod plan;
mod prompts;
mod questions;
mod refusals;
mod room;
mod schemas;
mod skills;
mod stopping;
mod tools;
mod unattended;
mod until;
mod workspaces;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::event::{
    Asks, BackgroundEnded, Compacted, CompactionFailed, CompactionStarted, Event, EventBody, MessageAdded, Notice,
    NoticeCode, PermissionRequested, PermissionResolved, PromptAccepted, QuestionResolved, SessionChanged,
    SessionCreated, ToolFinished, ToolStarted, Trimmed, TurnFinished, UndoStarted,
};
use linger_protocol::id::{QuestionId, SessionId};
use linger_protocol::message::{ContentBlock, Role, text_of};
use linger_protocol::permission::{Decision, Mode};
use linger_protocol::place::{Places, private_directory};
use linger_protocol::prompt::PromptContent;
use linger_protocol::question;
use linger_protocol::session::{self, Effort, Prompted, When};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};

use crate::config::providers::Providers;
use crate::config::{ConfigStore, Record};
use crate::diagnostics::secret::Redactor;
use crate::log::Log;
use crate::process::server::Children;
use crate::provider::FailureClass;
use crate::provider::key_source::KeySources;
use crate::provider::keychain::Keychain;
use crate::provider::keys::Keys;
use crate::provider::scripted::{Script, ScriptedResponse as Answer};
use crate::session::actor::{Actor, NewSession, question_fold, stored};
use crate::session::env::{Env, Host, SYSTEM};
use crate::session::messages::{AnswerLimit, Author, Command, Commands, KeyedReply, Mailbox, PromptRequest, Reply};
use crate::session::state::State;
use crate::store::{Append, Store};
use crate::sys::disk;
use crate::tool::set::Tools;

/// How long a line may take to come on a machine that is busy with other things.
const LONG: Duration = Duration::from_secs(120);

/// Two models without a key, of which one has a small window, and one whose key is missing.
const CONFIG: &str = r#"
model = "mock/m"

[providers.mock]
kind = "openai"
base_url = "http://127.0.0.1:1/v1"

[providers.locked]
kind = "openai"
base_url = "http://127.0.0.1:1/v1"
api_key_env = "LINGER_TEST_KEY_OF_NOBODY"

[providers.hasty]
kind = "openai"
base_url = "http://127.0.0.1:1/v1"
patience = 0

[providers.patient]
kind = "openai"
base_url = "http://127.0.0.1:1/v1"
patience = "forever"

[models."mock/first"]
fallback = ["locked/m", "mock/second"]

[models."mock/small"]
context_window = 12000
"#;

/// A registry that keeps every session.
struct Alone;

impl Host for Alone {
    fn unload(&self, _: &SessionId, _: &Log, _: &Commands) -> bool {
        false
    }

    fn forget(&self, _: &SessionId) {}

    fn warn(self: Arc<Self>, _: &SessionId, _: NoticeCode, _: String) {}

    fn command(self: Arc<Self>, _: &SessionId, command: Command) {
        command.refuse(RpcError::new(linger_protocol::error::Code::UnknownSession, "there is no other session"));
    }

    fn child(
        self: Arc<Self>,
        _: crate::session::messages::Child,
    ) -> crate::tool::BoxFuture<'static, Result<SessionId, RpcError>> {
        let error = RpcError::new(linger_protocol::error::Code::UnknownSession, "there is no other session");
        Box::pin(std::future::ready(Err(error)))
    }
}

/// One session.
struct Scene {
    dir: tempfile::TempDir,
    env: Arc<Env>,
    script: Script,
    id: SessionId,
    commands: Mailbox,
    actor: JoinHandle<()>,
    changed: watch::Receiver<()>,
}

/// A directory in memory, if there is one.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Cancels the turn alone.
fn cancel(asked: KeyedReply) -> Command {
    Command::Cancel(false, asked)
}

impl Scene {
    /// A session in mode `auto` with these answers to come.
    async fn auto(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::with("", "mock/m", Mode::Auto, answers).await
    }

    /// A session in mode `ask`.
    async fn ask(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::with("", "mock/m", Mode::Ask, answers).await
    }

    /// A session with more configuration, before the tables.
    async fn with(config: &str, model: &str, mode: Mode, answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::with_tools(Tools::default(), config, model, mode, answers).await
    }

    /// The same with these tools.
    async fn with_tools(
        tools: Tools,
        config: &str,
        model: &str,
        mode: Mode,
        answers: impl IntoIterator<Item = Answer>,
    ) -> Self {
        let dir = directory();
        let at = |name: &str| dir.path().join(name);
        let places =
            Places { config: at("config"), data: at("data"), state: at("state"), socket: at("state/lingerd.sock") };
        for place in [&places.config, &places.data, &places.state, &at("work")] {
            private_directory(place).unwrap();
        }
        // A question of any command: those that only read ask too.
        let asks = if config.contains("[permissions]") { "" } else { "permissions.ask_reads = true\n" };
        let config = config.replace("[permissions]\n", "[permissions]\nask_reads = true\n");
        std::fs::write(places.config_file(), format!("idle_unload_s = 3600\n{asks}{config}\n{CONFIG}")).unwrap();
        let store = Store::open(&places.database()).unwrap();
        let config = Arc::new(ConfigStore::open(places.clone(), None, tools.clone()));
        config.begin(None, Record(Box::new(|_| Ok(()))));
        config.current().unwrap();
        let children = Children::of(&places.database());
        let keychain = Keychain::new(places.kept_keys(), children.clone());
        let keys = Arc::new(Keys::new(Redactor::default(), keychain.accounts()));
        let key_sources = KeySources::new(Arc::new(keychain), keys.clone());
        let providers = Arc::new(Providers::new(config.clone(), keys, key_sources, Arc::new(|_: &str| None)));
        let script = Script::default();
        answers.into_iter().for_each(|answer| script.push(answer));
        providers.script.set(script.clone()).unwrap();
        let env = Arc::new(Env::new(places, store, config, providers, tools, SYSTEM.to_owned(), children));
        let id = SessionId("scene".to_owned());
        let cwd = at("work").canonicalize().unwrap();
        let variables = BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").unwrap())]);
        let workspace = Arc::new(env.workspaces.workspace(&id, &cwd, variables.clone(), disk::TIMEOUT).await);
        let resolved = env.providers.model(Some(model)).ok();
        let created = EventBody::SessionCreated(SessionCreated {
            one_shot: false,
            tools: None,
            agent: None,
            allow: Vec::new(),
            system: None,
            cwd,
            model: model.to_owned(),
            mode,
            name: None,
            effort: Effort::default(),
            setup: resolved.map(|resolved| {
                env.toolbox.setup(&resolved, &workspace.root, &id, None, env.toolbox.offered(false, 0))
            }),
            env: variables.clone(),
            delegated: None,
            parent: None,
        });
        let (done, committed) = oneshot::channel();
        let new = NewSession { id: id.clone(), variables: &variables, workspace, outcome: None };
        let actor = Actor::create(env.clone(), Arc::new(Alone), new, vec![created], done);
        committed.await.unwrap().unwrap();
        let (commands, mailbox) = mpsc::unbounded_channel();
        let actor = tokio::spawn(Box::new(actor).run(None, mailbox));
        let changed = watch::channel(()).1;
        let mut scene = Self { dir, env, script, id, commands, actor, changed };
        scene.watch().await;
        scene
    }

    /// Watches the log of the actor that there is now.
    async fn watch(&mut self) {
        self.changed = self.send(|reply| Command::Attach(None, false, BTreeMap::new(), reply)).await.unwrap().changed;
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    /// Sends a command and waits for its answer.
    async fn send<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, RpcError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Box::new(command(reply))).unwrap();
        timeout(LONG, answer).await.expect("an answer in time").expect("an answer")
    }

    /// The stored state.
    async fn state(&self) -> State {
        let row = self.env.store.session(self.id.clone()).await.unwrap().unwrap();
        State::from_stored(&row.fold).unwrap()
    }

    async fn go_on(&self) -> Result<(), RpcError> {
        self.asked(|asked| Command::Continue(None, Author::named("someone"), asked)).await
    }

    async fn send_draft(&self, draft: &str) -> Result<(), RpcError> {
        self.asked(|asked| Command::Continue(Some(draft.into()), Author::named("someone"), asked)).await
    }

    async fn asked(&self, command: impl FnOnce(KeyedReply) -> Command) -> Result<(), RpcError> {
        self.send(|reply| command(KeyedReply { key: None, reply })).await
    }

    async fn prompted(&self, content: PromptContent, when: When, schema: Option<Value>) -> Result<Prompted, RpcError> {
        let session = self.id.clone();
        let (when, env) = (Some(when), BTreeMap::new());
        let prompt = session::Prompt {
            session,
            content,
            when,
            schema,
            until: None,
            expand: false,
            awaited: false,
            env,
            key: None,
        };
        self.send(|reply| PromptRequest::command(prompt, None, "someone", reply)).await
    }

    /// Prompts, and goes on.
    async fn prompt(&self, text: &str, when: When) {
        self.prompted(PromptContent::Text(text.to_owned()), when, None).await.unwrap();
    }

    /// Prompts, and waits until the turn has ended.
    async fn turn(&mut self, text: &str) {
        let before = self.count("turn_finished").await;
        self.prompt(text, When::Queue).await;
        self.ends(before + 1).await;
    }

    /// Waits until so many turns have ended.
    async fn ends(&mut self, turns: usize) {
        self.until("turn_finished", turns).await;
    }

    /// Waits until the transcript has `what` in so many lines.
    async fn until(&mut self, what: &str, lines: usize) {
        let waits = async {
            while self.count(what).await < lines {
                self.changed.changed().await.expect("the session is there");
            }
        };
        if timeout(LONG, waits).await.is_err() {
            panic!("no {what}:\n{}", self.transcript().await);
        }
    }

    /// Waits until this text is committed of an answer that is being streamed.
    async fn shows(&mut self, text: &str) {
        let log = self.send(|reply| Command::Attach(None, false, BTreeMap::new(), reply)).await.unwrap().log;
        let is_there = || {
            let tail = log.tail();
            tail.streams.iter().any(|open| open.committed().any(|(_, shown)| shown.contains(text)))
        };
        let mut changed = log.subscribe();
        let waits = async {
            while !is_there() {
                changed.changed().await.expect("the session is there");
            }
        };
        timeout(LONG, waits).await.expect("the text in time");
    }

    async fn count(&self, what: &str) -> usize {
        self.transcript().await.lines().filter(|line| line.contains(what)).count()
    }

    async fn cancel(&self) {
        self.asked(cancel).await.unwrap();
    }

    async fn set(&self, set: session::Set) {
        self.asked(|asked| Command::Set(session::Set { session: self.id.clone(), ..set }, Ok(()), asked))
            .await
            .unwrap();
    }

    /// Decides the permission that was asked for as the `n`th, from 1.
    async fn answer(&self, n: usize, decision: Decision, reason: Option<&str>) -> Result<(), RpcError> {
        self.choose(n, decision.name(), reason).await
    }

    /// Answers the question, or the permission, that was asked as the `n`th, from 1.
    async fn choose(&self, n: usize, option: &str, reason: Option<&str>) -> Result<(), RpcError> {
        let asked = self.events().await.into_iter().filter_map(|event| match event.body {
            EventBody::PermissionRequested(PermissionRequested { permission: question, .. })
            | EventBody::QuestionAsked { question, .. } => Some(question),
            _ => None,
        });
        let question: QuestionId = asked.collect::<Vec<_>>()[n - 1].clone();
        let (answer, reason) = (option.to_owned(), reason.map(str::to_owned));
        let answer =
            question::Answer { question, answer, value: None, reason, digest: None, rules: Vec::new(), key: None };
        self.asked(|asked| Command::Answer(answer, Author::named("someone"), AnswerLimit::None, asked)).await
    }

    /// The daemon dies, and loads the session again.
    async fn crash(&mut self) {
        self.actor.abort();
        let _dead = (&mut self.actor).await;
        self.load().await;
    }

    async fn load(&mut self) {
        let row = self.env.store.session(self.id.clone()).await.unwrap().unwrap();
        let actor = Actor::load(self.env.clone(), Arc::new(Alone), row).await.unwrap();
        let (commands, mailbox) = mpsc::unbounded_channel();
        self.commands = commands;
        self.actor = tokio::spawn(Box::new(actor).run(None, mailbox));
        self.watch().await;
    }

    /// The first question that was asked.
    async fn asked_first(&self) -> QuestionId {
        let asked = self.events().await.into_iter().find_map(|event| match event.body {
            EventBody::QuestionAsked { question, .. } => Some(question),
            _ => None,
        });
        asked.unwrap()
    }

    /// The daemon dies once it has written this event of the turn, and loads the session again.
    async fn crash_after(&mut self, body: EventBody) {
        self.actor.abort();
        let _dead = (&mut self.actor).await;
        let row = self.env.store.session(self.id.clone()).await.unwrap().unwrap();
        let mut state = State::from_stored(&row.fold).unwrap();
        let log = Log::new(self.id.clone(), state.progress.head, Vec::new());
        let turn = state.turn.as_ref().map(|turn| turn.id.clone());
        let event = Event { body, seq: Some(state.progress.head + 1), at: state.progress.updated_at, turn };
        state.apply(&event);
        let folds = [state.to_fold()].into_iter().chain(question_fold(&self.id, &event)).collect();
        let (done, committed) = oneshot::channel();
        let (events, pieces) = (vec![Arc::new(stored(&event).unwrap())], Vec::new());
        self.env.store.append(Append { log, events, turn: None, pieces, folds, sync: true, done: Some(done) });
        committed.await.unwrap().unwrap();
        self.load().await;
    }

    /// The daemon ends in good order, and loads the session again.
    async fn restart(&mut self) {
        let (done, paused) = oneshot::channel();
        self.commands.send(Box::new(Command::Pause(done))).unwrap();
        timeout(LONG, paused).await.unwrap().unwrap();
        self.crash().await;
    }

    async fn events(&self) -> Vec<Event> {
        let (page, _) = self.env.store.events_of(self.id.clone(), KINDS, 0, 64 << 20).await.unwrap();
        page.iter().map(|stored| serde_json::from_str(&stored.data).unwrap()).collect()
    }

    /// What is stored of the session but for its creation, one line an event.
    async fn transcript(&self) -> String {
        let events = self.events().await;
        for (event, seq) in events.iter().zip(1..) {
            assert_eq!(event.seq, Some(seq), "events are numbered without a gap");
        }
        let mut asked = Vec::new();
        let lines = events.iter().skip(1).map(|event| line(event, &mut asked));
        let text = lines.collect::<Vec<_>>().join("\n");
        text.replace(&*self.dir.path().canonicalize().unwrap().join("work").to_string_lossy(), "DIR")
    }

    /// The last request, one line a message.
    fn last_request(&self) -> String {
        let last = self.script.asked().pop().unwrap_or_default();
        last.replace(&*self.dir.path().join("work").canonicalize().unwrap().to_string_lossy(), "DIR")
    }
}

/// Every durable kind.
const KINDS: &[&str] = &[
    "session_created",
    "session_changed",
    "prompt_accepted",
    "prompt_unqueued",
    "prompt_drafted",
    "draft_sent",
    "turn_started",
    "message",
    "message_superseded",
    "check_started",
    "tool_started",
    "tool_finished",
    "permission_requested",
    "permission_resolved",
    "question_asked",
    "question_resolved",
    "turn_finished",
    "compaction_started",
    "compacted",
    "compaction_failed",
    "trimmed",
    "background_started",
    "background_ended",
    "checkpoint",
    "undo_started",
    "undone",
    "forked",
    "rewound",
    "uncompacted",
    "notice",
];

/// A gate without a permit.
fn gate() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

/// A prompt with a small image.
fn picture() -> PromptContent {
    let dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let image = json!({ "type": "image", "media_type": "image/png", "data": dot });
    serde_json::from_value(json!([{ "type": "text", "text": "what is this?" }, image])).unwrap()
}

/// The beginning of a text.
fn short(text: &str) -> String {
    let line = text.replace('\n', "/");
    if line.chars().count() > 100 { format!("{}...", line.chars().take(100).collect::<String>()) } else { line }
}

/// Times that depend on chance are left out.
fn timeless(text: &str) -> String {
    let phrases = ["trying again in ", "waiting for ", "answers again after "];
    phrases.iter().fold(text.to_owned(), |text, phrase| match text.split_once(phrase) {
        Some((before, after)) => {
            format!("{before}{phrase}N{}", after.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.'))
        }
        None => text,
    })
}

fn blocks(content: &[ContentBlock]) -> String {
    let block = |block: &ContentBlock| match block {
        ContentBlock::Text { text } => format!("{:?}", short(text)),
        ContentBlock::Thinking { text, .. } => format!("({})", short(text)),
        ContentBlock::ToolUse { call_id, name, .. } => format!("<{call_id} {name}>"),
        ContentBlock::ToolResult { call_id, is_error, content } => {
            format!("<{call_id}{} {:?}>", if *is_error { " failed" } else { "" }, short(&text_of(content)))
        }
        ContentBlock::Image { .. } => "<image>".to_owned(),
        ContentBlock::Hosted { tool, text, .. } => format!("<{} {:?}>", tool.name(), short(text)),
        other => format!("{other:?}"),
    };
    content.iter().map(block).collect::<Vec<_>>().join(" ")
}

/// An event as one line; permissions are numbered as they were asked for.
fn line(event: &Event, asked: &mut Vec<QuestionId>) -> String {
    let kind = <&str>::from(&event.body);
    let mut name = |permission: &QuestionId| {
        let at = asked.iter().position(|known| known == permission).unwrap_or_else(|| {
            asked.push(permission.clone());
            asked.len() - 1
        });
        format!("q{}", at + 1)
    };
    let said = match &event.body {
        EventBody::PromptAccepted(PromptAccepted { prompt, content, when, compact, schema, .. }) => {
            let when = serde_json::to_value(when).unwrap();
            let compact = if *compact { " compact" } else { "" };
            let schema = if schema.is_some() { " schema" } else { "" };
            format!("{prompt} {}{compact}{schema} {}", when.as_str().unwrap(), blocks(content))
        }
        EventBody::SessionChanged(SessionChanged {
            model,
            mode,
            effort,
            instructions,
            skills,
            setup,
            patience,
            fallback,
            unattended,
            budget,
            additional_directories,
            tools,
            binned,
            ..
        }) => {
            let mut said = Vec::new();
            said.extend(model.clone());
            said.extend(mode.map(|mode| mode.to_string()));
            said.extend(effort.map(|effort| format!("effort {}", effort.name())));
            said.extend(binned.map(|binned| if binned { "binned".to_owned() } else { "restored".to_owned() }));
            said.extend(instructions.as_ref().map(|all| format!("{} instructions", all.len())));
            said.extend(skills.as_ref().map(|all| format!("{} skills", all.len())));
            said.extend(setup.as_ref().map(|_| "setup".to_owned()));
            said.extend(patience.map(|patience| format!("patience {patience}")));
            said.extend(unattended.map(|unattended| format!("unattended {unattended}")));
            said.extend(fallback.as_ref().map(|models| format!("fallback {}", models.join(" "))));
            said.extend(budget.map(|budget| format!("budget {budget}")));
            said.extend(additional_directories.as_ref().map(|all| format!("{} directories", all.len())));
            said.extend(tools.as_ref().map(|only| format!("tools {}", only.join(" "))));
            said.join(" ")
        }
        EventBody::TurnStarted { prompt }
        | EventBody::PromptUnqueued { prompt, .. }
        | EventBody::PromptDrafted { prompt }
        | EventBody::DraftSent { prompt, .. } => prompt.to_string(),
        EventBody::Message(MessageAdded { message, role, content, interrupted, cut, paused, asks, .. }) => {
            let who = if *role == Role::User { "user" } else { "model" };
            let flags = [(*interrupted, " interrupted"), (*cut, " cut"), (*paused, " paused")];
            let flags: String = flags.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
            let asks = match asks {
                Some(Asks::Schema) => " asks schema",
                Some(Asks::Again) => " asks again",
                Some(Asks::GoOn) => " asks to go on",
                Some(Asks::Ended) => " is told",
                Some(Asks::Check) => " asks to pass the check",
                Some(Asks::Mode) => " is told of the mode",
                Some(Asks::Child) => " is a child's",
                Some(Asks::Output) => " is told the output",
                _ => "",
            };
            let said = if asks.ends_with("mode") { String::new() } else { format!(": {}", blocks(content)) };
            format!("{message} {who}{flags}{asks}{said}")
        }
        EventBody::MessageSuperseded { message } => message.to_string(),
        EventBody::CommandStarted { call_id, command } => format!("{call_id} {command}"),
        EventBody::CheckStarted { call_id, command, failed, tries } => {
            format!("{call_id} {command} {failed}/{tries}")
        }
        EventBody::ToolStarted(ToolStarted { call_id, action, .. }) => format!("{call_id} {}", short(action)),
        EventBody::ToolFinished(ToolFinished { call_id, outcome, content, .. }) => {
            let outcome = serde_json::to_value(outcome).unwrap();
            format!("{call_id} {} {}", outcome.as_str().unwrap(), blocks(content))
        }
        EventBody::BackgroundStarted { background, call_id, command } => format!("{background} {call_id} {command}"),
        EventBody::BackgroundEnded(BackgroundEnded { background, exit, reason, output, .. }) => {
            let code = exit.and_then(|exit| exit.code).map(|code| format!(" exit {code}")).unwrap_or_default();
            let reason = reason.as_ref().map(|reason| format!(" {reason}")).unwrap_or_default();
            format!("{background}{code}{reason} {output:?}")
        }
        EventBody::Checkpoint(taken) => match &taken.since {
            Some(_) => format!("{} {} files", taken.call_id, taken.changed),
            None => format!("before {}", taken.call_id),
        },
        EventBody::UndoStarted(UndoStarted { changes, .. }) => format!("{} files", changes.len()),
        EventBody::Undone { redo, step, changes, failed, .. } => {
            let what = if *redo { "redo" } else { "undo" };
            let step = step.as_ref().map(|step| format!(" {step}")).unwrap_or_default();
            format!("{what}{step} {} files, {} failed", changes.len(), failed.len())
        }
        EventBody::PermissionRequested(PermissionRequested { permission, call_id, action, .. }) => {
            format!("{} {call_id} {}", name(permission), short(action))
        }
        EventBody::PermissionResolved(PermissionResolved { permission, decision, by, reason, .. }) => {
            let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let decision = serde_json::to_value(decision).unwrap();
            format!("{} {} by {by}{reason}", name(permission), decision.as_str().unwrap())
        }
        EventBody::QuestionAsked { question, asked } => {
            let call = asked.call.as_ref().map(|call| format!("{call} ")).unwrap_or_default();
            let options: Vec<&str> = asked.options.iter().map(|option| option.name.as_str()).collect();
            format!("{} {call}{:?} {}", name(question), asked.text, options.join("|"))
        }
        EventBody::QuestionResolved(QuestionResolved { question, answer, by, .. }) => {
            format!("{} {} by {by}", name(question), answer.as_deref().unwrap_or("withdrawn"))
        }
        EventBody::TurnFinished(TurnFinished { stop_reason, detail, answer, steps, .. }) => {
            let stop = serde_json::to_value(stop_reason).unwrap();
            let detail = detail.as_ref().map(|detail| format!(": {}", timeless(detail))).unwrap_or_default();
            let answer = answer.as_ref().map(|answer| format!(" = {answer}")).unwrap_or_default();
            format!("{} after {steps}{answer}{detail}", stop.as_str().unwrap())
        }
        EventBody::CompactionStarted(CompactionStarted { trigger, through, messages, .. }) => {
            let trigger = serde_json::to_value(trigger).unwrap();
            format!("{} {messages} messages through {through}", trigger.as_str().unwrap())
        }
        EventBody::Compacted(Compacted { through, summary, .. }) => format!("through {through}: {}", short(summary)),
        EventBody::CompactionFailed(CompactionFailed { reason, .. }) => reason.clone(),
        EventBody::Trimmed(Trimmed { calls, images, native, .. }) => {
            format!("{} calls {} images {} native", calls.len(), images.len(), native.len())
        }
        EventBody::Notice(Notice { code, text, .. }) => {
            let code = serde_json::to_value(code).unwrap();
            format!("{}: {}", code.as_str().unwrap_or("-"), timeless(text))
        }
        _ => String::new(),
    };
    let turn = event.turn.as_ref().map(|turn| format!("{turn} ")).unwrap_or_default();
    format!("{turn}{kind} {said}").trim_end().to_owned()
}
