//! The plugins of `contrib` in the real editors, without a screen: attach, a prompt with a selection, a question with its
//! difference, a jump to what was changed, while the daemon is killed. The scripts are in `editors/`.

use std::path::{Path, PathBuf};

use linger_tests::TIMEOUT;
use linger_tests::harness::{Cli, Daemon, programs};
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

/// Where a program is on this machine; nothing where it is not, which is said.
fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.exists());
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "{name} is not installed: see tests/README.md");
    if found.is_none() {
        eprintln!("not run: {name} is not installed; tests/README.md says which packages have the editors");
    }
    found
}

fn house(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// Runs an editor with these arguments, with a script that does what a user does.
async fn edits(name: &str, args: &[&str]) {
    let Some(editor) = installed(name) else { return };
    // No editor may take this for what it does: a title, a change of direction, settings.
    let hostile = "I look.\u{1b}]0;x\u{7}\u{202e}\n# vim: set shiftwidth=7:";
    let model = ModelServer::with([
        Reply::new().text_in_deltas("begun", 2).stall(),
        Reply::text(hostile).and_tool("read", json!({ "path": "note.txt" })),
        Reply::tool("edit", json!({ "path": "note.txt", "old": "old", "new": "new" })),
        Reply::text("Changed."),
        Reply::new().text_in_deltas("cancel me", 2).stall(),
    ]);
    let daemon = Daemon::start(&model).await;
    std::fs::write(daemon.workspace().join("note.txt"), "one\nold\nthree\n").unwrap();
    let output = daemon.dirs.root().join("output");
    let cli = Cli::new(&editor, daemon.env(true), daemon.workspace(), args)
        .env("LINGER_PROGRAM", programs().client.to_str().unwrap())
        .env("LINGER_OUTPUT", output.to_str().unwrap())
        .env("LINGER_TIMEOUT", &(TIMEOUT / 2).as_millis().to_string());
    let ended = cli.run().await;
    let said = std::fs::read_to_string(&output).unwrap_or_default();
    assert!(said.contains("all is well"), "{said}\n{ended:?}");
    // The prompt had the selection.
    let asked = model.requests()[0].messages().to_string();
    assert!(asked.contains("note.txt:2-2") && asked.contains("old") && !asked.contains("three"), "{asked}");
    assert_eq!(std::fs::read_to_string(daemon.workspace().join("note.txt")).unwrap(), "one\nnew\nthree\n");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn neovim_shows_a_session_answers_its_question_and_jumps_to_the_change() {
    let (plugin, script) = (format!("set runtimepath^={}", house("contrib/nvim")), house("tests/editors/nvim.lua"));
    let run = format!("luafile {script}");
    edits("nvim", &["--headless", "-u", "NORC", "-i", "NONE", "-n", "--cmd", &plugin, "-c", &run]).await;
}

#[tokio::test]
async fn vim_shows_a_session_answers_its_question_and_jumps_to_the_change() {
    let (plugin, script) =
        (format!("set nocompatible runtimepath^={}", house("contrib/vim")), house("tests/editors/vim.vim"));
    // Without a terminal: as with `-e -s`, and the plugin loaded.
    edits("vim", &["-e", "-s", "-u", "NORC", "-i", "NONE", "-n", "--cmd", &plugin, "-S", &script]).await;
}

#[tokio::test]
async fn emacs_shows_a_session_answers_its_question_and_jumps_to_the_change() {
    let (plugin, script) = (house("contrib/emacs"), house("tests/editors/emacs.el"));
    edits("emacs", &["--batch", "-Q", "-L", &plugin, "-l", &script]).await;
}
