//! Every fault in every format through the real daemon: one after the other in a session, which is usable after each.

use std::time::Duration;

use linger_tests::check::{Seen, Transcript};
use linger_tests::harness::{Client, Daemon, Setup, process};
use linger_tests::model::{Format, ModelServer, Recorded, Reply};
use serde_json::{Value, json};

use crate::provider_faults::notices;
use crate::providers::PICTURE;
use crate::schema::{bern, gives, schema};
pub(crate) use crate::shared::matrix_turns::refusal;

/// How long a provider may be silent here.
const SILENCE: Duration = Duration::from_millis(2500);

/// The most memory that the daemon may take meanwhile, in KiB: several times what it has when idle, a few of the largest lines.
const MEMORY: u64 = 96 << 10;

/// What is to come of a fault.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// It is tried again, nothing having been shown.
    Again,
    /// What was shown is superseded, and it is tried again.
    Repeated,
    /// What the history brings back is left out, and it is asked again.
    Plain,
    /// The turn fails at once, and says this.
    Failed(&'static str),
    /// It is none.
    Nothing,
}

fn shown() -> Reply {
    Reply::new().thinking("Hm, 🦀.", "c2lnbmF0dXJl").and_text("Good d")
}

/// The faults, and what the model says when it has none.
fn faults(format: Format, good: impl Fn() -> Reply) -> Vec<(&'static str, Reply, Then)> {
    let status = |status: u16| Reply::status(status).header("retry-after-ms", "1");
    let calls = || shown().and_tool("bash", json!({ "command": "echo ä€😀 > never" })).and_tool("ls", json!({}));
    let mut faults = vec![
        ("408", status(408), Then::Again),
        ("409", status(409), Then::Again),
        ("429", status(429), Then::Again),
        ("500", status(500), Then::Again),
        ("503", status(503), Then::Again),
        ("529", status(529), Then::Again),
        ("reset", Reply::reset(), Then::Again),
        ("an error at once", Reply::new().error_event("overloaded_error", "Overloaded"), Then::Again),
        ("a cut at once", Reply::new().cut(), Then::Again),
        ("silence at once", Reply::new().stall(), Then::Again),
        ("an error", shown().error_event("overloaded_error", "Overloaded"), Then::Repeated),
        ("a cut", shown().cut(), Then::Repeated),
        ("a cut after calls", calls().cut(), Then::Repeated),
        ("silence", shown().stall(), Then::Repeated),
        ("silence after calls", calls().stall(), Then::Repeated),
        ("garbage", shown().garbage(), Then::Repeated),
        ("a huge line", Reply::new().huge_line(24 << 20), Then::Failed("larger than 8 MiB")),
        ("another content type", good().wrong_content_type(), Then::Nothing),
        ("single bytes", good().chunks_of(1), Then::Nothing),
        ("a web page", Reply::html(), Then::Failed("web page")),
        ("a web page that is not called so", Reply::unnamed_page(), Then::Failed("web page")),
        ("400", Reply::status(400), Then::Failed("400")),
        ("401", Reply::status(401), Then::Failed("401")),
        ("402", Reply::status(402), Then::Failed("402")),
        ("403", Reply::status(403), Then::Failed("403")),
        ("404", Reply::status(404), Then::Failed("404")),
        ("422", Reply::status(422), Then::Failed("422")),
        ("a history that is refused", refusal(format), Then::Plain),
        (
            "a history that is refused and has nothing to leave out",
            refusal(format),
            Then::Failed("cannot leave out more"),
        ),
        ("a long wait", Reply::status(429).header("retry-after", "3600"), Then::Failed("60 minutes")),
    ];
    // What comes in lines of JSON may come in one.
    if format != Format::Ollama {
        faults.push(("an answer at once", Reply::at_once(), Then::Failed("all at once")));
    }
    faults
}

/// What one turn added to the transcript.
struct Turn {
    notices: usize,
    superseded: usize,
    messages: usize,
    started: usize,
    finished: usize,
}

impl Turn {
    fn of(seen: &Transcript) -> Self {
        let count = |kind| seen.of(kind).count();
        let (messages, superseded) = (count("message"), count("message_superseded"));
        let (started, finished) = (count("tool_started"), count("turn_finished"));
        Self { notices: notices(seen).len(), superseded, messages, started, finished }
    }
}

/// A session of its own with one of the models, which sees some of the faults, one after the other.
struct Lane<'a> {
    format: Format,
    model: &'a ModelServer,
    name: String,
    client: Client,
    session: String,
    /// What answers have to fit.
    schema: Option<Value>,
}

impl<'a> Lane<'a> {
    async fn new(daemon: &Daemon, model: &'a ModelServer, format: Format, schema: Option<Value>, n: usize) -> Self {
        let (client, name) = (daemon.client().await, format!("m{n}"));
        let session = client.create_with(json!({ "model": format!("x/{name}") })).await;
        client.attach(&session).await;
        Self { format, model, name, client, session, schema }
    }

    /// Prompts with a picture and perhaps a schema; how the turn ended.
    async fn prompt(&self, schema: Option<&Value>) -> Seen {
        let before = self.client.transcript().of("turn_finished").count();
        let image = json!({ "type": "image", "media_type": "image/png", "data": PICTURE });
        let content = json!([{ "type": "text", "text": format!("was ist das, {}?", self.name) }, image]);
        let params = json!({ "session": self.session, "content": content, "schema": schema });
        self.client.call("session/prompt", params).await;
        self.client.nth(&self.session, "turn_finished", before + 1).await
    }

    fn push(&self, replies: impl IntoIterator<Item = Reply>) {
        self.model.push_for(&self.name, replies);
    }

    fn requests(&self) -> Vec<Recorded> {
        self.model.requests().into_iter().filter(|request| request.model() == self.name).collect()
    }

    /// A good answer.
    fn good(&self) -> Reply {
        if self.schema.is_some() { gives(self.format, &bern()) } else { Reply::text("Good day") }
    }

    /// One fault, and what comes of it.
    async fn meets(&self, fault: &str, reply: Reply, then: Then) {
        let what = format!("{:?}: {fault}", self.format);
        if then == Then::Plain {
            self.push([Reply::new().thinking("Hm.", "c2ln").and_text("Gut.")]);
            assert_eq!(self.prompt(None).await.str("stop_reason"), "end_turn");
        }
        let (before, asked) = (Turn::of(&self.client.transcript()), self.requests().len());
        let fails = matches!(then, Then::Failed(_));
        self.push([reply].into_iter().chain((!fails && then != Then::Nothing).then(|| self.good())));
        let end = self.prompt(self.schema.as_ref()).await;
        let (stop, detail) = (end.str("stop_reason"), end.event["detail"].as_str().unwrap_or_default());
        let answer = if self.schema.is_some() && !fails { bern() } else { Value::Null };
        assert_eq!(end.event["answer"], answer, "{what}: {detail}");
        let (after, bodies) = (Turn::of(&self.client.transcript()), self.requests());
        assert_eq!(after.finished, before.finished + 1, "{what}");
        assert_eq!(after.started, 0, "{what}: a call of an answer that was cut ran");
        let added =
            (after.notices - before.notices, after.superseded - before.superseded, after.messages - before.messages);
        // Where tools and a schema exclude each other, the schema is told in words.
        let told = usize::from(self.schema.is_some() && self.format == Format::Ollama);
        let (want, words) = match then {
            Then::Again => ((1, 0, 2 + told), ""),
            Then::Repeated => ((1, 1, 3 + told), ""),
            Then::Nothing | Then::Plain => ((0, 0, 2 + told), ""),
            Then::Failed(words) => ((0, 0, 1 + told), words),
        };
        assert_eq!((added, stop), (want, if fails { "error" } else { "end_turn" }), "{what}: {detail}");
        let trimmed = self.client.transcript().of("trimmed").count();
        assert_eq!(trimmed, usize::from(trimmed > 0 || then == Then::Plain), "{what}");
        let attempts = bodies.len() - asked;
        assert_eq!(attempts, if matches!(then, Then::Again | Then::Repeated | Then::Plain) { 2 } else { 1 }, "{what}");
        assert!(detail.contains(words), "{what}: {detail}");
        assert!(bodies.last().unwrap().messages().contains(PICTURE), "{what}: the picture is not there");
    }

    /// All of these, and then a turn without one.
    async fn meets_all(&self, faults: Vec<(&'static str, Reply, Then)>) {
        for (fault, reply, then) in faults {
            self.meets(fault, reply, then).await;
        }
        self.push([Reply::text("Still there.")]);
        assert_eq!(self.prompt(None).await.str("stop_reason"), "end_turn");
    }
}

/// With answers that are free, or have to fit a schema. What is waited for in silence is so in sessions side by side.
async fn every_fault_in(format: Format, shaped: bool) {
    let model = ModelServer::start();
    let config = format!("{}idle_timeout_ms = {}", format.provider("x", &model.url()), SILENCE.as_millis());
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", config, ..Setup::default() }).await;
    let lane = |n| Lane::new(&daemon, &model, format, shaped.then(schema), n);
    let lanes = [lane(0).await, lane(1).await, lane(2).await, lane(3).await];
    let all = faults(format, || lanes[0].good());
    let (silent, loud): (Vec<_>, Vec<_>) = all.into_iter().partition(|(fault, ..)| fault.starts_with("silence"));
    let [one, two, three] = <[_; 3]>::try_from(silent).unwrap_or_else(|all| panic!("{} silences", all.len()));
    tokio::join!(
        lanes[0].meets_all(loud),
        lanes[1].meets_all(vec![one]),
        lanes[2].meets_all(vec![two]),
        lanes[3].meets_all(vec![three]),
    );
    let most = process::peak(daemon.pid().await);
    assert!(most < MEMORY, "{format:?}: {most} KiB");
    daemon.check(&lanes.each_ref().map(|lane| &lane.client), &model);
}

#[tokio::test]
async fn every_fault_in_anthropic_messages() {
    every_fault_in(Format::Anthropic, false).await;
}

#[tokio::test]
async fn every_fault_of_an_answer_that_has_to_fit_in_anthropic_messages() {
    every_fault_in(Format::Anthropic, true).await;
}

#[tokio::test]
async fn every_fault_in_chat_completions() {
    every_fault_in(Format::OpenAi, false).await;
}

#[tokio::test]
async fn every_fault_of_an_answer_that_has_to_fit_in_chat_completions() {
    every_fault_in(Format::OpenAi, true).await;
}

#[tokio::test]
async fn every_fault_in_responses() {
    every_fault_in(Format::Responses, false).await;
}

#[tokio::test]
async fn every_fault_of_an_answer_that_has_to_fit_in_responses() {
    every_fault_in(Format::Responses, true).await;
}

#[tokio::test]
async fn every_fault_in_gemini() {
    every_fault_in(Format::Gemini, false).await;
}

#[tokio::test]
async fn every_fault_of_an_answer_that_has_to_fit_in_gemini() {
    every_fault_in(Format::Gemini, true).await;
}

#[tokio::test]
async fn every_fault_in_ollama() {
    every_fault_in(Format::Ollama, false).await;
}

#[tokio::test]
async fn every_fault_of_an_answer_that_has_to_fit_in_ollama() {
    every_fault_in(Format::Ollama, true).await;
}

/// A session of 50 steps: each request begins with the whole of the one before, as far as a cache sees it.
#[tokio::test]
async fn fifty_steps_keep_the_prefix_in_every_format() {
    for format in Format::ALL {
        let model = ModelServer::start();
        let daemon = crate::providers::start(&model).await;
        let client = daemon.client().await;
        let session = client.create_with(json!({ "model": crate::providers::name(format) })).await;
        client.attach(&session).await;
        for n in 0..25 {
            let call = Reply::new().thinking("Hm.", "c2lnbmF0dXJl").and_text("Ich schaue. ").and_tool("ls", json!({}));
            model.push([call, Reply::text(format!("Antwort {n}: ä€😀"))]);
            assert_eq!(client.turn(&session, &format!("Frage {n}")).await.str("stop_reason"), "end_turn");
        }
        let bodies: Vec<_> = model.requests().into_iter().map(|request| request.json).collect();
        assert_eq!(bodies.len(), 50);
        let share = linger_tests::model::prefix_kept(&bodies);
        println!("{format:?}: {:.2} % of each request's prefix is kept over 50 steps", share * 100.0);
        assert!((share - 1.0).abs() < f64::EPSILON, "{format:?}: {share}");
        crate::providers::check(&daemon, &[&client], &model);
    }
}
