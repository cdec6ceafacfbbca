//! The actor without a registry: a temporary directory, the demo model, and a host that takes notes.

use linger_protocol::event::{MessageAdded, Notice, SessionCreated, TurnFinished};
use std::path::PathBuf;
use std::sync::Mutex;

use linger_protocol::permission::Mode;
use linger_protocol::worktree::{Merged, Worktree, WorktreeStatus};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::process::{Input, Stderr};
use crate::session::reading::subscription::Subscription;

/// More than any of these takes; a hang fails the test.
const SOON: Duration = Duration::from_secs(60);

/// What the actor asked of its host.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Notes {
    fn add(&self, note: impl Into<String>) {
        self.0.lock().unwrap().push(note.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Host for Notes {
    fn unload(&self, _: &SessionId, log: &Log, commands: &Commands) -> bool {
        assert!(commands.is_empty() && log.readers() == 0);
        self.add("unload");
        true
    }

    fn forget(&self, _: &SessionId) {
        self.add("forget");
    }

    fn warn(self: Arc<Self>, _: &SessionId, _: NoticeCode, text: String) {
        self.add(text);
    }

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

/// A session with its actor.
struct Scene {
    id: SessionId,
    env: Arc<Env>,
    host: Arc<Notes>,
    mailbox: Mailbox,
    actor: JoinHandle<()>,
    _dir: TempDir,
}

impl Scene {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().to_path_buf();
        Self::within(dir, cwd, BTreeMap::new()).await
    }

    /// A session in `cwd` whose tools have these variables.
    async fn within(dir: TempDir, cwd: PathBuf, variables: BTreeMap<String, String>) -> Self {
        let (env, host, id) = (Env::of_tests(dir.path()), Arc::new(Notes::default()), SessionId("s1".to_owned()));
        let resolved = env.providers.model(Some("demo")).unwrap();
        let created = EventBody::SessionCreated(SessionCreated {
            one_shot: false,
            tools: None,
            agent: None,
            allow: Vec::new(),
            system: None,
            cwd: cwd.clone(),
            setup: Some(env.toolbox.setup(&resolved, &cwd, &id, None, env.toolbox.offered(false, 0))),
            model: resolved.origin,
            mode: Mode::Ask,
            effort: session::Effort::default(),
            name: None,
            delegated: None,
            parent: None,
            env: BTreeMap::new(),
        });
        let workspace = Arc::new(env.workspaces.workspace(&id, &cwd, variables, disk::TIMEOUT).await);
        let (done, stored) = oneshot::channel();
        let new = NewSession { id: id.clone(), variables: &BTreeMap::new(), workspace, outcome: None };
        let actor = Actor::create(env.clone(), host.clone(), new, vec![created], done);
        stored.await.unwrap().unwrap();
        let (mailbox, commands) = mpsc::unbounded_channel();
        let actor = tokio::spawn(Box::new(actor).run(None, commands));
        let scene = Self { id, env, host, mailbox, actor, _dir: dir };
        // A commit is answered before it is shown.
        transcript(&mut scene.attach().await, "session_created").await;
        scene
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, RpcError> {
        let (reply, answer) = oneshot::channel();
        assert!(self.mailbox.send(Box::new(command(reply))).is_ok(), "the actor has ended");
        timeout(SOON, answer).await.unwrap().unwrap()
    }

    async fn prompt(&self, text: &str) {
        self.try_prompt(text).await.unwrap();
    }

    async fn try_prompt(&self, text: &str) -> Result<Prompted, RpcError> {
        let prompt: session::Prompt = serde_json::from_value(json!({ "session": self.id, "content": text })).unwrap();
        self.ask(|reply| PromptRequest::command(prompt, None, "me", reply)).await
    }

    async fn cancel(&self) -> Result<(), RpcError> {
        self.ask(|reply| Command::Cancel(false, KeyedReply { key: None, reply })).await
    }

    async fn attach(&self) -> Subscription {
        let reading = self.ask(|reply| Command::Attach(None, false, BTreeMap::new(), reply)).await.unwrap();
        Subscription::new(reading, self.env.store.clone(), true)
    }

    /// Ends the store, after its last session.
    async fn end(self) -> Vec<String> {
        drop(self.mailbox);
        timeout(SOON, self.actor).await.unwrap().unwrap();
        self.env.store.close().await.unwrap();
        self.host.all()
    }
}

/// What a subscription shows until a line begins with `last`: one line an event.
async fn transcript(subscription: &mut Subscription, last: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    while lines.last().is_none_or(|line| !line.starts_with(last)) {
        let shown = timeout(SOON, subscription.next()).await.unwrap();
        lines.push(shown.map_or("(the end)".to_owned(), |shown| line(&shown.into_event().unwrap())));
    }
    lines
}

fn line(event: &Event) -> String {
    match &event.body {
        EventBody::Message(MessageAdded { role, content, interrupted, .. }) => {
            let cut = if *interrupted { ", cut" } else { "" };
            format!("message {role:?}{cut}: {}", linger_protocol::message::text_of(content))
        }
        EventBody::TextDelta(delta) => format!("text_delta {}", delta.text),
        EventBody::TurnFinished(TurnFinished { stop_reason, .. }) => format!("turn_finished {stop_reason:?}"),
        EventBody::Notice(Notice { text, .. }) => format!("notice {text}"),
        body => <&str>::from(body).to_owned(),
    }
}

#[tokio::test]
async fn a_prompt_becomes_a_turn_and_what_was_streamed_is_what_is_stored() {
    let scene = Scene::new().await;
    let mut subscription = scene.attach().await;
    assert_eq!(transcript(&mut subscription, "caught_up").await, ["session_created", "caught_up"]);
    scene.prompt("say: hi").await;
    let lines = transcript(&mut subscription, "turn_finished").await;
    let (deltas, events): (Vec<&String>, Vec<&String>) = lines.iter().partition(|line| line.starts_with("text_delta"));
    let said: String = deltas.iter().filter_map(|line| line.strip_prefix("text_delta ")).collect();
    let expect = [
        "prompt_accepted",
        "turn_started",
        "message User: say: hi",
        &format!("message Assistant: {said}"),
        "turn_finished EndTurn",
    ];
    assert_eq!(events, expect, "{lines:#?}");
    assert!(said.contains("hi"));
    drop(subscription);
    assert_eq!(scene.end().await, [""; 0]);
}

#[tokio::test]
async fn a_turn_is_cancelled_in_mid_message_and_the_next_prompt_starts_another() {
    let scene = Scene::new().await;
    let mut subscription = scene.attach().await;
    scene.prompt("slow: 1000").await;
    transcript(&mut subscription, "text_delta").await;
    scene.ask(|reply| Command::Cancel(false, KeyedReply { key: None, reply })).await.unwrap();
    let lines = transcript(&mut subscription, "turn_finished").await;
    assert!(lines.iter().any(|line| line.starts_with("message Assistant, cut: word 1")), "{lines:#?}");
    assert_eq!(lines.last().unwrap(), "turn_finished Cancelled");
    let again = scene.ask(|reply| Command::Cancel(false, KeyedReply { key: None, reply })).await.unwrap_err();
    assert_eq!(again.code(), Some(Code::Idle));
    scene.prompt("say: again").await;
    assert_eq!(transcript(&mut subscription, "turn_finished").await.last().unwrap(), "turn_finished EndTurn");
    drop(subscription);
    scene.end().await;
}

#[tokio::test]
async fn a_removed_session_ends_its_readers_and_tells_its_host() {
    let scene = Scene::new().await;
    let mut subscription = scene.attach().await;
    transcript(&mut subscription, "caught_up").await;
    scene.ask(|reply| Command::Remove(false, KeyedReply { key: None, reply })).await.unwrap();
    assert_eq!(transcript(&mut subscription, "(the end)").await, ["notice the session was removed", "(the end)"]);
    drop(subscription);
    assert_eq!(scene.end().await, ["forget"]);
}

#[tokio::test]
async fn a_session_without_readers_is_unloaded_after_a_while_and_one_with_a_reader_is_not() {
    let mut scene = Scene::new().await;
    let mut subscription = scene.attach().await;
    transcript(&mut subscription, "caught_up").await;
    let long = scene.env.config.idle_unload() * 2;
    tokio::time::pause();
    tokio::time::sleep(long).await;
    assert!(!scene.actor.is_finished() && scene.host.all().is_empty());
    drop(subscription);
    tokio::time::sleep(long).await;
    // The store's thread knows nothing of Tokio's clock.
    tokio::time::resume();
    timeout(SOON, &mut scene.actor).await.unwrap().unwrap();
    assert_eq!(scene.host.all(), ["unload"]);
}

/// A session for which git merges a branch, and waits at a gate.
struct Merging {
    scene: Scene,
    /// Holds `w`, the workspace, and `gate`.
    home: PathBuf,
    /// The last commit of the branch.
    commit: String,
    merged: oneshot::Receiver<Result<Merged, RpcError>>,
}

impl Merging {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let (root, bin) = (home.join("w"), home.join("bin"));
        [&root, &bin].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        let path = std::env::var("PATH").unwrap();
        let variables = [("PATH", format!("{}:{path}", bin.display())), ("HOME", home.display().to_string())];
        let variables = variables.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
        let scene = Scene::within(dir, root, variables).await;
        let commit = sh(
            &scene,
            &home,
            "git init -q -b main; git config user.name Ann; git config user.email ann@example.org
            echo a > a.txt; git add .; git commit -q -m first; git checkout -q -b work
            echo b > b.txt; git add .; git commit -q -m work; git checkout -q main
            mkfifo ../reached ../gate; git rev-parse work
            cat > ../bin/git <<-'EOF'
\t#!/bin/sh
\tPATH=${PATH#*:}
\there=$(dirname \"$(dirname \"$0\")\")
\tcase \"$*\" in *merge-base*) [ -e $here/once ] || { : > $here/once; echo > $here/reached; read x < $here/gate; } ;; esac
\texec git \"$@\"
\tEOF
            chmod +x ../bin/git",
        )
        .await;
        let worktree = Worktree {
            path: home.join("child"),
            branch: "work".to_owned(),
            base: String::new(),
            status: WorktreeStatus::Kept,
        };
        let (child, agent, title) = (SessionId("s2".to_owned()), "general".to_owned(), "work".to_owned());
        let work = Box::new(MergeWork { child, agent, worktree, commit: commit.clone(), title });
        let (reply, merged) = oneshot::channel();
        scene.mailbox.send(Box::new(Command::Merge(work, None, Author::named("me"), reply))).unwrap();
        let reached = home.join("reached");
        timeout(SOON, tokio::task::spawn_blocking(|| std::fs::read(reached))).await.unwrap().unwrap().unwrap();
        Self { scene, home, commit, merged }
    }

    /// Lets git go on; what the request for the merge gets.
    async fn open(&mut self) -> Result<Merged, RpcError> {
        let open = || std::fs::OpenOptions::new().read(true).write(true).open(self.home.join("gate"));
        // Open for reading too, it waits for no reader.
        let mut gate = open().unwrap();
        std::io::Write::write_all(&mut gate, b"go\n").unwrap();
        timeout(SOON, &mut self.merged).await.unwrap().expect("the request is answered")
    }

    async fn head(&self) -> String {
        sh(&self.scene, &self.home, "git rev-parse HEAD").await
    }
}

/// Runs a script in the workspace below `home`.
async fn sh(scene: &Scene, home: &Path, script: &str) -> String {
    let variables = std::env::vars().filter(|(name, _)| name == "PATH").collect();
    let workspace = scene.env.workspaces.workspace(&scene.id, &home.join("w"), variables, disk::TIMEOUT).await;
    let process =
        workspace.spawn(Default::default(), None).shell(script, Input::Nothing, Stderr::Merged).await.unwrap();
    let done = process.finish(SOON, 1 << 20).await.unwrap();
    String::from_utf8_lossy(&done.output).trim().to_owned()
}

#[tokio::test]
async fn what_git_did_while_nothing_could_be_written_is_recorded_and_nothing_begins_before() {
    let mut merging = Merging::new().await;
    let scene = &merging.scene;
    let reading = scene.ask(|reply| Command::Attach(None, false, BTreeMap::new(), reply)).await.unwrap();
    reading.log.fail_for_now("the disk is full");
    assert_eq!(scene.try_prompt("say: one").await.unwrap_err().code(), Some(Code::Storage));
    tokio::time::pause();
    tokio::time::advance(WRITE_RETRY[0] * 2).await;
    tokio::time::resume();
    assert_eq!(scene.try_prompt("say: two").await.unwrap_err().code(), Some(Code::Storage), "git is at work");
    let merged = merging.open().await.unwrap();
    assert_eq!((&merged.commit, merging.head().await), (&merging.commit, merging.commit.clone()));
    let scene = merging.scene;
    let mut subscription = scene.attach().await;
    transcript(&mut subscription, "merged").await;
    scene.prompt("say: three").await;
    assert_eq!(transcript(&mut subscription, "turn_finished").await.last().unwrap(), "turn_finished EndTurn");
    drop(subscription);
    scene.end().await;
}

#[tokio::test]
async fn a_merge_whose_event_is_refused_is_recorded_when_writing_works_and_only_once() {
    let mut merging = Merging::new().await;
    let database = rusqlite::Connection::open(merging.scene.env.places.database()).unwrap();
    let refuse = "CREATE TRIGGER refused BEFORE INSERT ON event WHEN NEW.kind = 'merged' BEGIN SELECT RAISE(ABORT, 'refused'); END";
    database.execute_batch(refuse).unwrap();
    assert_eq!(merging.open().await.unwrap_err().code(), Some(Code::Storage));
    assert_eq!(merging.head().await, merging.commit, "git has moved the branch");
    database.execute_batch("DROP TRIGGER refused").unwrap();
    let scene = merging.scene;
    let again = async || {
        tokio::time::pause();
        tokio::time::advance(WRITE_RETRY[1] * 2).await;
        tokio::time::resume();
    };
    again().await;
    let mut subscription = scene.attach().await;
    transcript(&mut subscription, "merged").await;
    // Another failure does not repeat what is written.
    let reading = scene.ask(|reply| Command::Attach(None, false, BTreeMap::new(), reply)).await.unwrap();
    reading.log.fail_for_now("the disk is full");
    assert_eq!(scene.try_prompt("say: one").await.unwrap_err().code(), Some(Code::Storage));
    again().await;
    scene.prompt("say: two").await;
    drop(subscription);
    let lines = transcript(&mut scene.attach().await, "turn_finished").await;
    assert_eq!(lines.iter().filter(|line| *line == "merged").count(), 1, "{lines:#?}");
    scene.end().await;
}

#[tokio::test]
async fn a_merge_that_a_kill_cut_off_from_its_record_is_recorded_when_it_is_asked_for_again() {
    let mut merging = Merging::new().await;
    merging.open().await.unwrap();
    // As the daemon leaves it that has moved the branch, and no more.
    let cut = "git checkout -q work; echo c > c.txt; git add .; git commit -q -m more; git checkout -q main
        git read-tree -m -u HEAD work; git update-ref -m 'merge work' HEAD work";
    sh(&merging.scene, &merging.home, cut).await;
    let (before, commit) = (merging.commit.clone(), merging.head().await);
    assert_ne!(before, commit);
    let again = async || {
        let worktree = Worktree { path: merging.home.join("child"), branch: "work".to_owned(), ..Worktree::default() };
        let (child, agent, title) = (SessionId("s2".to_owned()), "general".to_owned(), "work".to_owned());
        let work = Box::new(MergeWork { child, agent, worktree, commit: commit.clone(), title });
        merging.scene.ask(|reply| Command::Merge(work, None, Author::named("me"), reply)).await
    };
    let merged = again().await.unwrap();
    assert_eq!((&merged.before, &merged.commit, merged.files), (&before, &commit, vec![PathBuf::from("c.txt")]));
    let error = again().await.unwrap_err();
    assert_eq!(
        (error.code(), error.message.as_str()),
        (Some(Code::Idle), "work is not merged: there is nothing to merge")
    );
    let scene = merging.scene;
    let lines = transcript(&mut scene.attach().await, "caught_up").await;
    assert_eq!(lines.iter().filter(|line| *line == "merged").count(), 2, "{lines:#?}");
    scene.end().await;
}

#[tokio::test]
async fn a_cancel_while_git_works_cancels_the_prompt_before_it_and_git_goes_on() {
    let mut merging = Merging::new().await;
    assert_eq!(merging.scene.cancel().await.unwrap_err().code(), Some(Code::Idle));
    let mut subscription = merging.scene.attach().await;
    transcript(&mut subscription, "caught_up").await;
    merging.scene.prompt("say: one").await;
    merging.scene.prompt("say: two").await;
    merging.scene.cancel().await.unwrap();
    let lines = transcript(&mut subscription, "turn_finished").await;
    assert_eq!(lines.last().unwrap(), "turn_finished Cancelled", "before git is done");
    assert_eq!(merging.scene.cancel().await.unwrap_err().code(), Some(Code::Idle), "the second prompt is held");
    let merged = merging.open().await.unwrap();
    assert_eq!(merged.commit, merging.head().await);
    let scene = merging.scene;
    scene.prompt("say: three").await;
    let lines = transcript(&mut subscription, "turn_started").await;
    assert_eq!(lines, ["merged", "prompt_accepted", "turn_started"], "nothing begins by itself");
    drop(subscription);
    scene.end().await;
}

#[tokio::test]
async fn git_goes_on_when_its_session_is_removed() {
    let mut merging = Merging::new().await;
    merging.scene.ask(|reply| Command::Remove(true, KeyedReply { key: None, reply })).await.unwrap();
    let error = merging.open().await.unwrap_err();
    assert_eq!(error.message, "session s1 was removed while git worked");
    assert_eq!(merging.head().await, merging.commit);
    merging.scene.end().await;
}
