//! Rules and modes as tables, and the laws that hold for any rule.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::tool::added::AddedDirs;

/// The tools that come with the daemon, and one that talks to hosts.
pub(super) fn names() -> Names {
    let builtin = crate::tool::builtin();
    let own = [("fetch", Takes::Host)].into_iter();
    builtin.iter().map(|tool| (tool.name(), tool.pattern())).chain(own).collect()
}

pub(super) struct House {
    dir: tempfile::TempDir,
    pub(super) workspace: Workspace,
}

/// `proj` is a repository with a session in `proj/app`; `out` lies outside; links lead from one to the other.
pub(super) fn house() -> House {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().canonicalize().unwrap();
    for path in ["proj/.git/hooks", "proj/app/src", "proj/app/secrets", "out/sub", "home/.ssh", "proj/own"] {
        std::fs::create_dir_all(base.join(path)).unwrap();
    }
    for path in ["proj/app/src/a.rs", "proj/app/.env", "out/x", "out/.env", "proj/README", "home/.ssh/id"] {
        std::fs::write(base.join(path), "").unwrap();
    }
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(base.join(to), base.join(at)).unwrap();
    link("out", "proj/app/link");
    link("out/absent", "proj/app/dangling");
    link("proj/app/.env", "proj/app/innocent");
    link("proj", "alias");
    let workspace = Workspace {
        cwd: base.join("proj/app"),
        root: base.join("proj"),
        is_seen: true,
        bound_by: None,
        added: Default::default(),
        env: Arc::new(BTreeMap::new()),
        secrets: Default::default(),
        seen: Default::default(),
        skills: Default::default(),
        notes: Default::default(),
        timeout_s: 1,
    };
    House { dir, workspace }
}

impl House {
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(path)
    }

    pub(super) fn rules(&self, [deny, ask, allow]: [&[&str]; 3]) -> Rules {
        Rules {
            deny: parse(self, deny),
            ask: parse(self, ask),
            allow: parse(self, allow),
            home: Some(self.path("home")),
            own: vec![self.path("proj/own")],
            ask_reads: true,
        }
    }

    /// `read a/b`, `edit a/b`, `grep dir` with paths below the house; anything else is a command.
    pub(super) fn call(&self, call: &str) -> CallInfo<'static> {
        let (word, rest) = call.split_once(' ').unwrap_or((call, ""));
        let (tool, changes, access) = match word {
            "read" => ("read", false, Access::Read(self.path(rest))),
            "grep" => ("grep", false, Access::Read(self.path(rest))),
            "edit" => ("edit", true, Access::Write(self.path(rest))),
            "write" => ("write", true, Access::Write(self.path(rest))),
            "fetch" => ("fetch", false, Access::Network(rest.to_owned())),
            "mcp__db__query" | "mcp__db2__query" => {
                let (server, tool) = (rest.to_owned(), "query".to_owned());
                (
                    if word == "mcp__db__query" { "mcp__db__query" } else { "mcp__db2__query" },
                    false,
                    Access::Other { server, tool, version: "1a".to_owned() },
                )
            }
            "lookup" => ("lookup", false, Access::Command(rest.to_owned())),
            _ => ("bash", true, Access::Command(call.to_owned())),
        };
        CallInfo { tool, changes, access }
    }

    pub(super) fn verdict(&self, rules: [&[&str]; 3], mode: Mode, call: &str) -> String {
        let (rules, call) = (self.rules(rules), self.call(call));
        match decide(&rules, &[], mode, &call, &ResolvedAccess::of(&call.access, &self.workspace, &rules)) {
            Verdict::Allow { by } => format!("allow: {by}"),
            Verdict::Ask { rule, .. } => format!("ask: {}", rule.unwrap_or_default()),
            Verdict::Deny { reason, .. } => format!("deny: {reason}"),
        }
    }
}

fn parse(house: &House, rules: &[&str]) -> Vec<Rule> {
    let base = house.path("");
    rules.iter().map(|rule| Rule::parse(&rule.replace("$BASE/", &base.to_string_lossy()), &names()).unwrap()).collect()
}

#[test]
fn the_mode_decides_what_no_rule_names() {
    let house = house();
    let table = [
        ("read proj/app/src/a.rs", ["allow", "allow", "allow", "allow"]),
        ("read proj/README", ["allow", "allow", "allow", "allow"]),
        ("grep proj/app", ["allow", "allow", "allow", "allow"]),
        ("read out/x", ["ask", "ask", "allow", "ask"]),
        ("read proj/app/link/x", ["ask", "ask", "allow", "ask"]),
        ("read proj/app/src/../a", ["ask", "ask", "allow", "ask"]),
        ("read proj/app/none/../../../../etc/passwd", ["ask", "ask", "allow", "ask"]),
        ("read alias/README", ["allow", "allow", "allow", "allow"]),
        ("edit proj/app/src/a.rs", ["ask", "allow", "allow", "deny"]),
        ("write proj/app/new/deep/file", ["ask", "allow", "allow", "deny"]),
        ("edit out/x", ["ask", "ask", "allow", "deny"]),
        ("write proj/app/link/new", ["ask", "ask", "allow", "deny"]),
        ("write proj/app/dangling", ["ask", "ask", "allow", "deny"]),
        ("edit proj/.git/hooks/pre-commit", ["ask", "ask", "allow", "deny"]),
        ("edit proj/.GIT/config", ["ask", "ask", "allow", "deny"]),
        ("write proj/own/config.toml", ["ask", "ask", "allow", "deny"]),
        ("write alias/own/config.toml", ["ask", "ask", "allow", "deny"]),
        ("ls -l", ["ask", "ask", "allow", "ask"]),
        ("make", ["ask", "ask", "allow", "deny"]),
        ("lookup weather", ["ask", "ask", "allow", "ask"]),
        ("fetch example.org", ["ask", "ask", "allow", "ask"]),
        ("mcp__db__query db", ["ask", "ask", "allow", "deny"]),
    ];
    for (call, expected) in table {
        for (mode, expected) in [Mode::Ask, Mode::Edit, Mode::Auto, Mode::Plan].into_iter().zip(expected) {
            let verdict = house.verdict([&[], &[], &[]], mode, call);
            assert_eq!(verdict.split(':').next(), Some(expected), "{call} in mode {mode}");
        }
    }
}

#[test]
fn behind_a_link_that_took_the_place_of_the_workspace_nothing_is_within() {
    let house = house();
    std::fs::rename(house.path("proj"), house.path("moved")).unwrap();
    std::os::unix::fs::symlink(house.path("out"), house.path("proj")).unwrap();
    std::fs::create_dir(house.path("out/app")).unwrap();
    for (call, mode) in [("write proj/app/x", Mode::Edit), ("read proj/app/x", Mode::Ask), ("read proj/x", Mode::Ask)] {
        assert_eq!(house.verdict([&[], &[], &["read(**)", "edit(x)"]], mode, call), "ask: ", "{call}");
    }
}

#[test]
fn mode_edit_asks_before_a_directory_becomes_one_of_git_or_one_is_changed() {
    let house = house();
    for dir in ["bare.git/objects", "bare.git/refs", "bare.git/hooks", "half", "tree/.git", "common", "named/HEAD"] {
        std::fs::create_dir_all(house.path("proj").join(dir)).unwrap();
    }
    for file in ["bare.git/HEAD", "half/HEAD", "common/HEAD", "common/commondir"] {
        std::fs::write(house.path("proj").join(file), "").unwrap();
    }
    std::os::unix::fs::symlink(house.path("proj/bare.git"), house.path("proj/app/git")).unwrap();
    let check = |path: &str, expect: &str| {
        let verdict = house.verdict([&[], &[], &[]], Mode::Edit, &format!("write proj/{path}"));
        assert_eq!(verdict.split(':').next(), Some(expect), "{path}");
    };
    // No directory is git's without a file of this name.
    for path in ["sub/HEAD", "sub/head", "bare.git/HEAD"] {
        check(path, "ask");
    }
    for path in ["bare.git/config", "bare.git/hooks/post-update", "app/git/config", "common/config", "bare.git/new"] {
        check(path, "ask");
    }
    // What makes one of a directory with a HEAD.
    for path in ["half/objects/x", "half/refs/x", "half/commondir", "half/Objects/x"] {
        check(path, "ask");
    }
    for path in ["half/config", "sub/config", "sub/objects/x", "config", "objects/x", "named/objects/x", "HEADER"] {
        check(path, "allow");
    }
}

#[test]
fn an_added_directory_counts_like_the_workspace_with_the_same_protections() {
    let mut house = house();
    let rules = house.rules([&[], &[], &[]]);
    let check = |house: &House, mode: Mode, call: &str, expect: bool| {
        let call_info = house.call(call);
        let resolved = ResolvedAccess::of(&call_info.access, &house.workspace, &rules);
        let verdict = decide(&rules, &[], mode, &call_info, &resolved);
        assert_eq!(matches!(verdict, Verdict::Allow { .. }), expect, "{mode} {call}: {verdict:?}");
    };
    check(&house, Mode::Ask, "read out/x", false);
    house.workspace.added = AddedDirs::new(&[house.path("out"), house.path("home")]);
    std::fs::create_dir_all(house.path("out/.git")).unwrap();
    std::fs::create_dir_all(house.path("home/.config")).unwrap();
    std::os::unix::fs::symlink(house.path("home/.ssh"), house.path("out/keys")).unwrap();
    for (mode, call, expect) in [
        (Mode::Ask, "read out/x", true),
        (Mode::Plan, "grep out/sub", true),
        (Mode::Ask, "edit out/x", false),
        (Mode::Edit, "edit out/x", true),
        (Mode::Edit, "write out/new", true),
        // Beside it is outside.
        (Mode::Ask, "read outer", false),
        // What controls git is guarded there too, and in HOME what starts programs.
        (Mode::Edit, "edit out/.git/config", false),
        (Mode::Edit, "edit home/notes", true),
        (Mode::Edit, "edit home/.bashrc", false),
        (Mode::Edit, "write home/bin/git", false),
        (Mode::Edit, "write out/keys/authorized_keys", false),
        (Mode::Edit, "edit proj/README", true),
    ] {
        check(&house, mode, call, expect);
    }
    // A link that takes the place of an added directory does not move it.
    std::fs::rename(house.path("out"), house.path("moved")).unwrap();
    std::os::unix::fs::symlink(house.path("proj/../elsewhere"), house.path("out")).unwrap();
    std::fs::create_dir(house.path("elsewhere")).unwrap();
    check(&house, Mode::Edit, "write out/new", false);
}

#[test]
fn mode_edit_asks_in_home_and_above_before_what_starts_programs_changes() {
    let mut house = house();
    std::os::unix::fs::symlink(house.path("home/.ssh"), house.path("home/keys")).unwrap();
    let path = format!("relative:{}:/usr/bin", house.path("home/tools").display());
    house.workspace.env = Arc::new(BTreeMap::from([("PATH".to_owned(), path)]));
    let base = house.path("");
    let mut check = |root: &str, asks: &[&str], allows: &[&str]| {
        (house.workspace.root, house.workspace.cwd) = (house.path(root), house.path(root));
        let cases = asks.iter().map(|path| (path, "ask")).chain(allows.iter().map(|path| (path, "allow")));
        for (path, expect) in cases {
            let verdict = house.verdict([&[], &[], &[]], Mode::Edit, &format!("write {path}"));
            assert_eq!(verdict.split(':').next(), Some(expect), "{path} in {root}");
        }
    };
    let guarded = [
        "home/.bashrc",
        "home/.ssh/authorized_keys",
        "home/keys/authorized_keys",
        "home/.config/git/hooks/post-checkout",
        "home/.local/bin/git",
        "home/bin/git",
        "home/Bin/git",
        "home/tools/git",
        "home/app/.envrc",
        "home/app/.github/workflows/ci.yml",
    ];
    check("home", &guarded, &["home/notes", "home/app/src/a.rs", "home/tools.txt", "home/app/bin/run"]);
    check("", &guarded, &["home/notes", "out/x", "proj/app/src/a.rs"]);
    // A project has its own settings.
    let own = ["home/app/.editorconfig", "home/app/.config/nextest.toml", "home/app/bin/run", "home/app/Makefile"];
    check("home/app", &["home/app/.envrc", "home/app/deep/.vscode/tasks.json", "home/app/.SSH/config"], &own);
    // Guarded by where it is, whatever the workspace is.
    for (root, file) in [
        ("home/.ssh", "home/.ssh/authorized_keys"),
        ("home/.ssh", "home/keys/authorized_keys"),
        ("home/.config", "home/.config/any/thing"),
        ("home/.config/systemd/user", "home/.config/systemd/user/x.service"),
        ("home/.local/bin", "home/.local/bin/tool"),
        ("home/.dotfiles/nvim", "home/.dotfiles/nvim/init.lua"),
        ("home/bin", "home/bin/git"),
        ("home/tools", "home/tools/git"),
        ("home/tools/sub", "home/tools/git"),
        ("proj/.claude", "proj/.claude/settings.json"),
        ("proj/.vscode", "proj/.vscode/tasks.json"),
    ] {
        std::fs::create_dir_all(base.join(root)).unwrap();
        check(root, &[file], &[]);
    }
    // Behind a directory on the PATH with all of the workspace in it, programs are not found.
    check("home/tools/sub", &[], &["home/tools/sub/notes"]);
}

#[test]
fn directories_of_home_are_guarded_when_they_are_added_too_and_worktrees_of_linger_are_not() {
    let mut house = house();
    let asks = |house: &House, path: &str| {
        let call = house.call(&format!("write {path}"));
        let rules = house.rules([&[], &[], &[]]);
        match decide(&rules, &[], Mode::Edit, &call, &ResolvedAccess::of(&call.access, &house.workspace, &rules)) {
            Verdict::Allow { .. } => None,
            Verdict::Ask { why, .. } => Some(why.unwrap_or_default()),
            Verdict::Deny { reason, .. } => panic!("{reason}"),
        }
    };
    for dir in ["home/.ssh", "home/bin", "home/.config/x", "home/.local/share/linger/worktrees/w1/.vscode"] {
        std::fs::create_dir_all(house.path(dir)).unwrap();
    }
    std::os::unix::fs::symlink(house.path("home/.ssh"), house.path("proj/app/inside")).unwrap();
    house.workspace.added =
        AddedDirs::new(&[house.path("home/.ssh"), house.path("home/bin"), house.path("home/.config/x")]);
    for path in ["home/.ssh/config", "home/bin/x", "home/.config/x/y", "proj/app/inside/authorized_keys"] {
        let why = asks(&house, path);
        assert!(why.is_some_and(|why| why.contains("`~/") || why.contains("`.ssh`")), "{path}");
    }
    let worktree = house.path("home/.local/share/linger/worktrees/w1");
    let bound_by = Some(house.path("proj"));
    house.workspace =
        Workspace { root: worktree.clone(), cwd: worktree, bound_by, added: Default::default(), ..house.workspace };
    let below = |path: &str| format!("home/.local/share/linger/worktrees/w1/{path}");
    assert_eq!(asks(&house, &below("src/main.rs")), None);
    assert!(asks(&house, &below(".vscode/tasks.json")).is_some_and(|why| why.contains("an editor")));
    assert!(asks(&house, "home/.bashrc").is_some());
}

#[test]
fn deny_comes_before_ask_and_ask_before_allow() {
    let house = house();
    let all: &[&str] = &["bash(ls)"];
    assert_eq!(house.verdict([all, all, all], Mode::Auto, "ls"), "deny: the rule bash(ls) forbids it");
    assert_eq!(house.verdict([&[], all, all], Mode::Auto, "ls"), "ask: bash(ls)");
    assert_eq!(house.verdict([&[], &[], all], Mode::Ask, "ls"), "allow: rule bash(ls)");
    assert_eq!(house.verdict([&[], &[], all], Mode::Plan, "ls"), "allow: rule bash(ls)");
    let make: &[&str] = &["bash(make)"];
    assert_eq!(house.verdict([&[], &[], make], Mode::Plan, "make"), "deny: mode plan allows only what changes nothing");
    assert_eq!(house.verdict([&[], &["bash"], &[]], Mode::Plan, "make").split(':').next(), Some("deny"));
    assert_eq!(house.verdict([&[], &["read(**)"], &[]], Mode::Plan, "read proj/README"), "ask: read(**)");
}

#[test]
fn narrowing_path_rules_match_generously() {
    let house = house();
    let hits = [
        ("read(**/.env)", "read proj/app/.env"),
        ("read(**/.env)", "read out/.env"),
        ("read(**/.env)", "read proj/app/link/.env"),
        ("read(**/.env)", "read proj/app/innocent"),
        ("read(**/.env)", "grep proj/app/.env"),
        ("read(innocent)", "read proj/app/innocent"),
        ("read(.env)", "read proj/app/src/../.env"),
        ("read(./.env)", "read alias/app/.env"),
        ("read(secrets)", "read proj/app/secrets/key"),
        ("read(secrets/)", "read proj/app/secrets/key"),
        ("read(~/.ssh)", "read home/.ssh/id"),
        ("read(~)", "read home/.ssh/id"),
        ("read($BASE/out/**)", "read proj/app/link/x"),
        ("write(src/*.rs)", "edit proj/app/src/a.rs"),
        ("edit(**)", "write out/x"),
        ("edit", "write out/x"),
        ("grep", "grep out"),
    ];
    for (rule, call) in hits {
        let verdict = house.verdict([&[rule], &[], &[]], Mode::Auto, call);
        assert!(verdict.starts_with("deny"), "{rule} against {call}: {verdict}");
    }
    let misses = [
        ("read(.env)", "read out/.env"),
        ("read(*.rs)", "read proj/app/src/a.rs"),
        ("read(**/.env)", "write proj/app/.env"),
        ("grep(**)", "read proj/README"),
        ("edit(**)", "touch x"),
    ];
    for (rule, call) in misses {
        assert_eq!(house.verdict([&[rule], &[], &[]], Mode::Auto, call), "allow: mode auto", "{rule} against {call}");
    }
}

#[test]
fn widening_path_rules_match_the_file_that_is_reached() {
    let house = house();
    let hits = [
        ("edit(**)", "write proj/app/src/a.rs"),
        ("write(src/*.rs)", "edit proj/app/src/a.rs"),
        ("edit($BASE/out/**)", "edit out/sub/new"),
        ("edit($BASE/out/**)", "edit proj/app/link/new"),
        ("read($BASE/out/**)", "grep out/sub"),
        ("read(~/.ssh/*)", "read home/.ssh/id"),
        ("edit", "edit out/x"),
    ];
    for (rule, call) in hits {
        let verdict = house.verdict([&[], &[], &[rule]], Mode::Ask, call);
        assert!(verdict.starts_with("allow: rule"), "{rule} against {call}: {verdict}");
    }
    let misses = [
        ("edit(**)", "edit out/x"),
        ("edit(**)", "edit proj/README"),
        ("edit(**/x)", "edit out/x"),
        ("edit(link/*)", "edit proj/app/link/x"),
        ("edit(dangling)", "edit proj/app/dangling"),
        ("edit(src)", "edit proj/app/src/a.rs"),
        ("edit(**)", "edit proj/app/src/../../x"),
        ("edit($BASE/out/*)", "edit out/sub/../../proj/x"),
        ("read($BASE/out/*)", "grep out/sub"),
        ("read(**)", "edit proj/app/src/a.rs"),
    ];
    for (rule, call) in misses {
        assert_eq!(house.verdict([&[], &[], &[rule]], Mode::Ask, call), "ask: ", "{rule} against {call}");
    }
}

#[test]
fn commands_are_allowed_whole_and_denied_by_prefix() {
    let house = house();
    let allow = |rule: &str, call: &str| house.verdict([&[], &[], &[rule]], Mode::Ask, call).starts_with("allow");
    assert!(allow("bash(git status)", "git status"));
    assert!(allow("bash(git status)", "  git status\n"));
    assert!(allow("bash(git status)", "git  status"));
    assert!(allow("bash(git:*)", "git status"));
    assert!(allow("bash", "anything at all"));
    for (rule, call) in [
        ("bash(git status)", "git status; rm -rf /"),
        ("bash(git status)", "git status\\ "),
        ("bash(git status)", "git status\u{a0}"),
        ("bash(git *)", "git status"),
        ("bash(*)", "git status"),
        ("read(**)", "cat x"),
        ("bash(rm x\\)", "rm x\\ "),
    ] {
        assert!(!allow(rule, call), "{rule} against {call}");
    }
    let deny = |rule: &str, call: &str| house.verdict([&[rule], &[], &[]], Mode::Auto, call).starts_with("deny");
    for call in
        ["git push", "git push -f", "cd x && git push", "(git push)", "a=$(git push)", "true;git push", "git pushy"]
    {
        assert!(deny("bash(git push:*)", call), "{call}");
        assert!(deny("bash(git push *)", call), "{call}");
    }
    assert!(deny("bash(*)", "x"));
    assert!(deny("bash(git push)", "true; git push"));
    assert!(!deny("bash(git push)", "git push -f"));
    assert!(!deny("bash(git push:*)", "git pull"));
}

#[test]
fn what_is_no_rule_is_refused_with_the_right_form() {
    for text in ["", "(x)", "bash(x", "ba sh(x)", "read()", "read( )", "tool)"] {
        assert!(matches!(Rule::parse(text, &names()), Err(RuleError::Shape(_))), "{text}");
    }
    assert_eq!(
        Rule::parse("read(../x)", &names()).unwrap_err().to_string(),
        "`read(../x)`: a pattern has no `..`; write the absolute path"
    );
    assert!(matches!(Rule::parse("read([)", &names()), Err(RuleError::Glob(..))));
    for depth in [100, 5000] {
        let nested = format!("read({}x{})", "{".repeat(depth), "}".repeat(depth));
        let error = Rule::parse(&nested, &names()).unwrap_err().to_string();
        let shown = format!("`read({}…`", "{".repeat(55));
        assert_eq!(error, format!("{shown}: too large: it opens {depth} braces, and may open 32"));
    }
    // A file whose name is full of braces can be allowed, and no rule is too long for a path.
    assert!(Rule::parse(&format!("read(/{})", globset::escape(&"{*".repeat(2047))), &names()).is_ok());
    assert_eq!(Rule::parse(" bash(f (x) ) ", &names()).unwrap().to_string(), "bash(f (x) )");
}

#[test]
fn a_rule_that_can_never_match_is_named() {
    let warning = |rule: &str, allows| Rule::parse(rule, &names()).unwrap().warning(allows, &names());
    assert!(warning("bash(npm run *)", true).unwrap().contains("exact command"));
    assert!(warning("bash(*)", true).unwrap().ends_with("`bash` allows every command"));
    assert!(warning("bash(a $x:*)", true).unwrap().contains("never matches"));
    assert!(warning("bash(:*)", true).unwrap().contains("never matches"));
    assert!(warning("bash(export A:*)", true).unwrap().contains("`export` runs what its words do not say"));
    assert_eq!(warning("bash(npm run:*)", true), None);
    assert_eq!(warning("bash(npm run *)", false), None);
    assert_eq!(
        warning("Bash(x)", true).unwrap(),
        "`Bash(x)` never matches: no tool is called `Bash`; did you mean `bash`?"
    );
    assert_eq!(warning("later", true).unwrap(), "`later` never matches: no tool is called `later`");
    assert_eq!(warning("mcp__x__y", true), None, "tools of servers come later");
    assert_eq!(warning("mcp__x__*", false), None);
    assert!(warning("mcp__x__y(z)", true).unwrap().ends_with("are no pattern"));
    assert!(warning("mcp__x__y(z)", false).unwrap().contains("applies to all calls"));
    assert_eq!(warning("edit(src/**)", true), None);
    for rule in ["bash(rm*)", "bash(**)", "bash(rm* *)"] {
        assert!(warning(rule, false).unwrap().contains("matches only a command with that very `*`"), "{rule}");
    }
    assert!(warning("bash(rm*)", false).unwrap().contains("`bash(rm:*)`"));
    assert_eq!(
        ["bash(rm *)", "bash(rm:*)", "bash(*)", "bash"].map(|rule| warning(rule, false)),
        [None, None, None, None]
    );
    assert!(warning("read( **/.env )", false).unwrap().contains("a blank"));
}

#[test]
fn a_file_that_may_not_be_read_is_not_edited_either() {
    let house = house();
    let deny = [&["read(**/.env)"][..], &[], &[]];
    for mode in [Mode::Edit, Mode::Auto] {
        assert!(house.verdict(deny, mode, "edit proj/app/.env").starts_with("deny"), "{mode}");
        assert!(house.verdict(deny, mode, "grep proj/app/.env").starts_with("deny"), "{mode}");
        assert!(house.verdict(deny, mode, "write proj/app/.env").starts_with("allow"), "{mode}");
    }
    let ask = [&[][..], &["read(**/.env)"], &[]];
    assert_eq!(house.verdict(ask, Mode::Edit, "edit proj/app/.env"), "ask: read(**/.env)");
    let allow = [&[][..], &[], &["read(**)"]];
    assert_eq!(house.verdict(allow, Mode::Ask, "edit proj/app/.env"), "ask: ");
}

#[test]
fn a_denied_file_is_hidden_from_tools_that_walk() {
    let house = house();
    let rules = house.rules([&["read(**/.env)"], &[], &[]]);
    let hides = hides(&rules, "grep", &house.path("proj/app"), &house.workspace);
    assert!(hides(&house.path("proj/app/.env")));
    assert!(hides(&house.path("proj/app/innocent")));
    assert!(!hides(&house.path("proj/app/src/a.rs")));
}

#[test]
fn what_would_be_asked_about_by_itself_is_hidden_unless_the_whole_was() {
    let house = house();
    let check = |rules: [&[&str]; 3], file: &str, expect: bool| {
        let hides = hides(&house.rules(rules), "grep", &house.path("proj/app"), &house.workspace);
        assert_eq!(hides(&house.path(file)), expect, "{rules:?} {file}");
    };
    check([&[], &["read(**/.env)"], &[]], "proj/app/.env", true);
    check([&[], &["read(**/.env)"], &[]], "proj/app/src/a.rs", false);
    check([&[], &["grep(src/**)"], &[]], "proj/app/src/a.rs", true);
    check([&["grep(src/**)"], &[], &[]], "proj/app/src/a.rs", true);
    check([&[], &["grep"], &[]], "proj/app/src/a.rs", false);
}

#[test]
fn a_file_that_is_allowed_always_is_this_file_wherever_a_session_works() {
    let check = |rule: &str, expect: &str| assert_eq!(grant_everywhere(rule, Path::new("/w/a[1]"), &names()), expect);
    check("edit(config.toml)", "edit(/w/a[[]1[]]/config.toml)");
    check("read(./~)", "read(/w/a[[]1[]]/~)");
    check("read(.)", "read(/w/a[[]1[]])");
    check("edit(/etc/hosts)", "edit(/etc/hosts)");
    check("bash(rm x)", "bash(rm x)");
    check("fetch(example.org)", "fetch(example.org)");
    check("todo", "todo");
}

#[test]
fn the_digest_depends_on_meaning_and_not_on_the_order_of_keys() {
    let cwd = Path::new("/w");
    let one = digest("bash", &json!({"a": 1, "b": {"c": [1, 2], "d": "é\n"}}), cwd);
    assert_eq!(one, digest("bash", &json!({"b": {"d": "é\n", "c": [1, 2]}, "a": 1}), cwd));
    assert_eq!(one.len(), "sha256:".len() + 64);
    for other in [
        digest("read", &json!({"a": 1, "b": {"c": [1, 2], "d": "é\n"}}), cwd),
        digest("bash", &json!({"a": 1, "b": {"c": [2, 1], "d": "é\n"}}), cwd),
        digest("bash", &json!({"a": 1, "b": {"c": [1, 2], "d": "é\n"}}), Path::new("/v")),
        digest("bash", &json!({"a": "1", "b": {"c": [1, 2], "d": "é\n"}}), cwd),
    ] {
        assert_ne!(one, other);
    }
    // Fixed for ever: permissions that wait carry it over restarts. `printf '%s' '{"cwd":"/w","input":{},"tool":"ls"}' | sha256sum`
    assert_eq!(
        digest("ls", &json!({}), cwd),
        concat!("sha256:", "d39827f6bb34d0126a7d4ce911dfe8ce92ec4543becf8488c72a01eef8ab5633")
    );
}

fn granted(house: &House, grant: &str, call: &CallInfo<'_>) -> bool {
    let grants = [Rule::parse(grant, &names()).unwrap()];
    let rules = house.rules([&[], &[], &[]]);
    let verdict = decide(&rules, &grants, Mode::Ask, call, &ResolvedAccess::of(&call.access, &house.workspace, &rules));
    matches!(verdict, Verdict::Allow { by } if by.starts_with("rule"))
}

#[test]
fn grants_name_one_file_or_one_command() {
    let house = house();
    for (call, grant) in [
        ("edit proj/app/src/a.rs", "edit(src/a.rs)"),
        ("write proj/app/src/a.rs", "edit(src/a.rs)"),
        ("grep proj/app", "grep(.)"),
        ("write proj/app/~/x", "edit(./~/x)"),
        ("write proj/app/a*[b]", "edit(a[*][[]b[]])"),
        ("write proj/app/a\\b", "edit(a\\b)"),
        ("echo (x) \"y\"\n ls", "bash(echo (x) \"y\"\n ls)"),
        ("npm run *", "bash(npm run *)"),
        ("scp host:*", "bash(scp host:* )"),
    ] {
        let call = house.call(call);
        assert_eq!(granting(&house, &call), grant);
        assert!(granted(&house, grant, &call), "{grant}");
    }
    let outside = house.call("edit out/x");
    assert_eq!(granting(&house, &outside), format!("edit({})", house.path("out/x").display()));
    let linked = house.call("edit proj/app/link/x");
    assert!(granted(&house, &granting(&house, &linked), &outside), "a link is granted as the file it leads to");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_grant_matches_the_call_it_came_from_and_no_other(one in "[^\0/]{1,12}", other in "[^\0/]{1,12}", command: bool) {
        prop_assume!(!one.trim().is_empty() && !["..", "."].contains(&one.as_str()) && !["..", "."].contains(&other.as_str()));
        // A line of several commands gets a rule for each.
        prop_assume!(!command || !is_several(&one));
        let house = house();
        let call = |text: &str| CallInfo {
            tool: if command { "bash" } else { "write" },
            changes: true,
            access: if command { Access::Command(text.to_owned()) } else { Access::Write(house.workspace.cwd.join(text)) },
        };
        let grant = granting(&house, &call(&one));
        prop_assert!(granted(&house, &grant, &call(&one)), "{grant:?}");
        prop_assert_eq!(Rule::parse(&grant, &names()).unwrap().to_string(), grant.clone());
        let blank = [' ', '\t', '\n'];
        let words = |text: &str| line::simple_commands(text.trim_matches(blank));
        let same = if command {
            one.trim_matches(blank) == other.trim_matches(blank) || words(&one).is_some_and(|one| words(&other) == Some(one))
        } else {
            one == other
        };
        prop_assert!(same || !granted(&house, &grant, &call(&other)), "{grant:?} allows {other:?}");
    }

    #[test]
    fn no_spelling_of_a_path_leaves_the_workspace(parts in proptest::collection::vec("(\\.\\.|\\.|link|src|x|sub|app|proj|dangling)", 1..8)) {
        let house = house();
        let path = house.workspace.cwd.join(parts.join("/"));
        let call = CallInfo { tool: "write", changes: true, access: Access::Write(path.clone()) };
        let reached = path.canonicalize().or_else(|_| path.parent().unwrap().canonicalize());
        let outside = reached.is_ok_and(|reached| !reached.starts_with(&house.workspace.cwd)) || path.is_symlink();
        prop_assert!(!outside || !granted(&house, "edit(**)", &call), "{}", path.display());
    }
}

fn granting(house: &House, call: &CallInfo<'_>) -> String {
    grants_for(call, &ResolvedAccess::of(&call.access, &house.workspace, &Rules::default())).concat()
}

#[test]
fn a_rule_names_a_host_and_a_servers_tool() {
    let house = house();
    let check = |rules: [&[&str]; 3], call: &str, expect: &str| {
        assert_eq!(house.verdict(rules, Mode::Ask, call), expect, "{rules:?} {call}");
    };
    check([&[], &[], &["fetch(example.org)"]], "fetch Example.org.", "allow: rule fetch(example.org)");
    check([&[], &[], &["fetch(example.org)"]], "fetch a.example.org", "ask: ");
    check([&[], &[], &["fetch(example.org)"]], "fetch badexample.org", "ask: ");
    check([&[], &[], &["fetch(*.example.org)"]], "fetch a.example.org", "allow: rule fetch(*.example.org)");
    check([&[], &[], &["fetch(*.example.org)"]], "fetch example.org", "ask: ");
    check(
        [&["fetch(example.org)"], &[], &["fetch"]],
        "fetch a.example.org",
        "deny: the rule fetch(example.org) forbids it",
    );
    check(
        [&["fetch(*.example.org)"], &[], &["fetch"]],
        "fetch example.org",
        "deny: the rule fetch(*.example.org) forbids it",
    );
    check([&["fetch(example.org)"], &[], &["fetch"]], "fetch other.org", "allow: rule fetch");
    check([&[], &[], &["mcp__db__query"]], "mcp__db__query db", "allow: rule mcp__db__query");
    check([&[], &[], &["mcp__db__*"]], "mcp__db__query db", "allow: rule mcp__db__*");
    check([&[], &[], &["mcp__db__*"]], "mcp__db2__query db", "ask: ");
    check(
        [&["mcp__db__query(drop)"], &[], &["mcp__db__*"]],
        "mcp__db__query db",
        "deny: the rule mcp__db__query(drop) forbids it",
    );
    check([&[], &[], &["mcp__db__query(x)"]], "mcp__db__query db", "ask: ");
    check([&[], &[], &["mcp__db__query(#1a)"]], "mcp__db__query db", "allow: rule mcp__db__query(#1a)");
    // It says otherwise what it does than when it was permitted.
    check([&[], &[], &["mcp__db__query(#1b)", "mcp__db__query(1a)"]], "mcp__db__query db", "ask: ");
    for written in ["mcp__*", "bash*", "mcp__a__*b", "*"] {
        assert!(Rule::parse(written, &names()).is_err(), "{written}");
    }
}

#[test]
fn what_is_granted_is_this_host_and_this_tool() {
    let house = house();
    let grant = |call: &str| {
        let call = house.call(call);
        grants_for(&call, &ResolvedAccess::of(&call.access, &house.workspace, &Rules::default())).concat()
    };
    assert_eq!(grant("fetch example.org"), "fetch(example.org)");
    assert_eq!(grant("mcp__db__query db"), "mcp__db__query(#1a)");
}

#[test]
fn a_rule_for_a_tool_that_comes_later_holds_when_it_is_there() {
    let house = house();
    let none = Names::default();
    let deny = vec![Rule::parse("notes(src/**)", &none).unwrap(), Rule::parse("fetch(example.org)", &none).unwrap()];
    let rules = Rules { deny, ..house.rules([&[], &[], &[]]) };
    for (tool, access) in [
        ("notes", Access::Read(house.path("proj/app/src/a.rs"))),
        ("notes", Access::Command("src/**".to_owned())),
        ("fetch", Access::Network("example.org".to_owned())),
    ] {
        let call = CallInfo { tool, changes: false, access };
        let verdict =
            decide(&rules, &[], Mode::Auto, &call, &ResolvedAccess::of(&call.access, &house.workspace, &rules));
        assert!(matches!(verdict, Verdict::Deny { .. }), "{call:?} {verdict:?}");
    }
}
