//! Rules for calls of `git` and `test_run`: those of the tool, and those of `bash`, which hold for every command.

use proptest::prelude::*;
use serde_json::json;

use super::tests::{House, house, names};
use super::*;
use crate::tool::set::ToolSet;
use crate::tool::{builtin, text};

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| Rule::parse(text, &names()).unwrap()).collect()
}

/// The verdict on a call of `tool` with these words, by rules of three kinds.
fn verdict(house: &House, tool: &str, line: &str, [deny, ask, allow]: [&[&str]; 3], mode: Mode) -> &'static str {
    let input = match tool {
        "git" => json!({ "args": line.split(' ').collect::<Vec<_>>() }),
        _ => json!({ "command": line }),
    };
    let set = ToolSet::new(builtin());
    let effects = set.get(tool).unwrap().prepare(&input, &house.workspace).unwrap().effects();
    let rules = Rules { deny: rules(deny), ask: rules(ask), allow: rules(allow), ..Rules::default() };
    let resolved = ResolvedAccess::of(&effects.access, &house.workspace, &rules);
    let call = CallInfo { tool, changes: effects.changes, access: effects.access };
    match decide(&rules, &[], mode, &call, &resolved) {
        Verdict::Allow { .. } => "allow",
        Verdict::Ask { .. } => "ask",
        Verdict::Deny { .. } => "deny",
    }
}

#[test]
fn what_only_looks_runs_and_everything_else_is_a_command() {
    let house = house();
    let check = |tool: &str, line: &str, rules: [&[&str]; 3], mode: Mode, expect: &str| {
        assert_eq!(verdict(&house, tool, line, rules, mode), expect, "{tool} {line} {rules:?} {mode}");
    };
    let none: [&[&str]; 3] = [&[], &[], &[]];
    for mode in [Mode::Ask, Mode::Edit, Mode::Auto, Mode::Plan] {
        check("git", "status", none, mode, "allow");
        check("git", "diff HEAD~1", none, mode, "allow");
    }
    for line in ["commit -m x", "diff --output=x", "-c alias.x=!y x", "push"] {
        check("git", line, none, Mode::Ask, "ask");
        check("git", line, none, Mode::Edit, "ask");
        check("git", line, none, Mode::Plan, "deny");
    }
    check("test_run", "cargo test", none, Mode::Edit, "ask");
    check("test_run", "cargo test", none, Mode::Plan, "deny");
    // Allowed
    for allow in ["git", "git(commit:*)", "git(commit -m x)", "bash(git commit:*)", "bash(git commit -m x)", "bash"] {
        check("git", "commit -m x", [&[], &[], &[allow]], Mode::Ask, "allow");
    }
    for allow in ["git(com:*)", "git(status)", "bash(commit:*)", "test_run", "git(git commit:*)"] {
        check("git", "commit -m x", [&[], &[], &[allow]], Mode::Ask, "ask");
    }
    check("git", "-C x commit -m x", [&[], &[], &["git(commit:*)"]], Mode::Ask, "ask");
    for allow in ["test_run", "test_run(cargo test:*)", "bash(cargo test:*)", "bash(cargo test x)"] {
        check("test_run", "cargo test x", [&[], &[], &[allow]], Mode::Ask, "allow");
        check(
            "test_run",
            "cargo test x; rm y",
            [&[], &[], &[allow]],
            Mode::Ask,
            if allow == "test_run" { "allow" } else { "ask" },
        );
    }
    check("bash", "git commit -m x", [&[], &[], &["git(commit:*)"]], Mode::Ask, "ask");
    check("bash", "cargo test", [&[], &[], &["test_run"]], Mode::Ask, "ask");
    // Narrowed
    for deny in ["git", "git(push:*)", "bash(git push:*)", "bash"] {
        check("git", "push origin", [&[deny], &[], &["git", "bash"]], Mode::Auto, "deny");
    }
    check("git", "push origin", [&[], &["bash(git push:*)"], &["git"]], Mode::Auto, "ask");
    for deny in ["git", "git(log:*)", "bash(git log:*)", "read(**)", "read"] {
        check("git", "log", [&[deny], &[], &[]], Mode::Auto, "deny");
    }
    check("git", "log", [&["bash", "read(.env)", "git(push:*)"], &["bash"], &[]], Mode::Ask, "allow");
    check("test_run", "cargo test", [&["bash"], &[], &["test_run"]], Mode::Auto, "deny");
}

#[test]
fn an_answer_that_lasts_is_for_the_command_whichever_tool_runs_it() {
    let house = house();
    let check = |tool: &str, line: &str, expect: &str| {
        let access = Access::Command(line.to_owned());
        let resolved = ResolvedAccess::of(&access, &house.workspace, &Rules::default());
        let call = CallInfo { tool, changes: true, access };
        let grants = grants_for(&call, &resolved);
        assert_eq!(grants.join(" and "), expect);
        let grants: Vec<Rule> = grants.iter().map(|grant| Rule::parse(grant, &names()).unwrap()).collect();
        assert!(matches!(decide(&Rules::default(), &grants, Mode::Ask, &call, &resolved), Verdict::Allow { .. }));
    };
    check("git", "git commit -m x", "bash(git commit:*)");
    check("git", "git push origin main", "bash(git push origin main)");
    check("test_run", "cargo test x", "bash(cargo test:*)");
    check("test_run", "cd a && cargo test", "bash(cd a) and bash(cargo test:*)");
    let warning = |rule: &str| Rule::parse(rule, &names()).unwrap().warning(true, &names());
    assert_eq!((warning("git(commit:*)"), warning("test_run(cargo test:*)")), (None, None));
    assert!(warning("git(commit *)").unwrap().contains("allows only that exact command"));
}

proptest! {
    /// What a rule reads of a shown command is what runs.
    #[test]
    fn quoted_words_are_read_back_or_not_at_all(args in proptest::collection::vec("[ -~\\n\\té]{0,8}", 1..4)) {
        let line = args.iter().map(|arg| text::shell_word(arg)).collect::<Vec<_>>().join(" ");
        if let Some(words) = words_of(&format!("git {line}")) {
            prop_assert_eq!(words.get(1..).unwrap(), args);
        }
    }
}
