//! A process that swaps a directory with a link while file tools run: no file outside is changed or shown. The tests are bounded
//! by the number of calls, and a thread swaps as fast as it can.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use linger_protocol::message::text_of;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use tokio::sync::mpsc;

use super::*;
use crate::tool::tests::test_context;
use crate::tool::{Context, ToolOutput, builtin};

/// The calls of a test that change or read; the fault was seen in one of ten.
const WRITES: usize = 10_000;
const READS: usize = 300;

/// More calls than a busy machine needs for one that gets through.
const CALLS_MAX: usize = 100_000;

/// `w` is the workspace, `w/d` a directory in it; `w/l` is a link to `link`, and changes place with `w/d` all the time.
struct Swapped {
    _dir: tempfile::TempDir,
    base: PathBuf,
    workspace: Workspace,
}

impl Swapped {
    fn new(link: &str) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let base = dir.path().canonicalize().unwrap();
        for name in ["w/d", "w/secret", "out"] {
            std::fs::create_dir_all(base.join(name)).unwrap();
        }
        for (name, text) in [("w/d/x", "plain"), ("w/secret/x", "hidden"), ("out/x", "hidden")] {
            std::fs::write(base.join(name), text).unwrap();
        }
        symlink(base.join(link), base.join("w/l")).unwrap();
        let root = base.join("w");
        let workspace = Workspace {
            root: root.clone(),
            is_seen: true,
            bound_by: None,
            added: Default::default(),
            cwd: root,
            env: Default::default(),
            secrets: Default::default(),
            seen: Default::default(),
            skills: Default::default(),
            notes: Default::default(),
            timeout_s: 1,
        };
        Self { _dir: dir, base, workspace }
    }

    /// Runs at least `calls` calls as a turn does: permitted by mode and rules, and then run; more of them until one meets the
    /// directory in its place and `gets_through`, which is rare on a busy machine. What each gave, if it was permitted.
    fn run(
        &self,
        tool: &str,
        input: impl Fn(usize) -> Value,
        deny: &[&str],
        calls: usize,
        gets_through: impl Fn(&ToolOutput) -> bool,
    ) -> Vec<ToolOutput> {
        let mut tools = builtin();
        tools.push(std::sync::Arc::new(crate::tool::apply_patch::ApplyPatch));
        let tool = tools.iter().find(|known| known.name() == tool).unwrap();
        let names = tools.iter().map(|tool| (tool.name(), tool.pattern())).collect();
        let deny = deny.iter().map(|rule| Rule::parse(rule, &names).unwrap()).collect();
        let rules = Rules { deny, ..Rules::default() };
        let one = |n: usize| {
            let call = tool.prepare(&input(n), &self.workspace).unwrap();
            let info = CallInfo { tool: tool.name(), changes: tool.changes(), access: call.effects().access };
            let resolved = ResolvedAccess::of(&info.access, &self.workspace, &rules);
            if !matches!(decide(&rules, &[], Mode::Edit, &info, &resolved), Verdict::Allow { .. }) {
                return None;
            }
            let hides = hides(&rules, tool.name(), info.access.path().unwrap(), &self.workspace);
            let context = Context {
                targets: resolved.targets(&info.access),
                hidden: std::sync::Arc::new(hides),
                ..test_context(&self.workspace, mpsc::channel(1).0)
            };
            Some(runtime().block_on(call.run(context)))
        };
        let (from, to, ends) = (self.base.join("w/d"), self.base.join("w/l"), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    renameat_with(CWD, &from, CWD, &to, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let (mut done, mut got_through) = (Vec::new(), false);
            for n in 0..CALLS_MAX {
                if n >= calls && got_through {
                    break;
                }
                let output = one(n);
                got_through |= output.as_ref().is_some_and(&gets_through);
                done.extend(output);
            }
            ends.store(true, Ordering::Relaxed);
            assert!(got_through, "none of {} calls of {} got through", done.len(), tool.name());
            done
        })
    }

    fn count(&self, dir: &str) -> usize {
        std::fs::read_dir(self.base.join(dir)).unwrap().count()
    }
}

fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: std::sync::LazyLock<tokio::runtime::Runtime> =
        std::sync::LazyLock::new(|| tokio::runtime::Builder::new_current_thread().build().unwrap());
    &RUNTIME
}

#[test]
fn no_write_leaves_the_workspace() {
    let swapped = Swapped::new("out");
    swapped.run("write", |n| json!({"path": format!("d/new{n}"), "content": "x"}), &[], WRITES, |it| !it.is_error);
    assert_eq!(swapped.count("out"), 1);
}

#[test]
fn no_edit_and_no_new_directory_leaves_the_workspace() {
    let swapped = Swapped::new("out");
    // There and back, so that each finds what the one before it wrote.
    let words = ["plain", "plane", "plain"];
    let edit = |n: usize| json!({"path": "d/x", "old": words[n % 2], "new": words[n % 2 + 1]});
    swapped.run("edit", edit, &[], READS, |_| true);
    assert_eq!(std::fs::read_to_string(swapped.base.join("out/x")).unwrap(), "hidden");
    let patch =
        |n: usize| json!({"input": format!("*** Begin Patch\n*** Add File: d/patched{n}/y\n+x\n*** End Patch")});
    swapped.run("apply_patch", patch, &[], READS, |it| !it.is_error);
    let deep = |n: usize| json!({"path": format!("d/new{n}/y"), "content": "x"});
    swapped.run("write", deep, &[], READS, |it| !it.is_error);
    assert_eq!(swapped.count("out"), 1);
}

#[test]
fn no_read_passes_a_rule_or_leaves_the_workspace() {
    for link in ["out", "w/secret"] {
        let swapped = Swapped::new(link);
        for (tool, input) in [
            ("read", json!({"path": "d/x"})),
            ("grep", json!({"pattern": "e|i", "path": "d"})),
            ("grep", json!({"pattern": "e|i", "path": "d/x"})),
            ("grep", json!({"pattern": "e|i", "path": "."})),
        ] {
            let shows = |text: &'static str| move |output: &ToolOutput| text_of(&output.content).contains(text);
            let done = swapped.run(tool, |_| input.clone(), &["read(secret/**)"], READS, shows("plain"));
            assert!(!done.iter().any(shows("hidden")), "{tool} {input} showed what {link} has");
        }
    }
}

#[test]
fn no_list_shows_what_is_outside() {
    let swapped = Swapped::new("out");
    std::fs::write(swapped.base.join("out/outside"), "").unwrap();
    for (tool, input) in [("ls", json!({"path": "d"})), ("glob", json!({"pattern": "**", "path": "."}))] {
        let done = swapped.run(tool, |_| input.clone(), &[], READS, |it| text_of(&it.content).contains('x'));
        assert!(!done.iter().any(|output| text_of(&output.content).contains("outside")), "{tool} showed a name");
    }
}
