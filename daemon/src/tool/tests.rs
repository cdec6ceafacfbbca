//! What tests of tools share: a workspace, a context, and running a call.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use linger_protocol::message::ContentBlock;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::access::Targets;
use super::background::Jobs;
use super::delegate;
use super::invalid::Invalid;
use super::names::MCP;
use super::notes::Notes;
use super::output::OutputDelta;
use super::seen::Seen;
use super::skills::Skills;
use super::types::{Call, Context, Tool};
use super::workspace::Workspace;
use super::{added, bash};
use crate::diagnostics::secret::SecretVariables;
use crate::process::server::Children;
use crate::store::blob::Blobs;

/// A tool of the server that its name has, which is never called.
pub(crate) fn served(name: &str, about: &str) -> Arc<dyn Tool> {
    struct Served(String, String);
    impl Tool for Served {
        fn name(&self) -> &str {
            &self.0
        }
        fn description(&self) -> &str {
            &self.1
        }
        fn schema(&self) -> Value {
            json!({ "type": "object", "properties": { "x": { "description": "y".repeat(1000) } } })
        }
        fn server(&self) -> Option<&str> {
            self.0.strip_prefix(MCP)?.split("__").next()
        }
        fn prepare(&self, _: &Value, _: &Workspace) -> Result<Box<dyn Call>, Invalid> {
            Err(Invalid("not called".to_owned()))
        }
    }
    Arc::new(Served(name.to_owned(), about.to_owned()))
}

#[test]
fn a_schema_has_names_types_and_what_is_required() {
    let timeout = json!({"type": "integer", "description": "seconds until it is ended; at most 3600"});
    let expect = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {"command": {"type": "string"}, "timeout_s": timeout, "background": {"type": "boolean"}},
        "required": ["command"],
    });
    assert_eq!(bash::Bash.schema(), expect);
}

#[test]
fn a_link_out_of_the_workspace_is_not_in_it() {
    let outside = tempfile::tempdir().unwrap();
    let (_dir, workspace) = test_workspace();
    symlink(outside.path(), workspace.cwd.join("dir")).unwrap();
    symlink(outside.path().join("missing"), workspace.cwd.join("dangling")).unwrap();
    symlink("inside/missing", workspace.cwd.join("in")).unwrap();
    symlink("loop", workspace.cwd.join("loop")).unwrap();
    let check = |path: &str, expect: bool| {
        assert_eq!(workspace.contains(&workspace.cwd.join(path)), expect, "{path}");
    };
    check("new/file", true);
    check("in", true);
    check("loop", true);
    check("dir", false);
    check("dir/new/file", false);
    check("dangling", false);
    check("../x", false);
}

/// What a call is given whose blobs are in the directory `out` of its workspace.
pub(crate) fn test_context(workspace: &Workspace, output: mpsc::Sender<OutputDelta>) -> Context {
    Context {
        call: "s/c1".to_owned(),
        targets: Targets::default(),
        output,
        blobs: Blobs::of(&workspace.cwd.join("out/linger.db")),
        hidden: Arc::new(|_| false),
        spawn: workspace.spawn(Children::default(), None),
        ask: Arc::new(|_| Box::pin(std::future::ready(Err(Invalid("no one to ask".to_owned()))))),
        id: "c1".into(),
        jobs: Jobs::new().0,
        web: Arc::new(|_| Box::pin(std::future::ready(Err("no network".to_owned())))),
        delegate: delegate::nowhere(),
    }
}

/// A workspace in a new directory.
pub(crate) fn test_workspace() -> (tempfile::TempDir, Workspace) {
    let dir = tempfile::tempdir().unwrap();
    let cwd = dir.path().canonicalize().unwrap();
    let path = std::env::var("PATH").unwrap();
    let env = BTreeMap::from([("PATH".to_owned(), path), ("HOME".to_owned(), "/home/nobody".to_owned())]);
    let secrets = SecretVariables::default();
    let workspace = Workspace {
        root: cwd.clone(),
        is_seen: true,
        bound_by: None,
        cwd,
        env: Arc::new(env),
        secrets,
        seen: Seen::default(),
        added: added::AddedDirs::default(),
        skills: Skills::default(),
        notes: Notes::default(),
        timeout_s: 60,
    };
    (dir, workspace)
}

/// Runs a call whose output nobody reads, and gives its first texts and whether it failed.
pub(super) async fn run(tool: &dyn Tool, workspace: &Workspace, input: Value) -> (String, bool) {
    let call = match tool.prepare(&input, workspace) {
        Ok(call) => call,
        Err(invalid) => return (invalid.0, true),
    };
    let (sender, mut receiver) = mpsc::channel(1);
    let drain = async { while receiver.recv().await.is_some() {} };
    let (output, ()) = tokio::join!(call.run(test_context(workspace, sender)), drain);
    (output.content.iter().filter_map(ContentBlock::as_text).collect::<Vec<_>>().join("|"), output.is_error)
}
