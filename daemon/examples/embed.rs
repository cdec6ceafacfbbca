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
use lingerd::tool::set::{Takes, ToolSet, Tools};
use lingerd::tool::{BoxFuture, Call, Context, Effects, Invalid, Tool, ToolOutput, Workspace};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio_util::sync::CancellationToken;

/// A tool of this program; with a word, a call of it. Its name is `bash` because the scripted model calls that; it runs nothing.
struct Shout(Option<String>);

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

    fn changes(&self) -> bool {
        false
    }

    fn pattern(&self) -> Takes {
        Takes::Command
    }

    fn prepare(&self, input: &Value, _: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let word = input["command"].as_str().ok_or_else(|| Invalid("say what".to_owned()))?;
        Ok(Box::new(Self(Some(word.to_uppercase()))))
    }
}

impl Call for Shout {
    fn action(&self) -> String {
        "shout".to_owned()
    }

    fn effects(&self) -> Effects {
        Effects::command("")
    }

    fn run(self: Box<Self>, _: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(std::future::ready(ToolOutput::text(self.0.unwrap_or_default())))
    }
}

/// Starts a daemon in a new directory, gives the demo model `prompt`, and gives back what it said.
pub(crate) async fn converse(prompt: &str) -> anyhow::Result<String> {
    let dir = tempfile::tempdir()?;
    let tools = Tools::new(ToolSet::new([Arc::new(Shout(None)) as Arc<dyn Tool>]));
    let ordinary = Setup::with_tools(Places::below(dir.path())?, tools);
    let setup = Setup { system: "You are loud.".to_owned(), ..ordinary };
    let (connector, listener) = in_process();
    let shutdown = CancellationToken::new();
    let daemon = tokio::spawn(lingerd::run(Options::of(setup), listener, shutdown.clone()));

    let (read, mut write) = tokio::io::split(connector.connect().await.context("the daemon has ended")?);
    let mut lines = BufReader::new(read).lines();
    let mut said = String::new();
    write.write_all(&request("session/create", json!({ "cwd": dir.path(), "model": "demo", "mode": "auto" }))).await?;
    while let Some(line) = lines.next_line().await? {
        let message: Value = serde_json::from_str(&line)?;
        anyhow::ensure!(message["error"].is_null(), "{}", message["error"]);
        if message["id"] == "session/create" {
            let session = &message["result"]["session"];
            write.write_all(&request("session/attach", json!({ "session": session }))).await?;
            write.write_all(&request("session/prompt", json!({ "session": session, "content": prompt }))).await?;
        }
        let event = &message["params"]["event"];
        match event["kind"].as_str() {
            Some("text_delta") => said += event["text"].as_str().unwrap_or_default(),
            Some("turn_finished") => break,
            _ => {}
        }
    }
    shutdown.cancel();
    daemon.await??;
    Ok(said)
}

fn request(method: &str, params: Value) -> Vec<u8> {
    (json!({ "jsonrpc": "2.0", "id": method, "method": method, "params": params }).to_string() + "\n").into_bytes()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let prompt = std::env::args().nth(1).unwrap_or_else(|| "run: hello".to_owned());
    println!("{}", converse(&prompt).await?);
    Ok(())
}
