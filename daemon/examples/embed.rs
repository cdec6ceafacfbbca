//! The daemon's library in a program of one's own: its own tool, its own system prompt, and a connection that is no socket.
//!
//! `cargo run -p lingerd --example embed -- "run: hello"`; a test runs it too.
#![allow(clippy::indexing_slicing)] // Of JSON values, which have `null` for what is not there.

use std::sync::Arc;

use anyhow::Context as _;
use linger_protocol::place::Places;
use lingerd::Options;
use lingerd::rpc::in_process::in_process;
use lingerd::service::Setup;
use lingerd::tool::set::{ToolSet, Tools};
use lingerd::tool::{BoxFuture, Call, Context, Effects, Invalid, Tool, ToolOutput, Workspace};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio_util::sync::CancellationToken;

/// A tool that repeats a word. Its name is `bash` because the scripted model calls that; it runs nothing.
struct Shout(String);

impl Tool for Shout {
    fn name(&self) -> &str {
        "bash"
    }

    fn description(&self) -> &str {
        "Says it louder."
    }

    fn schema(&self) -> Value {
        json!({ "type": "object", "properties": { "command": { "type": "string" } } })
    }

    fn prepare(&self, input: &Value, _: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let word = input["command"].as_str().ok_or_else(|| Invalid("say what".to_owned()))?;
        Ok(Box::new(Self(word.to_uppercase())))
    }
}

impl Call for Shout {
    fn action(&self) -> String {
        format!("shout {}", self.0)
    }

    fn effects(&self) -> Effects {
        Effects::command("")
    }

    fn run(self: Box<Self>, _: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(std::future::ready(ToolOutput::text(self.0)))
    }
}

/// Starts a daemon in a new directory, gives the demo model `prompt`, and gives back what it said.
pub(crate) async fn converse(prompt: &str) -> anyhow::Result<String> {
    let dir = tempfile::tempdir()?;
    let tools = Tools::new(ToolSet::new([Arc::new(Shout(String::new())) as Arc<dyn Tool>]));
    let setup = Setup { system: "You are loud.".to_owned(), ..Setup::with_tools(Places::below(dir.path())?, tools) };
    let (connector, listener) = in_process();
    let shutdown = CancellationToken::new();
    let daemon = tokio::spawn(lingerd::run(Options::of(setup), listener, shutdown.clone()));
    let mut lines = BufReader::new(connector.connect().await.context("the daemon has ended")?);
    let create = json!({ "cwd": dir.path(), "model": "demo", "mode": "auto" });
    let session = ask(&mut lines, "session/create", create).await?["result"]["session"].clone();
    ask(&mut lines, "session/prompt", json!({ "session": session, "content": prompt })).await?;
    let mut line = ask(&mut lines, "session/attach", json!({ "session": session })).await?;
    let mut said = String::new();
    while line["params"]["event"]["kind"] != "turn_finished" {
        line = next(&mut lines).await?;
        let event = &line["params"]["event"];
        said += event["text"].as_str().filter(|_| event["kind"] == "text_delta").unwrap_or_default();
    }
    shutdown.cancel();
    daemon.await??;
    Ok(said)
}

/// Sends a request, and gives the line that comes next.
async fn ask(lines: &mut BufReader<DuplexStream>, method: &str, params: Value) -> anyhow::Result<Value> {
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    lines.write_all(format!("{request}\n").as_bytes()).await?;
    next(lines).await
}

async fn next(lines: &mut BufReader<DuplexStream>) -> anyhow::Result<Value> {
    let mut line = String::new();
    lines.read_line(&mut line).await?;
    let line: Value = serde_json::from_str(&line)?;
    anyhow::ensure!(line["error"].is_null(), "{}", line["error"]);
    Ok(line)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    println!("{}", converse(&std::env::args().nth(1).unwrap_or_else(|| "run: hello".to_owned())).await?);
    Ok(())
}
