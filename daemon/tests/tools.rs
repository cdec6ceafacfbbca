//! Tools of a program that embeds the daemon: a set that is replaced, calls that survive a restart, children that end with it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linger_protocol::event::{AfterCrash, Event, EventBody, SessionChanged, ToolFinished, ToolStarted};
use linger_protocol::id::SessionId;
use linger_protocol::message::text_of;
use linger_protocol::place::Places;
use lingerd::process::server::Server;
use lingerd::service::{Authority, Caller, Services, Setup, session};
use lingerd::session::reading::subscription::Subscription;
use lingerd::tool::set::{ToolSet, Tools};
use lingerd::tool::{Access, BoxFuture, Call, Context, Effects, Invalid, Tool, ToolOutput, Workspace};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// More than any of these takes; a hang fails the test.
const SOON: Duration = Duration::from_secs(60);

/// What a call of a test tool does, given its context and whether it is joined.
type Does = Arc<dyn Fn(Context, bool) -> BoxFuture<'static, ToolOutput> + Send + Sync>;

/// A tool of a test. The demo model calls `bash` with `run: …`, so that is what it is called there.
#[derive(Clone)]
struct Own {
    name: String,
    after_crash: AfterCrash,
    does: Does,
}

impl Own {
    fn new(name: &str, after_crash: AfterCrash, does: Does) -> Self {
        Self { name: name.to_owned(), after_crash, does }
    }

    fn set(self) -> ToolSet {
        ToolSet::new([Arc::new(self) as Arc<dyn Tool>])
    }
}

impl Tool for Own {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        "does what a test wants"
    }

    fn schema(&self) -> Value {
        json!({ "type": "object" })
    }

    fn prepare(&self, _: &Value, _: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        Ok(Box::new(self.clone()))
    }
}

impl Call for Own {
    fn action(&self) -> String {
        self.name.clone()
    }

    fn effects(&self) -> Effects {
        let access = Access::Other { server: "test".to_owned(), tool: self.name.clone(), version: String::new() };
        Effects { after_crash: self.after_crash, ..Effects::change(access) }
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        (self.does)(context, false)
    }

    fn join(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        (self.does)(context, true)
    }
}

/// A tool whose calls say `text`.
fn says(text: &str) -> Does {
    let text = text.to_owned();
    Arc::new(move |_, _| Box::pin(std::future::ready(ToolOutput::text(text.clone()))))
}

fn open(dir: &Path, tools: &Tools) -> Arc<Services> {
    Services::open(Setup::with_tools(Places::below(dir).unwrap(), tools.clone()), CancellationToken::new()).unwrap()
}

/// Ends the daemon in good order.
async fn close(services: Arc<Services>) {
    services.registry.pause().await;
    services.env().calls.children.end().await;
    services.store.close().await.unwrap();
}

fn me() -> Caller {
    Caller::new(Authority::Daemon)
}

/// A new session of the demo model in mode `auto`.
async fn create(services: &Arc<Services>, dir: &Path) -> SessionId {
    let create = serde_json::from_value(json!({ "cwd": dir, "model": "demo", "mode": "auto" })).unwrap();
    session::create(services, &me(), create).await.unwrap().session
}

async fn prompt(services: &Arc<Services>, id: &SessionId, text: &str) {
    let prompt = serde_json::from_value(json!({ "session": id, "content": text })).unwrap();
    session::prompt(services, &me(), prompt).await.unwrap();
}

async fn attach(services: &Arc<Services>, id: &SessionId) -> Subscription {
    let attach = serde_json::from_value(json!({ "session": id })).unwrap();
    session::attach(services, &me(), attach).await.unwrap().1
}

/// The durable events up to one that `last` looks for.
async fn until(subscription: &mut Subscription, last: impl Fn(&EventBody) -> bool) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let event = timeout(SOON, subscription.next()).await.unwrap().unwrap().into_event().unwrap();
        let found = last(&event.body);
        events.extend(event.seq.is_some().then_some(event));
        if found {
            return events;
        }
    }
}

fn is_end(body: &EventBody) -> bool {
    matches!(body, EventBody::TurnFinished(_))
}

/// What the calls came to: text, and whether it is a failure.
fn results(events: &[Event]) -> Vec<(String, bool)> {
    let result = |event: &Event| match &event.body {
        EventBody::ToolFinished(ToolFinished { content, is_error, .. }) => Some((text_of(content), *is_error)),
        _ => None,
    };
    events.iter().filter_map(result).collect()
}

fn starts(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event.body, EventBody::ToolStarted(_))).count()
}

#[tokio::test]
async fn a_set_that_is_replaced_within_a_turn_counts_from_its_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let tools = Tools::default();
    let later = tools.clone();
    let does: Does = Arc::new(move |_, _| {
        // From the next step on there is no `bash` any more.
        later.replace(Own::new("other", AfterCrash::Unknown, says("other")).set());
        Box::pin(std::future::ready(ToolOutput::text("one")))
    });
    tools.replace(Own::new("bash", AfterCrash::Unknown, does).set());
    let services = open(dir.path(), &tools);
    let id = create(&services, dir.path()).await;
    let mut subscription = attach(&services, &id).await;
    prompt(&services, &id, "run: one\nrun: two").await;
    let events = until(&mut subscription, is_end).await;
    let results = results(&events);
    assert_eq!(results.first(), Some(&("one".to_owned(), false)), "{results:?}");
    let (text, is_error) = results.get(1).unwrap();
    assert!(*is_error && text.contains("there is no tool `bash`") && text.contains("other"), "{text}");
    let place = |found: &dyn Fn(&EventBody) -> bool| events.iter().position(|event| found(&event.body)).unwrap();
    let setup = place(&|body| matches!(body, EventBody::SessionChanged(SessionChanged { setup: Some(_), .. })));
    let first = place(&|body| matches!(body, EventBody::ToolFinished(_)));
    assert!(setup > first, "the event comes between the two steps");
    assert_eq!(starts(&events), 1);
    close(services).await;
}

#[tokio::test]
async fn a_call_that_is_joined_survives_a_restart_and_starts_once() {
    let dir = tempfile::tempdir().unwrap();
    let (runs, joins) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (ran, joined) = (runs.clone(), joins.clone());
    let begun = Arc::new(Notify::new());
    let begins = begun.clone();
    let does: Does = Arc::new(move |context, is_joined| {
        if is_joined {
            joined.lock().unwrap().push(context.call);
            return Box::pin(std::future::ready(ToolOutput::text("joined")));
        }
        ran.fetch_add(1, Ordering::Relaxed);
        begins.notify_one();
        Box::pin(std::future::pending())
    });
    let tools = Tools::new(Own::new("bash", AfterCrash::Join, does).set());
    let services = open(dir.path(), &tools);
    let id = create(&services, dir.path()).await;
    prompt(&services, &id, "run: it").await;
    timeout(SOON, begun.notified()).await.unwrap();
    close(services).await;

    let services = open(dir.path(), &tools);
    services.registry.resume_unfinished().await.unwrap();
    let mut subscription = attach(&services, &id).await;
    let events = until(&mut subscription, is_end).await;
    assert_eq!(results(&events), [("joined".to_owned(), false)]);
    assert_eq!((starts(&events), runs.load(Ordering::Relaxed)), (1, 1));
    assert_eq!(*joins.lock().unwrap(), [format!("{id}/c1")]);
    let said = events.iter().any(
        |event| matches!(&event.body, EventBody::ToolStarted(ToolStarted { after_crash, .. }) if *after_crash == AfterCrash::Join),
    );
    assert!(said, "the start says what a restart does");
    close(services).await;
}

#[tokio::test]
async fn a_call_that_only_reads_may_run_again_after_a_restart_and_others_do_not() {
    for (after_crash, expect, times) in [(AfterCrash::Again, "again", 2), (AfterCrash::Unknown, "outcome unknown", 1)] {
        let dir = tempfile::tempdir().unwrap();
        let runs = Arc::new(AtomicUsize::new(0));
        let (ran, begun) = (runs.clone(), Arc::new(Notify::new()));
        let begins = begun.clone();
        let does: Does = Arc::new(move |_, _| match ran.fetch_add(1, Ordering::Relaxed) {
            0 => {
                begins.notify_one();
                Box::pin(std::future::pending())
            }
            _ => Box::pin(std::future::ready(ToolOutput::text("again"))),
        });
        let tools = Tools::new(Own::new("bash", after_crash, does).set());
        let services = open(dir.path(), &tools);
        let id = create(&services, dir.path()).await;
        prompt(&services, &id, "run: it").await;
        timeout(SOON, begun.notified()).await.unwrap();
        close(services).await;

        let services = open(dir.path(), &tools);
        services.registry.resume_unfinished().await.unwrap();
        let mut subscription = attach(&services, &id).await;
        let events = until(&mut subscription, is_end).await;
        let results = results(&events);
        assert!(results.len() == 1 && results.iter().all(|(text, _)| text.contains(expect)), "{results:?}");
        assert_eq!((starts(&events), runs.load(Ordering::Relaxed)), (1, times));
        close(services).await;
    }
}

#[tokio::test]
async fn a_call_whose_tool_is_gone_after_a_restart_has_an_unknown_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let does: Does = Arc::new(|_, _| Box::pin(std::future::pending()));
    let tools = Tools::new(Own::new("bash", AfterCrash::Join, does).set());
    let services = open(dir.path(), &tools);
    let id = create(&services, dir.path()).await;
    let mut subscription = attach(&services, &id).await;
    prompt(&services, &id, "run: it").await;
    until(&mut subscription, |body| matches!(body, EventBody::ToolStarted(_))).await;
    drop(subscription);
    close(services).await;

    let tools = Tools::new(Own::new("other", AfterCrash::Unknown, says("other")).set());
    let services = open(dir.path(), &tools);
    services.registry.resume_unfinished().await.unwrap();
    let mut subscription = attach(&services, &id).await;
    let events = until(&mut subscription, is_end).await;
    let results = results(&events);
    let said = results.iter().all(|(text, is_error)| *is_error && text.contains("outcome unknown"));
    assert!(results.len() == 1 && said, "{results:?}");
    close(services).await;
}

#[tokio::test]
async fn a_child_that_outlives_its_call_is_talked_to_and_ends_with_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let (kept, there) = (Arc::new(Mutex::new(None)), Arc::new(Notify::new()));
    let (keep, tell) = (kept.clone(), there.clone());
    let does: Does = Arc::new(move |context: Context, _| {
        let (keep, tell) = (keep.clone(), tell.clone());
        Box::pin(async move {
            let server = context.spawn.server::<&str>("cat", &[]).await.unwrap();
            *keep.lock().unwrap() = Some(server);
            tell.notify_one();
            ToolOutput::text("it runs")
        })
    });
    let tools = Tools::new(Own::new("bash", AfterCrash::Unknown, does).set());
    let services = open(dir.path(), &tools);
    let id = create(&services, dir.path()).await;
    let mut subscription = attach(&services, &id).await;
    prompt(&services, &id, "run: it").await;
    until(&mut subscription, is_end).await;
    timeout(SOON, there.notified()).await.unwrap();
    let server = kept.lock().unwrap().take().unwrap();
    let Server { mut input, output, errors: _errors, mut life } = server;
    let mut lines = BufReader::new(output).lines();
    for line in ["one", "two"] {
        input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        assert_eq!(timeout(SOON, lines.next_line()).await.unwrap().unwrap().as_deref(), Some(line));
    }
    close(services).await;
    let status = timeout(SOON, life.ended()).await.unwrap();
    assert!(status.is_some_and(|status| !status.success()), "{status:?}");
    assert_eq!(timeout(SOON, lines.next_line()).await.unwrap().unwrap(), None);
}
