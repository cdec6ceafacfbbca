//! What a turn may do that has read skills with `allowed-tools`.

use super::limit::{Limit, refuses};
use super::tests::{House, house, names};
use super::*;

fn limit(skill: &str, rules: &[&str]) -> Limit {
    let allowed = rules.iter().map(|rule| Rule::parse(rule, &names()).unwrap()).collect();
    Limit { skill: skill.to_owned(), allowed }
}

fn why(house: &House, limits: &[Limit], call: &CallInfo<'_>) -> Option<String> {
    refuses(limits, call, &ResolvedAccess::of(&call.access, &house.workspace, &Rules::default()))
}

#[test]
fn a_skill_leaves_what_it_lists_and_what_only_reads() {
    let house = house();
    let table: &[(&[&str], &str, bool)] = &[
        (&[], "read proj/README", true),
        (&[], "read out/x", true),
        (&[], "grep proj/app", true),
        (&[], "make", false),
        (&[], "ls", false),
        (&[], "write proj/app/x", false),
        (&[], "fetch example.org", false),
        (&[], "mcp__db__query db", false),
        (&["bash(git add:*)"], "git add x", true),
        (&["bash(git add:*)"], "git add x && git add y", true),
        (&["bash(git add:*)"], "git add x && make", false),
        (&["bash(git add:*)"], "git add $(make)", false),
        (&["bash(git add:*)"], "git push", false),
        (&["bash(git add:*)", "bash(git commit:*)"], "git add x; git commit -m y", true),
        (&["bash"], "make > x", true),
        (&["bash"], "write proj/app/x", false),
        (&["edit"], "write proj/app/x", true),
        (&["write"], "edit out/x", true),
        (&["edit(src/**)"], "edit proj/app/src/a.rs", true),
        (&["edit(src/**)"], "edit proj/app/.env", false),
        (&["edit(link/**)"], "edit proj/app/link/x", false),
        (&["fetch(example.org)"], "fetch example.org", true),
        (&["fetch(example.org)"], "fetch a.example.org", false),
        (&["mcp__db__*"], "mcp__db__query db", true),
        (&["mcp__db__*"], "mcp__db2__query db", false),
        (&["read", "grep"], "make", false),
    ];
    for (rules, call, expect) in table {
        let refused = why(&house, &[limit("s", rules)], &house.call(call));
        assert_eq!(refused.is_none(), *expect, "{rules:?} {call}: {refused:?}");
    }
    assert_eq!(why(&house, &[], &house.call("make")), None, "no skill, no limit");
}

#[test]
fn several_skills_leave_what_any_of_them_lists() {
    let house = house();
    let limits = [limit("a", &["bash(git add:*)"]), limit("b", &["bash(make)", "edit"])];
    for call in ["git add x", "make", "git add x && make", "edit proj/app/x"] {
        assert_eq!(why(&house, &limits, &house.call(call)), None, "{call}");
    }
    let expect = "the skills `a` and `b` limit this turn to `bash(git add:*)`, `bash(make)`, `edit` and calls that only read; \
                  each command of a line must be one that is listed, in plain words";
    assert_eq!(why(&house, &limits, &house.call("rm x")).as_deref(), Some(expect));
}

#[test]
fn each_thing_that_a_call_touches_must_be_listed_and_what_touches_nothing_is_free() {
    let house = house();
    let path = |name: &str| house.workspace.cwd.join(name);
    let call = |tool, changes, access| CallInfo { tool, changes, access };
    let parts = vec![Access::Read(path("a")), Access::Network("example.org".to_owned()), Access::Write(path("b"))];
    let picture = call("image", true, Access::Several(parts));
    assert!(why(&house, &[limit("s", &["fetch", "edit"])], &picture).is_some(), "its host is its own rule's");
    assert!(why(&house, &[limit("s", &["image(example.org)"])], &picture).is_some());
    assert_eq!(why(&house, &[limit("s", &["image(example.org)", "edit(b)"])], &picture), None);
    let asks = call("ask_user", false, Access::Nothing);
    assert_eq!(why(&house, &[limit("s", &[])], &asks), None);
    let delegates = call("delegate", false, Access::Nothing);
    let expect = "the skill `s` limits this turn to calls that only read";
    assert_eq!(why(&house, &[limit("s", &[])], &delegates).as_deref(), Some(expect));
    assert_eq!(why(&house, &[limit("s", &["delegate"])], &delegates), None);
}

#[test]
fn a_long_list_is_cut_in_what_the_model_reads() {
    let house = house();
    let rules: Vec<String> = (0..200).map(|n| format!("bash(command-{n}:*)")).collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let why = why(&house, &[limit("s", &rules)], &house.call("make")).unwrap();
    assert!(
        why.len() < 1300 && why.contains("`bash(command-1:*)`") && why.contains("`, others and calls that only read;"),
        "{why}"
    );
}
