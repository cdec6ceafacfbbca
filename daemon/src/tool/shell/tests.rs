//! What is read, what is unsure, and that any text is read in bounded time.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

/// The commands of a line, words separated by `|`; `…` stands for what is expanded.
fn commands(text: &str) -> Vec<String> {
    let line = read(text);
    assert_eq!(line.unsure, None, "{text:?}");
    let words = |command: &Simple| {
        let word = |word: &Word| word.literal.clone().unwrap_or_else(|| "…".to_owned());
        command.words.iter().map(word).collect::<Vec<_>>().join("|")
    };
    line.commands.iter().map(words).collect()
}

#[test]
fn commands_are_read_wherever_they_stand() {
    let check = |text: &str, expect: &[&str]| assert_eq!(commands(text), expect, "{text:?}");
    check("a b; c 'd e' && f\"g\"h", &["a|b", "c|d e", "fgh"]);
    check("for r in a b; do git push $r; done", &["git|push|…"]);
    check("if a; then b; elif c; then d; else e; fi", &["a", "b", "c", "d", "e"]);
    check("while a | b; do c; done; until d; do e; done", &["a", "b", "c", "d", "e"]);
    check("case x in a|b) c;; (d) e;& *) f; esac", &["c", "e", "f"]);
    check("X=1 Y='a b' a; Z=2", &["a", ""]);
    check("! time -p a |& b", &["a", "b"]);
    check("f() { a; }; function g { b; }; coproc c", &["a", "b", "c"]);
    check("{fd}>x a 2>&1 b >| c", &["a|b"]);
    check("{x}>f git push", &["git|push"]);
    check("f+() { git push; }", &["git|push"]);
    check("a \"$(b \"$(c)\")\" `d \\`e\\``", &["c", "b|…", "e", "d|…", "a|…|…"]);
    check("a <<E <<'F' | b\n$(c)\nE\n$(d)\nF\ne", &["a", "b", "c", "e"]);
    check("a ${x:-$(b)} $(( 1 + $(c) )) <(d)", &["b", "c", "d", "a|…|…|…"]);
    check("git commit -m \"$(cat <<'E'\nit's $(a)\nE\n)\" && b", &["cat", "git|commit|-m|…", "b"]);
    check("((a)); (( 1 + $(b) )); ((c) )", &["b", "c"]);
    check("[[ $x =~ ^(a|b)$ && -n $(c) ]] || d", &["c", "d"]);
    check("a=(b $(c) [1]=d); e", &["c", "", "e"]);
    check("a \\\n  b # c; d\ne", &["a|b", "e"]);
    check("a $'b\\tc\\x41\\'' $\"d\"", &["a|b\tcA'|d"]);
    check("echo then do done { } in", &["echo|then|do|done|{|}|in"]);
}

#[test]
fn what_bash_may_read_in_two_ways_is_unsure() {
    for text in [
        "a $(time case x in y) ;; esac)",
        "a $(time { case x in y) ;; esac; })",
        "a $(b <<E &\nx\nE\n)",
        "a $(b <<E | c; \nx\nE\nd)",
        "a $(if b; then c; fi <<E\nx\nE\n)",
        "a $({ b <<E\nx\nE\n})",
        "-c a",
        "+x a",
        "a 'b",
        "a \"b",
        "a `b",
        "a $(b",
        "a ${b",
        "a <<E",
        "a <<E\nb",
        "a (b)",
        "a @(b)",
        "!(a)",
        "a;;",
        "a)",
        "}",
        "fi",
        "then a",
        "a | | b",
        "a &&",
        "; a",
        "for x in a",
        "if a; then b",
        "case x in a) b",
        "f()",
        "f() a",
        "a\r",
        "a\u{0}",
        "a\u{1b}[0m",
        "a \\",
        "${ a; }",
        "a ${x@P}",
        "a <<$x\n$x",
        "a $(b <<E)\nx\nE",
        "shopt -s extglob\na",
        "$(( a; b ))",
        "a \"${x:-'}'}\"",
        "a ${x:-<(b)}",
        "a > ; b",
    ] {
        assert!(read(text).unsure.is_some(), "{text:?}: {:?}", read(text).commands);
    }
}

#[test]
fn beyond_its_bounds_a_line_is_unsure_and_read_quickly() {
    let start = Instant::now();
    for part in [
        "(",
        "{ ",
        "$(",
        "`",
        "${x:-",
        "\"$(",
        "((",
        "$((",
        "if ",
        "a=(",
        "f() ",
        "[[ ",
        "case x in (",
        "<(",
        "a <<E\n",
        "'",
        "\"",
        "! ",
        "time ",
        "\\\n",
        "a|",
        "a;",
        "{a,",
        "[",
        "x[",
        "#",
        "<<",
        "$",
    ] {
        let text: String = part.repeat(MAX_TEXT / part.len());
        let _any = read(&text);
    }
    let deep = |depth: usize| format!("{}a{}", "(".repeat(depth), " )".repeat(depth));
    assert_eq!(read(&deep(MAX_DEPTH)).unsure, None);
    assert!(read(&deep(MAX_DEPTH + 1)).unsure.is_some());
    assert!(read(&"a;".repeat(MAX_COMMANDS + 1)).unsure.is_some());
    assert!(read(&"a".repeat(MAX_TEXT + 1)).unsure.is_some());
    // Far more than it takes on a busy machine, and far less than anything that is not linear.
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read(text in r#"([ab =$(){}\[\]`'"\\;&|<>!#~*?@+:.,1-]|\n|\t|é|\$\(|\$\{|<<E\n|\nE\n|if |then |fi|do |done|case |in |esac|for ){0,60}"#) {
        let line = read(&text);
        for command in &line.commands {
            prop_assert!(text.get(command.text.clone()).is_some());
        }
        prop_assert!(line.unsure.is_none_or(|unsure| unsure.at <= text.len()));
    }
}
