//! Which commands run unasked, and which ask: each with the disk of a small workspace.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use std::sync::Arc;

use super::*;
use crate::question::permission::tests::House;
use crate::question::permission::{Mode, ResolvedAccess, Verdict, decide};

/// A workspace `proj` with a repository, a file outside, and links to it.
fn house() -> House {
    let mut house = crate::question::permission::tests::house();
    let at = |path: &str| house.path(path);
    fs::remove_dir_all(at("proj/.git")).unwrap();
    for file in ["proj/a b", "proj/x", "proj/y.rs", "proj/-n", "proj/src/main.rs", "proj/docs/d.md", "home/secret"] {
        fs::create_dir_all(at(file).parent().unwrap()).unwrap();
        fs::write(at(file), "text\n").unwrap();
    }
    symlink(at("home"), at("proj/hout")).unwrap();
    symlink(at("home/secret"), at("proj/fout")).unwrap();
    symlink(at("proj/src"), at("proj/inner")).unwrap();
    symlink(at("home/secret"), at("proj/-l")).unwrap();
    let git = |args: &[&str]| {
        #[expect(clippy::disallowed_methods, reason = "a test, which runs git itself")]
        let status = Command::new("git").args(args).current_dir(at("proj")).output().unwrap().status;
        assert!(status.success(), "{args:?}");
    };
    git(&["init", "-q"]);
    git(&["add", "x", "src"]);
    git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]);
    house.workspace.env = Arc::new(BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]));
    house.workspace.cwd = house.workspace.root.clone();
    house
}

fn verdict(house: &House, rules: [&[&str]; 3], ask_reads: bool, mode: Mode, line: &str) -> Verdict {
    let rules = Rules { ask_reads, ..house.rules(rules) };
    let call = CallInfo { tool: "bash", changes: true, access: Access::Command(line.to_owned()) };
    decide(&rules, &[], mode, &call, &ResolvedAccess::of(&call.access, &house.workspace, &rules))
}

fn runs(house: &House, line: &str) -> bool {
    matches!(verdict(house, [&[], &[], &[]], false, Mode::Ask, line), Verdict::Allow { .. })
}

/// Commands that run, one a line.
const RUNS: &str = include_str!("runs.txt");

/// Commands that ask, one a line; `\n`, `\t` and `\r` stand for these characters.
const ASKS: &str = include_str!("asks.txt");

fn lines(text: &'static str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| line.replace("␊", "\n").replace("␉", "\t").replace("␍", "\r"))
}

/// Commands whose programs are not on every machine.
fn is_installed(line: &str) -> bool {
    let has = |name: &str| ["/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(name).exists());
    !line.split_whitespace().any(|word| ["rg", "which"].contains(&word) && !has(word))
}

#[test]
fn commands_that_only_read_inside_the_workspace_run_unasked() {
    let house = house();
    let mut count = 0;
    for line in lines(RUNS).filter(|line| is_installed(line)) {
        let verdict = verdict(&house, [&[], &[], &[]], false, Mode::Ask, &line);
        assert!(matches!(verdict, Verdict::Allow { .. }), "{line:?}");
        count += 1;
    }
    assert!(lines(RUNS).count() >= 100 && count > 80, "{count}");
}

#[test]
fn every_other_command_asks() {
    let house = house();
    let through: Vec<String> = lines(ASKS).filter(|line| runs(&house, line)).collect();
    assert!(through.is_empty(), "{through:#?}");
    assert!(lines(ASKS).count() >= 300, "{}", lines(ASKS).count());
}

#[test]
fn they_run_in_all_modes_and_ask_reads_and_rules_come_first() {
    let house = house();
    let decided = |rules, ask_reads, mode, line: &str| match verdict(&house, rules, ask_reads, mode, line) {
        Verdict::Allow { by } => by,
        Verdict::Ask { rule, .. } => format!("ask {}", rule.unwrap_or_default()),
        Verdict::Deny { rule, .. } => format!("deny {}", rule.unwrap_or_default()),
    };
    let none: [&[&str]; 3] = [&[], &[], &[]];
    for mode in [Mode::Ask, Mode::Edit, Mode::Plan] {
        let by = decided(none, false, mode, "cat x | sort | head -1");
        assert_eq!(by, format!("mode {mode}, which lets these read: cat, sort, head"));
        assert_eq!(decided(none, true, mode, "cat x"), "ask ");
        // What plan has always refused, it refuses.
        assert_eq!(decided(none, false, mode, "touch x"), if mode == Mode::Plan { "deny " } else { "ask " });
        assert_eq!(decided([&["bash(cat:*)"], &[], &[]], false, mode, "ls && cat x"), "deny bash(cat:*)");
        assert_eq!(decided([&[], &["bash(cat:*)"], &[]], false, mode, "ls && cat x"), "ask bash(cat:*)");
        assert_eq!(decided([&["bash"], &[], &[]], false, mode, "ls"), "deny bash");
    }
    // Plan takes the ones with options that it knew, and these.
    assert!(decided(none, false, Mode::Plan, "sed -n 1,5p x").starts_with("mode plan"));
    assert!(decided(none, false, Mode::Plan, "git status -s").starts_with("mode plan"));
}

#[test]
fn a_rule_hides_files_from_commands_and_trees_with_hidden_files_ask() {
    let house = house();
    let runs = |deny: &[&str], line: &str| {
        matches!(verdict(&house, [deny, &[], &[]], false, Mode::Ask, line), Verdict::Allow { .. })
            && matches!(verdict(&house, [&[], deny, &[]], false, Mode::Ask, line), Verdict::Allow { .. })
    };
    for (rule, line) in [
        ("read(src/main.rs)", "cat src/main.rs"),
        ("read(src/main.rs)", "cat inner/main.rs"),
        ("read(src/main.rs)", "head ./src/../src/main.rs"),
        ("read(src/main.rs)", "cd src && cat main.rs"),
        ("read(src/**)", "tail -3 src/main.rs"),
        ("read(src)", "ls src"),
        ("grep(src)", "grep text src/main.rs"),
        ("read(src/main.rs)", "grep -r text ."),
        ("read(src/main.rs)", "grep -r text src"),
        ("read(src/main.rs)", "find ."),
        ("read(src/main.rs)", "du -sh"),
        ("read(src/main.rs)", "ls -R src"),
        ("read(**/.env)", "find docs -name '*.md'"),
        ("read(**/.env)", "grep -rn text docs"),
        ("read(*.pem)", "find ."),
        ("read", "cat x"),
        ("read(**)", "ls"),
        ("read(src/main.rs)", "git diff"),
        ("read(src/main.rs)", "git show"),
        ("read(src/main.rs)", "git blame src/main.rs"),
    ] {
        assert!(!runs(&[rule], line), "{rule}: {line}");
    }
    for (rule, line) in [
        ("read(src/main.rs)", "cat x"),
        ("read(src/main.rs)", "find docs"),
        ("read(src/**)", "grep -rn text docs"),
        ("read(~/.ssh)", "du -sh ."),
        ("read(**/.env)", "cat x"),
        ("read(**/.env)", "git status"),
    ] {
        assert!(runs(&[rule], line), "{rule}: {line}");
    }
}

#[test]
fn a_file_that_is_called_like_standard_input_is_a_file() {
    let house = house();
    assert!(runs(&house, "cat -") && runs(&house, "cat x | grep text -"));
    symlink(house.path("home/secret"), house.path("proj/-")).unwrap();
    for line in ["cat -", "cat < -", "ls -", "ls -R -", "grep text -", "head -- -"] {
        assert!(!runs(&house, line), "{line}");
    }
}

#[test]
fn variables_and_programs_that_steer_them_make_them_ask() {
    let mut house = house();
    let usual = house.workspace.env.clone();
    for name in [
        "BASH_ENV",
        "ENV",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "GIT_DIR",
        "GIT_CONFIG_GLOBAL",
        "GIT_EXTERNAL_DIFF",
        "GREP_OPTIONS",
        "RIPGREP_CONFIG_PATH",
        "POSIXLY_CORRECT",
        "BASH_FUNC_cat%%",
        "CDPATH",
        "LESSOPEN",
        "SHELLOPTS",
        "GLOBIGNORE",
    ] {
        let mut env = BTreeMap::clone(&usual);
        env.insert(name.to_owned(), "x".to_owned());
        house.workspace.env = Arc::new(env);
        assert!(!runs(&house, "cat x"), "{name}");
    }
    // A program of the workspace, one that everybody may replace, and a relative directory.
    let bin = house.path("proj/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join("cat"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(bin.join("cat"), fs::Permissions::from_mode(0o755)).unwrap();
    let shell = house.path("proj/shell");
    fs::create_dir_all(&shell).unwrap();
    fs::write(shell.join("bash"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(shell.join("bash"), fs::Permissions::from_mode(0o755)).unwrap();
    let all_in_one = house.path("home/box");
    fs::create_dir_all(&all_in_one).unwrap();
    fs::write(all_in_one.join("busybox"), "").unwrap();
    fs::set_permissions(all_in_one.join("busybox"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("busybox", all_in_one.join("cat")).unwrap();
    for path in [
        format!("{}:/usr/bin:/bin", shell.display()),
        format!("{}:/usr/bin:/bin", all_in_one.display()),
        format!("{}:/usr/bin:/bin", bin.display()),
        "bin:/usr/bin:/bin".to_owned(),
        ":/usr/bin".to_owned(),
        String::new(),
    ] {
        house.workspace.env = Arc::new(BTreeMap::from([("PATH".to_owned(), path.clone())]));
        assert!(!runs(&house, "cat x"), "{path}");
    }
    house.workspace.env = usual;
    assert!(runs(&house, "cat x"));
}

#[test]
fn git_asks_where_the_repository_names_a_program_or_leads_elsewhere() {
    let house = house();
    let git = house.path("proj/.git");
    let usual = fs::read_to_string(git.join("config")).unwrap();
    let commands =
        ["git status", "git diff", "git log -1", "git show", "git blame x", "git --no-pager log --oneline -3"];
    let all_run = || commands.iter().all(|line| runs(&house, line));
    let none_runs = || !commands.iter().any(|line| runs(&house, line));
    assert!(all_run());
    for setting in [
        "[core]\n\tfsmonitor = ./x\n",
        "[core]\n\tpager = ./x\n",
        "[diff]\n\texternal = ./x\n",
        "[diff \"x\"]\n\ttextconv = ./x\n",
        "[filter \"x\"]\n\tclean = ./x\n",
        "[include]\n\tpath = ../x\n",
        "[log]\n\tshowSignature = true\n",
        "[core]\n\tworktree = /\n",
        "[alias]\n\tst = !x\n",
    ] {
        fs::write(git.join("config"), format!("{usual}{setting}")).unwrap();
        assert!(none_runs(), "{setting}");
    }
    fs::write(git.join("config"), &usual).unwrap();
    fs::create_dir_all(git.join("hooks")).unwrap();
    fs::write(git.join("hooks/post-index-change"), "").unwrap();
    assert!(none_runs());
    fs::remove_file(git.join("hooks/post-index-change")).unwrap();
    fs::write(git.join("objects/info/alternates"), "/elsewhere\n").unwrap();
    assert!(none_runs());
    fs::remove_file(git.join("objects/info/alternates")).unwrap();
    // Links that git would read, and what it does not take for a repository.
    for name in ["info/grafts", "shallow", "packed-refs", "rebase-merge/done"] {
        fs::create_dir_all(git.join(name).parent().unwrap()).unwrap();
        symlink(house.path("home/secret"), git.join(name)).unwrap();
        assert!(none_runs(), "{name}");
        fs::remove_file(git.join(name)).unwrap();
    }
    assert!(all_run());
    let head = fs::read_to_string(git.join("HEAD")).unwrap();
    for other in ["", "nonsense", "ref: elsewhere", "ref: refs/heads/a b"] {
        fs::write(git.join("HEAD"), other).unwrap();
        assert!(none_runs(), "{other}");
    }
    fs::write(git.join("HEAD"), head).unwrap();
    fs::write(house.path("proj/HEAD"), "").unwrap();
    assert!(none_runs());
    fs::remove_file(house.path("proj/HEAD")).unwrap();
    for (path, hook) in [("hooksPath = made", "made"), ("hooksPath = .husky/_", ".husky/_")] {
        fs::create_dir_all(house.path(&format!("proj/{hook}"))).unwrap();
        fs::write(git.join("config"), format!("{usual}[core]\n\t{path}\n")).unwrap();
        assert!(all_run(), "{path}");
        fs::write(house.path(&format!("proj/{hook}/post-index-change")), "").unwrap();
        assert!(none_runs(), "{path}");
    }
    fs::write(git.join("config"), &usual).unwrap();
    // A repository of its own below it, and one that has no `.git`.
    fs::write(house.path("proj/src/HEAD"), "").unwrap();
    assert!(!runs(&house, "cd src && git status") && all_run());
    fs::remove_file(house.path("proj/src/HEAD")).unwrap();
    assert!(runs(&house, "cd src && git log -2"));
    assert!(all_run());
}
