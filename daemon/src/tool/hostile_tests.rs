//! Hostile arguments and commands for every built-in tool: nothing panics, every result is bounded, and nothing is left running.
//!
//! Hostile paths are in `session/tests/hostile`, swapped links in `permission/swap_tests`.

use std::sync::Arc;
use std::time::Duration;

use linger_protocol::event::Outcome;
use linger_protocol::message::ContentBlock;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::image::{Image, ImageModel, ImageModels};
use super::tests::{test_context, test_workspace};
use super::*;
use crate::provider::image::{ImageRequest, MadeImage};

/// The most that a result may have, in bytes: head and tail of an output, or a report, and words with it.
const RESULT: usize = 32 << 10;

/// The most that a refusal may have, in bytes: it may repeat an argument that is refused.
const REFUSAL: usize = 2 << 10;

/// More than any of these takes; a hang fails the test.
const SOON: Duration = Duration::from_secs(120);

/// Strings that models and web pages come up with.
fn strings() -> Vec<String> {
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    [
        "", " ", "\0", "\n", "-", "--", "--help", "-x", "..", "/", "~", "*", "**", "[", "(", "\\", "$(id)", "`id`",
        "'", "\"", "a\0b",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain(["x".repeat(1 << 20), "é\u{202e}\u{1b}[2J".repeat(1000), "../".repeat(5000), deep])
    .collect()
}

/// The arguments that a schema names, each with every hostile value; required ones have a plain one else.
fn inputs(tool: &dyn Tool) -> Vec<Value> {
    let schema = tool.schema();
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let plain = |schema: &Value| match schema["type"].as_str() {
        Some("string") => json!("x"),
        Some("integer") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!(["x"]),
        _ => json!({}),
    };
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let base: serde_json::Map<String, Value> = required
        .iter()
        .filter_map(|name| Some((name.as_str()?.to_owned(), plain(properties.get(name.as_str()?)?))))
        .collect();
    let odd = [json!(null), json!(true), json!(-1), json!(u64::MAX), json!(1e300), json!([]), json!({}), json!([[[]]])];
    let values: Vec<Value> = strings()
        .into_iter()
        .flat_map(|text| [json!(text), json!([text]), json!([text, text]), json!({ "name": text })])
        .chain(odd)
        .collect();
    let with = |name: &String, value: &Value| {
        let mut input = base.clone();
        input.insert(name.clone(), value.clone());
        Value::Object(input)
    };
    let each = properties.keys().flat_map(|name| values.iter().map(move |value| with(name, value)));
    each.chain(values.iter().cloned()).chain([json!({ "unknown": 1 })]).collect()
}

/// A provider that makes images, which nothing asks here.
struct Painter;

impl ImageModels for Painter {
    fn chosen(&self) -> Option<ImageModel> {
        let (origin, host) = ("work/painter".to_owned(), "paint.example".to_owned());
        Some(ImageModel { origin, host })
    }

    fn make(&self, _: ImageModel, _: ImageRequest) -> BoxFuture<'static, Result<MadeImage, String>> {
        Box::pin(std::future::ready(Err("it is not asked".to_owned())))
    }
}

#[test]
fn no_argument_makes_a_tool_panic_and_every_refusal_is_short() {
    let (_dir, workspace) = test_workspace();
    let mut tried = 0;
    let more = super::set::two_that_find(builtin());
    let hidden: Hidden = Arc::new(|_| false);
    let image: [Arc<dyn Tool>; 1] = [Arc::new(Image(Arc::new(Painter)))];
    for tool in builtin().into_iter().chain(image).chain(more) {
        for input in inputs(tool.as_ref()) {
            let shown: String = input.to_string().chars().take(80).collect();
            let completed = if tool.completes() { tool.complete(&input, &workspace, &hidden) } else { Ok(None) };
            let called = completed
                .and_then(|completed| tool.prepare(completed.as_ref().unwrap_or(&input), &workspace))
                .map(|call| (call.effects(), call.effects(), call.locations()));
            match called {
                Ok((first, again, _)) => assert_eq!(first, again, "{} {shown}", tool.name()),
                Err(why) => {
                    assert!(why.0.len() <= REFUSAL, "{} {shown}: {}", tool.name(), why.0.len());
                }
            }
            tried += 1;
        }
    }
    assert!(tried > 2000, "{tried}");
}

/// Commands that try to outlast, flood or outwit their call; with the seconds that they get.
const COMMANDS: [(&str, u64); 9] = [
    ("trap '' TERM; while :; do sleep 1000; done", 1),
    ("trap '' TERM HUP INT; yes", 1),
    ("sleep 1000 & echo held", 60),
    ("setsid sleep 1000 > /dev/null & echo left", 60),
    ("(setsid sh -c 'trap \"\" TERM; sleep 1000' &) ; echo twice", 60),
    ("for i in $(seq 100); do (sleep 1000 &) ; done; echo storm", 60),
    ("head -c 50000000 /dev/zero", 60),
    ("head -c 5000000 /dev/urandom", 60),
    ("head -c 20000000 /dev/zero | tr '\\0' x", 60),
];

#[tokio::test]
async fn no_command_outlasts_its_call_or_floods_the_model() {
    for name in ["bash", "test_run"] {
        for (command, timeout_s) in COMMANDS {
            let (_dir, mut workspace) = test_workspace();
            // A process that is left says by its environment whose it was.
            let token = format!("T{}{}", std::process::id(), workspace.cwd.file_name().unwrap().to_string_lossy());
            let mut env = (*workspace.env).clone();
            env.insert("HOSTILE".to_owned(), token.clone());
            workspace.env = Arc::new(env);
            let set = set::ToolSet::new(builtin());
            let input = json!({ "command": command, "timeout_s": timeout_s });
            let call = set.get(name).unwrap().prepare(&input, &workspace).unwrap();
            let (sender, mut receiver) = mpsc::channel(4);
            let drain = async { while receiver.recv().await.is_some() {} };
            let running = async { tokio::join!(call.run(test_context(&workspace, sender)), drain).0 };
            let output =
                tokio::time::timeout(SOON, running).await.unwrap_or_else(|_| panic!("{name}: {command} hangs"));
            let texts: Vec<&str> = output.content.iter().filter_map(ContentBlock::as_text).collect();
            let size: usize = texts.iter().map(|text| text.len()).sum();
            assert!(size <= RESULT, "{name}: {command}: {size} bytes");
            let is_late = timeout_s == 1;
            assert_eq!(output.outcome == Outcome::TimedOut, is_late, "{name}: {command}: {texts:?}");
            // The group is killed; what left it is ended by the reaper of a daemon (`process/strays`), which no test of one tool has.
            // A process that was sent SIGKILL is still there until it was scheduled once more: it has until `SOON` to go.
            let may_be_left = |group: i32| command.contains("setsid") || group <= 0;
            let gone = async {
                while left(&token).iter().any(|(_, group)| !may_be_left(*group)) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            if tokio::time::timeout(SOON, gone).await.is_err() {
                panic!("{name}: {command}: {:?}", left(&token));
            }
            for (pid, _) in left(&token) {
                let pid = rustix::process::Pid::from_raw(pid).unwrap();
                let _ended = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// Processes that live with this in their environment, and their groups.
fn left(token: &str) -> Vec<(i32, i32)> {
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let names = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| is_number(name))
        .filter_map(|pid| {
            let env = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
            let has = env.windows(token.len()).any(|window| window == token.as_bytes());
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let mut fields = stat.rsplit_once(") ")?.1.split(' ');
            let (state, group) = (fields.next()?, fields.nth(1)?.parse().ok()?);
            (has && state != "Z").then_some((pid.parse().ok()?, group))
        })
        .collect()
}
