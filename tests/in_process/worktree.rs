//! Children in git worktrees of their own: what they get, what stays, and merging it.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linger_tests::harness::{Client, Setup, comes_true};
use linger_tests::model::{ModelServer, Recorded, Reply};
use serde_json::{Value, json};

use crate::Daemon;

/// Runs git in a directory.
#[allow(clippy::disallowed_methods)] // As the user of the repository would.
fn git(dir: &Path, args: &[&str]) -> String {
    let identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main"];
    let mut git = Command::new("git");
    git.args(identity).args(args).current_dir(dir).stdout(Stdio::piped());
    let mut child = git.spawn().unwrap();
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    // The daemon in this process may have waited for it.
    drop(child.wait());
    said.trim().to_owned()
}

/// Makes the workspace a repository with a commit.
fn repository(root: &Path) {
    std::fs::write(root.join("a.txt"), "one\n").unwrap();
    git(root, &["init", "-q"]);
    git(root, &["add", "."]);
    git(root, &["commit", "-q", "-m", "first"]);
}

fn answered(answer: &str) -> String {
    json!({ "answer": answer, "sources": [], "confidence": "high", "caveats": [] }).to_string()
}

/// A hub whose child gets this task with a worktree and these calls of tools, one a step.
fn hub(task: &'static str, steps: &[(&'static str, Value)]) -> ModelServer {
    let steps = steps.to_vec();
    let mut done = 0;
    ModelServer::scripted(move |request: &Recorded| {
        let said = String::from_utf8_lossy(&request.body).into_owned();
        if said.contains("You work in a git worktree") {
            let Some((tool, arguments)) = steps.get(done) else { return Reply::text(answered("done")) };
            done += 1;
            Reply::tool(tool, arguments.clone())
        } else if request.last_words() == "go" && !request.after_tool() {
            Reply::tool("delegate", json!({ "agent": "general", "task": task, "worktree": true }))
        } else {
            Reply::text("so it is")
        }
    })
}

/// The row of the child.
async fn child(client: &Client, session: &str) -> Value {
    let rows = client.call("session/list", json!({})).await;
    rows.as_array().unwrap().iter().find(|row| row["parent"] == *session).cloned().unwrap()
}

fn result(client: &Client, session: &str) -> String {
    let seen = client.transcript();
    let finished = seen.of("tool_finished").find(|seen| seen.session == *session).unwrap();
    let texts = finished.event["content"].as_array().unwrap().iter();
    texts.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn what_a_child_did_in_its_worktree_is_merged_and_the_model_is_told() {
    let model = hub("improve", &[("write", json!({ "path": "sub/new.txt", "content": "new\n" }))]);
    let daemon = Daemon::start_with(&model, Setup { mode: "edit", ..Setup::default() }).await;
    let root = daemon.workspace().to_path_buf();
    repository(&root);
    let client = daemon.client().await;
    let session = client.session().await;
    let finished = client.turn(&session, "go").await;
    assert_eq!(finished.event["steps"], 4, "two of its own and two of its child");
    let row = child(&client, &session).await;
    let id = row["session"].as_str().unwrap().to_owned();
    let worktree = &row["delegated"]["worktree"];
    let path = PathBuf::from(worktree["path"].as_str().unwrap());
    assert_eq!((worktree["branch"].clone(), row["cwd"].clone()), (json!(format!("linger/{id}")), json!(path)));
    assert!(path.ends_with(format!("worktrees/{id}")) && !path.starts_with(&root), "{path:?}");
    assert!(path.join("sub/new.txt").exists() && !root.join("sub").exists());
    let said = result(&client, &session);
    assert!(said.contains(&format!("on the branch linger/{id}; the user merges them")), "{said}");
    let diff = client.call("session/diff", json!({ "session": session })).await["files"][0]["diff"].clone();
    let place = path.join("sub/new.txt");
    assert_eq!(diff, format!("--- /dev/null\n+++ b{}\n@@ -0,0 +1 @@\n+new\n", place.display()));

    let asked = json!({ "session": id, "key": "k" });
    let merged = client.call("session/merge", asked.clone()).await;
    assert_eq!((&merged["files"], &merged["directory"]), (&json!(["sub/new.txt"]), &json!(root)));
    assert_eq!(client.call("session/merge", asked).await, merged, "a repeated request happens once");
    assert_eq!(std::fs::read_to_string(root.join("sub/new.txt")).unwrap(), "new\n");
    assert_eq!(git(&root, &["rev-parse", "HEAD"]), merged["commit"]);
    let said = git(&root, &["log", "-1", "--format=%s%n%b"]);
    assert!(
        said.starts_with("improve") && said.contains(&format!("Made by the agent general of linger in session {id}."))
    );
    assert_eq!(client.first(&session, "merged").await.str("child"), id);
    let again = client.refused("session/merge", json!({ "session": id })).await;
    assert!(again.message.ends_with("is not merged: there is nothing to merge"), "{}", again.message);
    assert_eq!(child(&client, &session).await["delegated"]["worktree"]["status"], "merged");

    client.prompt(&session, "and now?").await;
    client.nth(&session, "turn_finished", 2).await;
    let last = model.requests().pop().unwrap();
    let told = String::from_utf8_lossy(&last.body).into_owned();
    assert!(
        told.contains(&format!("The user merged linger/{id}")) && told.contains("Changed were sub/new.txt"),
        "{told}"
    );
    daemon.check(&[&client], &model);
    let removed = client.call("session/remove", json!({ "session": session })).await;
    assert_eq!(removed, json!({ "children": 1 }), "what was merged is not only there");
    assert!(!path.exists());
}

#[tokio::test]
async fn a_worktree_without_changes_goes_and_comes_back_with_the_next_prompt() {
    let model = hub("look", &[]);
    let daemon = Daemon::start(&model).await;
    let root = daemon.workspace().to_path_buf();
    repository(&root);
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let row = child(&client, &session).await;
    let (id, path) = (row["session"].as_str().unwrap(), PathBuf::from(row["cwd"].as_str().unwrap()));
    assert_eq!(row["delegated"]["worktree"]["status"], "removed");
    assert!(!path.exists() && git(&root, &["branch"]) == "* main");
    let refused = client.refused("session/merge", json!({ "session": id })).await;
    assert!(refused.message.contains("changed nothing"), "{}", refused.message);
    let refused = client.refused("session/merge", json!({ "session": session })).await;
    assert!(refused.message.ends_with("has no git worktree of its own"), "{}", refused.message);
    client.attach(id).await;
    client.prompt(id, "and the rest?").await;
    client.nth(id, "turn_finished", 2).await;
    assert!(path.join("a.txt").exists());
    daemon.check(&[&client], &model);
    // Changes that are nowhere else outlive their session.
    std::fs::write(path.join("mine"), "x").unwrap();
    let removed = client.call("session/remove", json!({ "session": session })).await;
    assert_eq!(removed["worktrees"][0]["path"], json!(path));
    assert!(path.join("mine").exists());
}

#[tokio::test]
async fn a_child_in_a_worktree_is_bound_by_the_files_and_rules_of_its_parents_workspace() {
    let write = |path: &str| ("write", json!({ "path": path, "content": "x" }));
    let model = hub("try", &[write("secret/a"), write("kept/b"), write("free")]);
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", ..Setup::default() }).await;
    let root = daemon.workspace().to_path_buf();
    repository(&root);
    // Not committed, so not in the worktree; one rule is about a path there, the other about a path in the repository.
    std::fs::create_dir(root.join(".linger")).unwrap();
    let rules = format!("[permissions]\ndeny = [\"edit(secret/**)\", \"edit({}/kept/**)\"]\n", root.display());
    std::fs::write(root.join(".linger/config.toml"), rules).unwrap();
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let path = PathBuf::from(child(&client, &session).await["cwd"].as_str().unwrap());
    assert!(path.join("free").exists() && !path.join("secret").exists() && !path.join("kept").exists());
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn without_a_repository_the_model_is_told_what_to_do() {
    let model = hub("look", &[]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let said = result(&client, &session);
    assert!(said.starts_with("not run: no worktree can be made here:"), "{said}");
    assert!(
        said.ends_with("is no git repository (delegate without `worktree` to work in your own directory)"),
        "{said}"
    );
    daemon.check(&[&client], &model);
}

/// A directory with a `git` that waits at a gate when it is asked for an ancestor, which a merge does first.
fn gated_git(dir: &Path) -> (PathBuf, PathBuf) {
    use std::os::unix::fs::PermissionsExt as _;
    let (bin, gate) = (dir.join("bin"), dir.join("gate"));
    std::fs::create_dir(&bin).unwrap();
    let path = std::env::var("PATH").unwrap();
    let real = std::env::split_paths(&path).map(|dir| dir.join("git")).find(|git| git.exists()).unwrap();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *merge-base*) [ -e {0}.reached ] || {{ : > {0}.reached; read x < {0}; }} ;; esac\nexec {1} \"$@\"\n",
        gate.display(),
        real.display()
    );
    std::fs::write(bin.join("git"), script).unwrap();
    std::fs::set_permissions(bin.join("git"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let made = rustix::fs::mkfifoat(rustix::fs::CWD, &gate, rustix::fs::Mode::from_raw_mode(0o600));
    made.unwrap();
    (PathBuf::from(format!("{}:{path}", bin.display())), gate)
}

#[tokio::test]
async fn a_session_answers_while_git_merges_for_it_and_its_turn_begins_behind_that() {
    let model = hub("improve", &[("write", json!({ "path": "new.txt", "content": "new\n" }))]);
    let daemon = Daemon::start_with(&model, Setup { mode: "edit", ..Setup::default() }).await;
    let root = daemon.workspace().to_path_buf();
    repository(&root);
    let elsewhere = tempfile::tempdir().unwrap();
    let (path, gate) = gated_git(elsewhere.path());
    let client = daemon.client().await;
    let session = client.create_with(json!({ "env": { "PATH": path } })).await;
    client.attach(&session).await;
    client.turn(&session, "go").await;
    let id = child(&client, &session).await["session"].as_str().unwrap().to_owned();
    let merging = client.send("session/merge", json!({ "session": id })).await.unwrap();
    let reached = PathBuf::from(format!("{}.reached", gate.display()));
    assert!(comes_true(linger_tests::TIMEOUT, || reached.exists()), "git is at the gate");
    // Only the merge waits for git.
    let idle = client.refused("session/cancel", json!({ "session": session })).await;
    assert!(idle.message.ends_with("has no running turn"), "{}", idle.message);
    let busy = client.refused("session/undo", json!({ "session": session })).await;
    assert_eq!(busy.message, format!("git is at work for session {session}"));
    client.prompt(&session, "and now?").await;
    let other = daemon.client().await;
    other.attach(&session).await;
    other.first(&session, "caught_up").await;
    assert_ne!(child(&client, &session).await["delegated"]["worktree"]["status"], "merged");
    assert_eq!(other.transcript().of("turn_started").count(), 1, "no turn begins meanwhile");
    std::fs::write(&gate, "go\n").unwrap();
    assert!(client.answer(merging).await.unwrap().is_ok());
    client.nth(&session, "turn_finished", 2).await;
    let kinds = client.transcript();
    let order: Vec<&str> =
        kinds.kinds(&session).into_iter().filter(|kind| ["merged", "turn_started"].contains(kind)).collect();
    assert_eq!(order, ["turn_started", "merged", "turn_started"]);
    daemon.check(&[&client, &other], &model);
}
