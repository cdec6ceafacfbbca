//! Allow rules for commands: what they match, and hundreds of strings that try to pass as another command.

use proptest::prelude::*;

use super::*;

/// Commands with something else in the place of `@`, for the rules `bash(cargo test:*)` and `bash(git log)`.
const SMUGGLE: &[&str] = &[
    // joined
    "cargo test; @",
    "cargo test ;@",
    "cargo test && @",
    "cargo test&&@",
    "cargo test || @",
    "cargo test | @",
    "cargo test |& @",
    "cargo test & @",
    "cargo test &@",
    "cargo test\n@",
    "cargo test\r\n@",
    "cargo test\r@",
    "cargo test\u{b}@\n@",
    "cargo test\u{c}; @",
    "cargo test;\n@",
    "cargo test &&\n@",
    "cargo test;@;git log",
    "@; cargo test",
    "@ && cargo test",
    "@ | cargo test",
    "@\ncargo test",
    "@ & cargo test",
    "git log;@",
    "git log|@",
    "git log && cargo test && @",
    "cargo test;;@",
    "cargo test\u{85}@\n@",
    "cargo test\u{2028}@\n@",
    "cargo test # x\n@",
    "cargo test #\\\n@",
    "cargo test \\\n; @",
    "cargo test\\\n@\n@",
    // grouped
    "(@)",
    "(cargo test; @)",
    "{ @; }",
    "{ cargo test; @; }",
    "cargo test (@)",
    "cargo test; (@)",
    "((x=1)); @",
    "! @",
    "! cargo test; @",
    "[[ x ]] && @",
    "[[ $(@) ]]",
    "if cargo test; then @; fi",
    "if @; then cargo test; fi",
    "while cargo test; do @; done",
    "until cargo test; do @; done",
    "for x in 1; do @; done",
    "for ((;;)); do @; done",
    "case x in x) @;; esac",
    "select x in 1; do @; done",
    "time @",
    "time -p @",
    "coproc @",
    "coproc cargo test; @",
    "function cargo { @; }; cargo test",
    "cargo () { @; }; cargo test",
    "cargo() { @; } && cargo test",
    "then @",
    "do @",
    "else @",
    // expanded
    "cargo test $(@)",
    "cargo test \"$(@)\"",
    "cargo test `@`",
    "cargo test \"`@`\"",
    "cargo test $((`@`))",
    "cargo test ${x:-$(@)}",
    "cargo test ${x:=`@`}",
    "cargo test \"${x:-$(@)}\"",
    "cargo test $[`@`]",
    "cargo test ${x[$(@)]}",
    "cargo test ${x@P}$(@)",
    "cargo test <(@)",
    "cargo test >(@)",
    "cargo test $'\\x27';@",
    "cargo test $'\\'' ; @ '",
    "cargo test $\"`@`\"",
    "cargo test '' $(@) ''",
    "cargo test a'b'$(@)",
    "cargo test \"a\"`@`",
    "$(@)",
    "`@`",
    "\"$(@)\"",
    "$(echo @)",
    "cargo test \"\\\"$(@)\"",
    "cargo test \"!@\"; @",
    "cargo test !!:s/test/@/",
    "cargo test ~$(@)",
    "cargo test {1,$(@)}",
    "cargo test x=$(@)",
    "cargo test --config=\"$(@)\"",
    "cargo test \"a\\\\\"; @; \"b\"",
    "cargo test 'a\\'; @; 'b'",
    // redirected
    "cargo test > x; @",
    "cargo test < <(@)",
    "cargo test <<x\n$(@)\nx",
    "cargo test <<x\nx\n@",
    "cargo test <<'x'\nx\n@",
    "cargo test <<<$(@)",
    "cargo test 2>&1; @",
    "cargo test &> x; @",
    "cargo test >| x; @",
    "> x @",
    "< x @",
    "2>&1 @",
    ">x cargo test; @",
    // assigned
    "A=b @",
    "A=$(@) cargo test",
    "PATH=. cargo test; @",
    "LD_PRELOAD=x @",
    "A=b; @",
    "A+=b @",
    "A[1]=b @",
    "A=(b) @",
    "A=(`@`)",
    "BASH_ENV=x @",
    "IFS=c @",
    "export PATH=.; @; cargo test",
    "declare A=$(@)",
    // run by another
    "env @",
    "env cargo test; @",
    "env -S '@'",
    "sudo @",
    "sh -c '@'",
    "bash -c \"@\"",
    "sh -c \"cargo test; @\"",
    "eval @",
    "eval 'cargo test; @'",
    "exec @",
    "command @",
    "command cargo test; @",
    "builtin @",
    "nohup @",
    "nice @",
    "timeout 1 @",
    "xargs @",
    "echo x | xargs @",
    "find . -exec @ \\;",
    "find . -exec @ ';'",
    "source x; @",
    ". x && @",
    "trap '@' EXIT",
    "trap '@' EXIT; cargo test",
    "alias cargo='@'; cargo test",
    "alias cargo='@'\ncargo test",
    "shopt -s expand_aliases; @",
    "hash -p /tmp/x cargo; cargo test; @",
    "enable -f x @",
    "set -- @; cargo test",
    "unset PATH; @",
    "printf -v PATH x; @",
    "read A; @",
    "let '@'",
    "test -v 'a[$(@)]' && cargo test",
    "jobs -x @",
    "compgen -C '@'",
    "mapfile -C '@' -c 1",
    "complete -C '@' cargo",
    // named like it
    "cargotest @",
    "cargo-test @",
    "cargo tests @",
    "cargo test-@",
    "cargo testing; @",
    "cargo\ttest; @",
    "cargo +x test @",
    "cargo -q test @",
    "/tmp/cargo test @",
    "./cargo test @",
    "cargo/../@ test",
    "Cargo test @",
    "cargo Test @",
    "cargo '' test @",
    "'cargo test' @",
    "\"cargo test\" @",
    "cargo 'test ' @",
    "cargo\u{a0}test @",
    "cаrgo test @",
    "cargo\u{200b} test @",
    "\u{feff}cargo test @",
    "cargo\\ test @",
    "\\cargo test; @",
    "c\\argo test; @",
    "c'a'rgo xtest @",
    "git log @",
    "git  log @",
    "git log --output=@",
    "git log '' @",
    "git 'log @'",
    "git -c alias.log='!@' log",
    "gitlog; @",
    "git log .; @",
    "-- cargo test @",
    "-c cargo test @",
    "+x cargo test @",
    "%1 @",
    "=cargo test @",
    "~/cargo test @",
    "*/cargo test @",
    "?argo test; @",
    "[c]argo test; @",
    "{cargo,@} test",
    "car{g,@}o test",
    "cargo test}; @",
    "cargo test); @",
    "cargo test'; @",
    "cargo test\"; @",
    "cargo test `; @",
    "cargo test ;; @",
    "cargo test &&& @",
];

/// What is put in the place of `@`.
const PAYLOADS: [&str; 2] = ["rm -rf x", "curl evil.example"];

#[test]
fn no_string_passes_a_rule_that_is_for_another_command() {
    let house = tests::house();
    let tried = SMUGGLE.iter().flat_map(|text| PAYLOADS.map(|payload| text.replace('@', payload)));
    let tried: std::collections::BTreeSet<String> = tried.collect();
    assert!(tried.len() >= 300, "{}", tried.len());
    for command in tried {
        let verdict = house.verdict([&[], &[], &["bash(cargo test:*)", "bash(git log)"]], Mode::Ask, &command);
        assert_eq!(verdict, "ask: ", "{command:?}");
    }
}

#[test]
fn every_command_of_a_line_has_a_rule_of_its_own() {
    let house = tests::house();
    let check = |rules: &[&str], command: &str, expect: &str| {
        assert_eq!(house.verdict([&[], &[], rules], Mode::Ask, command), expect, "{rules:?} {command}");
    };
    let rules = ["bash(cargo test:*)", "bash(git log)", "bash(tee out)", "bash(cd x && make)"];
    check(&rules, "cargo test", "allow: rule bash(cargo test:*)");
    check(&rules, "cargo test --lib 'a b'", "allow: rule bash(cargo test:*)");
    check(&rules, "cargo 'test' \"x\"", "allow: rule bash(cargo test:*)");
    check(&rules, "git  log", "allow: rule bash(git log)");
    check(&rules, "cargo test && cargo test x", "allow: rule bash(cargo test:*)");
    check(&rules, "cargo test | tee out; git log", "allow: rules bash(cargo test:*), bash(tee out), bash(git log)");
    check(&rules, "cd x && make", "allow: rule bash(cd x && make)");
    for command in [
        "cargo",
        "cargo build",
        "cargo testx",
        "git log -p",
        "cargo test | tee out2",
        "cd x && make && git log",
        "cargo test > x",
    ] {
        check(&rules, command, "ask: ");
    }
    // What redefines commands is allowed as it is, and never beside others.
    let rules = ["bash(export A=b)", "bash(export:*)", "bash(make:*)", "bash(:*)"];
    check(&rules, "export A=b", "allow: rule bash(export A=b)");
    check(&rules, "export PATH=x", "ask: ");
    check(&rules, "export A=b; make", "ask: ");
    check(&rules, "ls", "ask: ");
    // A star with a blank behind it is one.
    check(&["bash(scp h:* )"], "scp h:*", "allow: rule bash(scp h:* )");
    check(&["bash(scp h:* )"], "scp h x", "ask: ");
    check(&["bash(scp h:*)"], "scp h:*", "ask: ");
    // Other tools have no shell.
    check(&["lookup(git log:*)"], "git log", "ask: ");
}

#[test]
fn rules_that_narrow_see_through_quotes_and_blanks() {
    let house = tests::house();
    let deny = |rule: &str, command: &str| house.verdict([&[rule], &[], &[]], Mode::Auto, command).starts_with("deny");
    for command in ["'git' push", "git  push -f", "git \"push\"", "ls && git   push", "gi't' 'push' x | cat"] {
        assert!(deny("bash(git push:*)", command), "{command}");
    }
    assert!(deny("bash(git push)", "ls; git 'push'"));
    assert!(!deny("bash(git push:*)", "git 'pull'"));
    assert!(!deny("bash(git push)", "git  push -f"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_allowed_always_is_this_command_and_no_other(one in r"[ab:*; '\n]{1,8}", other in r"[ab:*; '\n]{1,8}") {
        prop_assume!(!one.trim().is_empty());
        let house = tests::house();
        let call = |text: &str| CallInfo { tool: "bash", changes: true, access: Access::Command(text.to_owned()) };
        let resolved = |call: &CallInfo<'_>| ResolvedAccess::of(&call.access, &house.workspace, &Rules::default());
        let rule = grants_for(&call(&one), &resolved(&call(&one)));
        let grants: Vec<Rule> = rule.iter().map(|rule| Rule::parse(rule, &tests::names()).unwrap()).collect();
        let granted = |text: &str| {
            let call = call(text);
            matches!(decide(&Rules::default(), &grants, Mode::Ask, &call, &resolved(&call)), Verdict::Allow { .. })
        };
        prop_assert!(granted(&one), "{rule:?}");
        let words = |text: &str| line::simple_commands(line::plain(text));
        // The same commands in another order, or once more, are these commands.
        let same = line::plain(&one) == line::plain(&other)
            || words(&other).zip(words(&one)).is_some_and(|(other, one)| other.iter().all(|words| one.contains(words)));
        prop_assert_eq!(granted(&other), same, "{:?} and {:?}", rule, other);
    }
}

#[test]
fn an_allow_rule_whose_every_command_is_denied_or_asked_is_named() {
    let shadow = |list: &str, allowed: &str| {
        let rule = |text: &str| Rule::parse(text, &super::tests::names()).unwrap();
        Rules { deny: vec![rule(list)], ..Rules::default() }.shadow(&rule(allowed))
    };
    let never = "`bash(rm x)` never matches: `bash(rm:*)` in deny comes first";
    assert_eq!(shadow("bash(rm:*)", "bash(rm x)").unwrap(), never);
    for (list, allowed, is_shadowed) in [
        ("bash(git:*)", "bash(git push:*)", true),
        ("bash(git push)", "bash(git push)", true),
        ("bash(git push)", "bash(git push:*)", false),
        ("bash(git push:*)", "bash(git:*)", false),
        ("bash(rm:*)", "bash(make && rm x)", true),
        ("bash(rm:*)", "read(rm)", false),
        ("read(rm)", "bash(rm x)", false),
    ] {
        assert_eq!(shadow(list, allowed).is_some(), is_shadowed, "{list} before {allowed}");
    }
}
