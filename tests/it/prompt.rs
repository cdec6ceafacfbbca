//! The line that is being typed: files that it names, completion, pastes, lists to choose from, the user's own commands, history.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use linger_tests::harness::{Daemon, Pty, Setup, programs};
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

const CTRL_U: &str = "\x15";
const ESC: &str = "\x1b";
const UP: &str = "\x1b[A";
const DOWN: &str = "\x1b[B";

async fn open(daemon: &Daemon) -> Pty {
    let mut terminal = daemon.pty(&[]);
    terminal.resize(40, 100);
    terminal.prompts().await;
    terminal
}

/// `linger` with more in its environment.
async fn open_with(daemon: &Daemon, variables: &[(&str, &str)]) -> Pty {
    let more = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let env: Vec<_> = daemon.env(true).into_iter().chain(more).collect();
    let terminal = Pty::open(&programs().client, &env, &daemon.workspace(), &[]);
    terminal.prompts().await;
    terminal
}

/// A pasted text, as a terminal sends it.
fn pasted(text: &str) -> String {
    format!("\x1b[200~{text}\x1b[201~")
}

async fn ends(terminal: &Pty, last: &[&str]) {
    let all = |rows: &[String]| rows.len() >= last.len() && rows[rows.len() - last.len()..] == *last;
    terminal.until_rows(&format!("the screen ends in {last:#?}"), all).await;
}

async fn has(terminal: &Pty, row: &str) {
    terminal.until_rows(&format!("a row '{row}'"), |rows| rows.iter().any(|it| it == row)).await;
}

#[tokio::test]
async fn a_file_that_a_line_names_goes_with_it_and_people_see_its_name_alone() {
    let model = ModelServer::scripted(|_| Reply::text("seen"));
    let daemon = Daemon::start(&model).await;
    fs::create_dir(daemon.workspace().join("src")).unwrap();
    fs::write(daemon.workspace().join("src/main.rs"), "fn main() {\n    run();\n}\n").unwrap();
    let lines = "[file src/main.rs, lines 2 to 3 of 3]\n2\t    run();\n3\t}\n";
    let mut terminal = open(&daemon).await;
    terminal.line("review @src/main.rs:2-3, please");
    has(&terminal, "with file src/main.rs, lines 2 to 3 of 3").await;
    has(&terminal, "  seen").await;
    assert_eq!(model.requests()[0].last_words(), lines);
    terminal.line("and @src/gone.rs of @user");
    terminal.shows_times("seen", 2).await;
    assert_eq!(model.requests()[1].last_words(), "and @src/gone.rs of @user");
    has(&terminal, "@src/gone.rs: no such file, sent as plain text").await;
    assert!(!terminal.screen().contains("@user names no file"), "{}", terminal.screen());
    fs::write(daemon.workspace().join("a.out"), b"\x7fELF\0").unwrap();
    terminal.line("what is @a.out?");
    terminal.shows("a.out is binary").await;
    assert_eq!(terminal.leaves().await, 0);
    // In another terminal, and in the log, the words and the name.
    let session =
        daemon.client().await.call("session/list", json!({})).await[0]["session"].as_str().unwrap().to_owned();
    let log = daemon.cli(&["log", &session]).run().await.exits(0).stdout;
    assert!(log.contains("> review @src/main.rs:2-3, please\n  with file src/main.rs, lines 2 to 3 of 3\n"), "{log}");
    assert!(!log.contains("run();"), "{log}");
    // On the command line as well.
    let run = daemon.cli(&["run", "review @src/main.rs:2-3"]).cwd(daemon.workspace()).run().await;
    assert_eq!(run.exits(0).stdout, "seen\n");
    assert_eq!(model.requests().last().unwrap().last_words(), lines);
    assert_eq!(model.requests().len(), 3);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn tab_lists_above_the_line_and_goes_through_the_list_and_the_next_key_takes_it_away() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    for file in ["src/main.rs", "src/model.rs", "makefile", "target/main.rs"] {
        let path = daemon.workspace().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    fs::create_dir_all(daemon.workspace().join(".git")).unwrap();
    fs::write(daemon.workspace().join(".gitignore"), "target\n").unwrap();
    let mut terminal = open(&daemon).await;
    terminal.keys("/mod\t");
    let rows = ["  /mode   set what runs without asking", "  /model  change the model; alone: choose", "> /mode"];
    ends(&terminal, &rows).await;
    terminal.keys("\t\t");
    ends(&terminal, &[rows[0], " ▸/model  change the model; alone: choose", "> /model"]).await;
    terminal.keys(" ");
    terminal.until_rows("the list is gone", |rows| !rows.iter().any(|row| row.contains("change the model"))).await;
    terminal.keys(CTRL_U);
    terminal.keys("/mode pl\t");
    ends(&terminal, &["> /mode plan"]).await;
    // Files: those that begin so, then those that have the letters; what git ignores is left out.
    terminal.keys(CTRL_U);
    terminal.keys("see @ma\t");
    ends(&terminal, &["> see @makefile"]).await;
    terminal.keys(CTRL_U);
    terminal.keys("see @mo\t");
    ends(&terminal, &["> see @src/model.rs"]).await;
    terminal.keys(CTRL_U);
    terminal.keys("see @sr\t");
    ends(&terminal, &["> see @src/"]).await;
    terminal.keys("\t");
    ends(&terminal, &["  src/main.rs    src/model.rs", "> see @src/m"]).await;
    terminal.keys(CTRL_U);
    assert_eq!(terminal.leaves().await, 0);
    assert!(model.requests().is_empty());
    daemon.check(&[], &model);
}

#[tokio::test]
async fn tab_goes_through_the_resources_of_a_server_and_the_one_that_a_line_names_goes_with_it() {
    let model = ModelServer::scripted(|_| Reply::text("seen"));
    let config = crate::shared::mcp::server(&[], "");
    let daemon = Daemon::start_with(&model, Setup { config, ..Setup::default() }).await;
    let mut terminal = open(&daemon).await;
    terminal.keys("see @s\t");
    ends(&terminal, &["> see @s:"]).await;
    terminal.keys("\t");
    terminal
        .until_rows("the resources are listed", |rows| {
            rows.last().is_some_and(|row| row == "> see @s:note:///")
                && rows.iter().any(|row| row.contains("The first note."))
        })
        .await;
    terminal.keys("o\t");
    ends(&terminal, &["> see @s:note:///one"]).await;
    terminal.line(" please");
    has(&terminal, "  seen").await;
    assert!(model.requests()[0].messages().contains("the text of note one"), "{}", model.requests()[0].messages());
    // What the server does not have is said, and the line can be mended.
    terminal.prompts().await;
    terminal.line("see @s:note:///two");
    terminal.shows("no such note").await;
    assert_eq!(terminal.leaves().await, 0);
    assert_eq!(model.requests().len(), 1);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_paste_is_one_prompt_and_shown_short_and_runs_nothing() {
    let model = ModelServer::scripted(|_| Reply::text("seen"));
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon).await;
    let text: String = (1..=42).map(|n| format!("line\t{n} 漢字\r")).collect();
    terminal.keys(&format!("fix {}", pasted(&text)));
    ends(&terminal, &["> fix [42 lines pasted]"]).await;
    terminal.keys("\x7f");
    ends(&terminal, &["> fix"]).await;
    terminal.line(&format!("{}now", pasted(&text)));
    has(&terminal, "  seen").await;
    let sent = model.requests()[0].last_words();
    assert_eq!(sent, format!("fix {}now", text.replace('\r', "\n")));
    terminal.prompts().await;
    terminal.keys(&pasted("one\rtwo"));
    ends(&terminal, &["> one", "  two"].map(|row| if row == "  two" { "two" } else { row })).await;
    terminal.keys("\x03");
    ends(&terminal, &[">"]).await;
    terminal.line(&pasted("!touch ran"));
    terminal.shows("a ! command must be typed as one line").await;
    assert!(!daemon.workspace().join("ran").exists());
    assert_eq!(terminal.leaves().await, 0);
    assert_eq!(model.requests().len(), 1);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_command_of_the_users_own_runs_in_a_terminal_and_its_output_goes_with_the_next_prompt() {
    let model = ModelServer::scripted(|_| Reply::text("seen"));
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon).await;
    terminal.line(
        "!test -t 0 && test -t 1 && echo re''ady && read x && printf '\\033[31mgot-%s\\033[0m\\n' \"$x\"; pwd; exit 3",
    );
    terminal.shows("ready").await;
    // What is typed is the command's.
    terminal.line("a word");
    terminal.shows("got-a word").await;
    has(&terminal, "exit code 3; its output will be sent with your next prompt").await;
    assert!(model.requests().is_empty());
    terminal.prompts().await;
    terminal.line("why?");
    has(&terminal, "  seen").await;
    let sent = model.requests()[0].last_words();
    assert!(sent.starts_with("[output of `test -t 0"), "{sent}");
    assert!(sent.contains("which the user ran, exit code 3]\n") && sent.contains("got-a word\n"), "{sent}");
    assert!(sent.ends_with(&format!("{}\n", daemon.workspace().display())) && !sent.contains('\x1b'), "{sent}");
    terminal.prompts().await;
    terminal.line("and then?");
    terminal.shows_times("seen", 2).await;
    assert_eq!(model.requests()[1].last_words(), "and then?");
    // Ctrl-C ends the command alone.
    terminal.prompts().await;
    terminal.line("!echo beg''un; sleep 1000");
    terminal.shows("begun").await;
    terminal.keys("\x03");
    has(&terminal, "exit code 130; its output will be sent with your next prompt").await;
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn history_is_the_workspaces_and_the_users_alone_and_has_no_keys() {
    let model = ModelServer::scripted(|_| Reply::text("seen"));
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon).await;
    terminal.keys("first\\\rhalf");
    ends(&terminal, &["> first\\", "half"]).await;
    terminal.line("");
    has(&terminal, "  seen").await;
    terminal.prompts().await;
    terminal.line("use sk-ant-0123456789abcdef0123 for it");
    terminal.shows_times("seen", 2).await;
    assert_eq!(terminal.leaves().await, 0);
    assert_eq!(model.requests()[0].last_words(), "first\nhalf");
    let state = daemon.workspace().parent().unwrap().join("s/linger");
    let mut files = fs::read_dir(state).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|path| path.file_name().unwrap().to_string_lossy().starts_with("history-")).unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(&file).unwrap().contains("sk-ant"));
    let mut again = open(&daemon).await;
    again.keys(UP);
    ends(&again, &["> first\\", "half"]).await;
    again.keys("\x03");
    assert_eq!(again.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn another_session_is_chosen_from_a_list_that_letters_narrow() {
    let model = ModelServer::scripted(|_| Reply::text("seen"));
    let daemon = Daemon::start(&model).await;
    for name in ["alpha", "beta"] {
        daemon.cli(&["new", "--name", name]).cwd(daemon.workspace()).run().await.exits(0);
    }
    let mut terminal = daemon.pty(&["attach", "alpha"]);
    terminal.resize(40, 100);
    terminal.prompts().await;
    terminal.line("/resume");
    terminal.until_rows("the list", |rows| rows.last().is_some_and(|row| row == "session>")).await;
    terminal.keys("bt");
    terminal.until_rows("one fits", |rows| rows[rows.len() - 2].starts_with(" ▸beta")).await;
    terminal.keys("\r");
    terminal.until_rows("it is entered", |rows| rows.iter().any(|row| row.starts_with("session beta in "))).await;
    terminal.line("hello");
    has(&terminal, "  seen").await;
    terminal.line("/rename gamma");
    has(&terminal, "name: gamma").await;
    // A fresh one, and back by name; Esc leaves a list.
    terminal.line("/new");
    terminal.until_rows("a fresh one", |rows| rows.iter().filter(|row| row.starts_with("session ")).count() == 3).await;
    terminal.line("/resume gamma");
    terminal.until_rows("the last turn", |rows| rows.iter().filter(|row| *row == "  seen").count() == 2).await;
    // As where one attaches: what it is, and how old.
    has(&terminal, "gamma hello (0 s ago)").await;
    terminal.prompts().await;
    terminal.line("/resume");
    terminal.until_rows("the list", |rows| rows.last().is_some_and(|row| row == "session>")).await;
    // In no name, id or directory.
    terminal.keys("==");
    ends(&terminal, &["  nothing fits", "session> =="]).await;
    terminal.keys(CTRL_U);
    terminal.until_rows("the list", |rows| rows[rows.len() - 2].starts_with("  ")).await;
    terminal.keys(&format!("{DOWN}{ESC}"));
    has(&terminal, "nothing was selected").await;
    assert_eq!(terminal.leaves().await, 0);
    // Without a cursor to move there are numbers.
    let mut dumb = daemon.pty_on("dumb", &["attach", "alpha"]);
    dumb.prompts().await;
    dumb.line("/resume");
    dumb.shows("type a number or a name").await;
    dumb.line("gamma");
    // What happened there comes before the prompt.
    dumb.until_rows(
        "it is entered",
        |rows| matches!(rows, [.., entered, prompt] if entered.starts_with("session gamma in ") && prompt == ">"),
    )
    .await;
    assert!(dumb.text().contains("gamma hello ("));
    assert_eq!(dumb.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn each_command_shows_what_its_subcommand_shows() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    fs::write(daemon.workspace().join("f.txt"), "one\ntwo\n").unwrap();
    let edit = json!({ "path": "f.txt", "old": "two", "new": "TWO" });
    model.push([Reply::tool("read", json!({ "path": "f.txt" })), Reply::tool("edit", edit), Reply::text("all done")]);
    model.push([Reply::text("it is made")]);
    let mut terminal = open_with(&daemon, &[("PAGER", "cat")]).await;
    terminal.line("go");
    has(&terminal, "  all done").await;
    for (line, shows) in [
        ("/status", "directory"),
        ("/usage", "3 answers"),
        ("/tools", "built in"),
        ("/inbox", "no questions"),
        ("/diff", "changed  f.txt  +1 -1"),
        ("/log --last", "> go"),
        ("/log --nosuch", "Usage: linger log "),
        ("/thinking hide", "thinking: hide"),
        ("!", "type a command after the !"),
        ("/sessions", "SESSION     STATE"),
        ("/export out.md", "written to"),
        ("/permissions", ""),
        ("/help mode", "/mode [ask|edit|auto|plan]  set what runs without asking"),
        ("/init", "it is made"),
    ] {
        terminal.prompts().await;
        terminal.line(line);
        terminal.shows(shows).await;
    }
    terminal.prompts().await;
    assert!(fs::read_to_string(daemon.workspace().join("out.md")).unwrap().contains("## Prompt\n\ngo"));
    assert!(model.requests()[3].last_words().contains("AGENTS.md"));
    terminal.line("/export out.md");
    terminal.shows("File exists").await;
    terminal.prompts().await;
    terminal.line("/quit");
    assert_eq!(terminal.exits().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn the_line_goes_on_in_the_users_editor_and_in_vi_mode_if_that_is_configured() {
    let model = ModelServer::scripted(|_| Reply::text("seen"));
    let daemon = Daemon::start(&model).await;
    let inputrc = daemon.workspace().join("inputrc");
    fs::write(&inputrc, "set bell-style none\nset editing-mode vi\n").unwrap();
    let editor = daemon.workspace().join("editor.sh");
    fs::write(&editor, "#!/bin/sh\necho 'and more' >>\"$1\"\n").unwrap();
    fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
    let (inputrc, editor) = (inputrc.display().to_string(), editor.display().to_string());
    let mut terminal = open_with(&daemon, &[("INPUTRC", &inputrc), ("EDITOR", &editor), ("VISUAL", "")]).await;
    terminal.keys("abcx");
    ends(&terminal, &["> abcx"]).await;
    terminal.keys(ESC);
    // Esc is a key of its own once nothing follows it for a while: the cursor then stands on the last letter.
    terminal.until_column("> abc".len()).await;
    terminal.keys("x");
    ends(&terminal, &["> abc"]).await;
    terminal.keys("A\x18\x05");
    ends(&terminal, &["> abc", "and more"]).await;
    terminal.line("");
    has(&terminal, "  seen").await;
    assert_eq!(model.requests()[0].last_words(), "abc\nand more");
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn coming_back_to_a_long_log_shows_a_screenful_of_its_last_turn() {
    let long = "some words in a line\n".repeat(120_000);
    let model = ModelServer::with([Reply::text(long.clone()), Reply::text(long)]);
    let daemon = Daemon::start(&model).await;
    for name in ["long", "other"] {
        daemon.cli(&["new", "--name", name]).cwd(daemon.workspace()).run().await.exits(0);
    }
    for prompt in ["one", "two"] {
        daemon.cli(&["run", "-s", "long", prompt]).run().await.exits(0);
    }
    let past = ["earlier turns: /log", "> two", " more lines"];
    let mut attached = daemon.pty(&["attach", "long"]);
    attached.prompts().await;
    let mut resumed = daemon.pty(&["attach", "other"]);
    resumed.prompts().await;
    resumed.line("/resume long");
    resumed.until_rows("it is entered", |rows| rows.iter().any(|row| row.starts_with("session long in "))).await;
    for terminal in [&attached, &resumed] {
        assert!(past.iter().all(|part| terminal.text().contains(part)), "{}", terminal.text());
        assert!(terminal.bytes().len() < 20_000, "all of it was shown");
    }
    assert_eq!((attached.leaves().await, resumed.leaves().await), (0, 0));
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_new_session_with_agents_says_nothing_of_requests_that_change() {
    let model = ModelServer::scripted(|_| Reply::text("fine"));
    let daemon = Daemon::start(&model).await;
    let agents = daemon.workspace().join(".linger/agents");
    fs::create_dir_all(&agents).unwrap();
    fs::write(agents.join("reviewer.md"), "---\ndescription: reads changes\n---\nReview.\n").unwrap();
    daemon.cli(&["trust", "--yes"]).cwd(daemon.workspace()).run().await.exits(0);
    let mut terminal = daemon.pty(&["-n", "hello"]);
    has(&terminal, "  fine").await;
    terminal.line("/new");
    terminal.until_rows("a fresh one", |rows| rows.iter().filter(|row| row.starts_with("session ")).count() == 2).await;
    terminal.line("hello again");
    terminal.until_rows("it answers", |rows| rows.iter().filter(|row| *row == "  fine").count() == 2).await;
    assert!(!terminal.text().contains("cache starts over"), "{}", terminal.text());
    assert_eq!(terminal.leaves().await, 0);
    let mut run = daemon.pty(&["run", "hello"]);
    run.shows("fine").await;
    assert_eq!(run.exits().await, 0);
    assert!(!run.text().contains("cache starts over"), "{}", run.text());
    daemon.check(&[], &model);
}
