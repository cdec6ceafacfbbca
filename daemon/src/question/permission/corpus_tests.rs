//! The corpus of command lines, and lines that try to pass allow rules which are for other commands.

use super::*;

const CORPUS: &str = include_str!("corpus.txt");

fn line_of(text: &str) -> String {
    text.replace('⏎', "\n").replace('→', "\t")
}

#[test]
fn the_corpus_is_caught_and_runs() {
    let house = tests::house();
    std::fs::write(house.workspace.cwd.join("list"), "x").unwrap();
    let (mut rules, mut denies) = (Vec::new(), false);
    let (mut caught, mut run, mut wrong) = (0, 0, Vec::new());
    for line in CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
        let (sign, rest) = line.split_once(' ').unwrap();
        // Without the blank some are calls of other tools to the house.
        let text = format!(" {}", line_of(rest));
        let (expect, count) = match (sign, denies) {
            ("deny", _) => {
                (rules, denies) = (vec![rest], true);
                continue;
            }
            ("allow", _) => {
                denies = false;
                rules = rest.split(" bash(").collect();
                continue;
            }
            ("x", true) => (format!("deny: the rule {} forbids it", rules[0]), &mut caught),
            ("=", true) => ("allow: mode auto".to_owned(), &mut run),
            ("=", false) => ("allow: ".to_owned(), &mut run),
            ("?", false) => ("ask: ".to_owned(), &mut caught),
            _ => panic!("{line:?} has no sign"),
        };
        *count += 1;
        let verdict = if denies {
            house.verdict([&rules, &[], &[]], Mode::Auto, &text)
        } else {
            let allow: Vec<String> = rules
                .iter()
                .map(|rule| if rule.starts_with("bash(") { (*rule).to_owned() } else { format!("bash({rule}") })
                .collect();
            let allow: Vec<&str> = allow.iter().map(String::as_str).collect();
            house.verdict([&[], &[], &allow], Mode::Ask, &text)
        };
        if !verdict.starts_with(&expect) {
            wrong.push(format!("{line}\n    is {verdict}"));
        }
    }
    assert!(wrong.is_empty(), "{} lines:\n{}", wrong.len(), wrong.join("\n"));
    assert!(caught >= 250 && run >= 250, "{caught} are caught and {run} run");
}

/// Lines that must not pass `bash(ls:*)` and `bash(cargo test:*)`.
const HOSTILE: &[&str] = &[
    "ls; rm x",
    "ls\nrm x",
    "ls\n\nrm x",
    "ls \\\n; rm x",
    "ls # x\nrm x",
    "ls #\\\nrm x",
    "ls & rm x",
    "ls &",
    "ls | sh",
    "ls |& sh",
    "ls && rm x",
    "ls || rm x",
    "(ls; rm x)",
    "{ ls; rm x; }",
    "if ls; then rm x; fi",
    "while ls; do rm x; done",
    "until rm x; do ls; done",
    "! rm x",
    "time rm x",
    "time -p rm x",
    "time -- rm x",
    "ls $(rm x)",
    "ls \"$(rm x)\"",
    "ls `rm x`",
    "ls \"`rm x`\"",
    "ls ${x:-$(rm x)}",
    "ls $((`rm x`))",
    "ls $((a[$(rm x)]))",
    "ls $[`rm x`]",
    "ls <(rm x)",
    "ls >(rm x)",
    "ls <<E\n$(rm x)\nE",
    "ls <<E\n`rm x`\nE",
    "ls <<E\nx\nE\nrm x",
    "ls <<'E'\nE\nrm x",
    "ls <<E; rm x\nE",
    "ls <<-E\n\tE\nrm x",
    "ls <<E\nE \nE\nrm x",
    "ls <<\\E\nE\nrm x",
    "ls <<< $(rm x)",
    "ls > x",
    "ls >> x",
    "ls >| x",
    "ls &> x",
    "ls &>> x",
    "ls >& x",
    "ls <> x",
    "ls 2> x",
    "ls 3> x",
    "ls {fd}> x",
    "ls > /dev/null/../x",
    "ls > /dev/nullx",
    "ls > '/dev/null'x",
    "ls > /dev/null; rm x",
    "ls 2>&1; rm x",
    "ls 2>&1x",
    "ls >&x",
    "ls >/dev/tcp/h/1",
    "ls < /dev/tcp/h/1",
    "ls > $x",
    "ls > *",
    "ls 2>$(rm x)",
    "> x ls",
    "> x",
    "< x rm y",
    "PATH=. ls",
    "LD_PRELOAD=./x.so ls",
    "BASH_ENV=x ls",
    "ENV=x ls",
    "IFS=x ls",
    "PS4='$(rm x)' ls",
    "SHELLOPTS=xtrace ls",
    "LD_LIBRARY_PATH=. cargo test",
    "RUSTFLAGS=-Clinker=x cargo test",
    "RUSTC_WRAPPER=./x cargo test",
    "RUSTC=./x cargo test",
    "CARGO_TARGET_X_RUNNER=x cargo test",
    "CARGO_HOME=x cargo test",
    "CC=./x cargo test",
    "GIT_SSH_COMMAND=x ls",
    "HOME=x cargo test",
    "X=$(rm x) ls",
    "X=`rm x` ls",
    "X+=y ls",
    "X[0]=y ls",
    "X=(rm x) ls",
    "X=y",
    "PATH=.; ls",
    "PATH=. ; ls",
    "X=/tmp/x ls",
    "X=a\\\nb; rm x",
    "cargo test --config x",
    "cargo test --config=x",
    "cargo test --manifest-path x",
    "cargo test -C x",
    "cargo test -Zx",
    "cargo \\\ntest --config x",
    "cargo test '--config' x",
    "cargo test --c\"onfig\" x",
    "cargo test --con\\fig x",
    "RUST_BACKTRACE=1 cargo test --config x",
    "cargo test --config x 2>&1",
    "ls() { rm x; }; ls",
    "ls () { rm x; }\nls",
    "function ls { rm x; }; ls",
    "alias ls=rm; ls",
    "shopt -s expand_aliases; alias ls=rm\nls",
    "eval ls",
    "command ls",
    "exec ls",
    "builtin ls",
    "env ls",
    "sudo ls",
    "xargs ls",
    "coproc ls",
    "coproc rm x",
    "for i in x; do ls; done",
    "for PATH in .; do ls; done",
    "case x in x) ls;; esac",
    "select x in y; do ls; done",
    "[[ x ]] && ls",
    "((1)) && ls",
    "ls *",
    "ls ?",
    "ls [x]",
    "ls {a,b}",
    "ls ~",
    "ls $x",
    "ls \"$x\"",
    "ls ${x}",
    "ls $1",
    "ls $@",
    "ls $'a'",
    "ls $\"a\"",
    "{ls,-l}",
    "l? x",
    "l$x",
    "$x ls",
    "ls\u{a0}; rm x",
    "ls\r",
    "ls\r\nrm x",
    "ls\u{b}rm x",
    "ls\u{0}; rm x",
    "lѕ x",
    "ls\u{85}rm x",
    "ls é",
    "ls \"é\\\"; rm x; \"",
    "ls 'x",
    "ls \"x",
    "ls `",
    "ls $(",
    "ls (",
    "ls )",
    "ls ;;",
    "ls }",
    "ls; }",
    "ls; then",
    "then ls",
    "ls \\",
    "ls x(y)",
    "ls @(a)",
    "!(ls)",
    "%ls",
    "./ls",
    "/bin/ls",
    "-ls",
    "=ls",
    "ls=x",
    "cargotest",
    "cargo tests",
    "cargo 'test x'",
    "'ls '",
    "ls -l;rm x",
    "ls 2>&1&rm x",
    "ls && (rm x)",
    "ls | (rm x)",
    "ls && { rm x; }",
    "{ ls; } > x",
    "( ls ) 2> x",
    "if ls; then ls; fi > x",
    "while ls; do ls; done < /etc/shadow",
    "cd /etc && ls < shadow",
    "ls < link/x",
    "ls < .env",
    "ls < innocent",
    "ls 0< ../../out/x",
    "ls < \"$x\"",
    "ls <&3",
    "ls 3<&0",
    "ls <&-x",
    "trap 'rm x' EXIT; ls",
    "set -- rm x; ls",
    "hash -p ./x ls; ls",
    "enable -n ls; ls",
    "unset PATH; ls",
    "export PATH=.; ls",
    "printf -v PATH .; ls",
    "read PATH; ls",
    "let PATH=1; ls",
    ". x; ls",
    "source x; ls",
    "test -v 'a[$(rm x)]'; ls",
    "[ -v 'a[$(rm x)]' ]; ls",
    "ls; exec 3<x",
    "ls;:",
    "cd x; ls",
    "umask 0; ls",
    "ulimit -c 1; ls",
    "wait; ls",
    "ls |\nsh",
    "ls &&\nrm x",
    "ls ||\n\nrm x",
    "ls \\\n\\\n| sh",
    "ls &\\\n& rm x",
    "ls |\\\n| rm x",
    "ls >\\\nx",
    "ls $\\\n(rm x)",
    "ls \"$\\\n(rm x)\"",
    "ls '\\'; rm x; '\\'",
    "ls \"\\\\\"; rm x; \"\\\\\"",
    "ls $'\\''; rm x; '",
    "ls $'\\'; rm x; \\''",
];

#[test]
fn no_line_passes_allow_rules_that_are_for_other_commands() {
    let house = tests::house();
    assert!(HOSTILE.len() >= 200, "{}", HOSTILE.len());
    let rules = [&[][..], &["read(**/.env)"], &["bash(ls:*)", "bash(cargo test:*)"]];
    let passed: Vec<&&str> =
        HOSTILE.iter().filter(|line| house.verdict(rules, Mode::Ask, line).starts_with("allow")).collect();
    assert!(passed.is_empty(), "{passed:#?}");
}

#[test]
fn always_offers_a_rule_for_each_part_of_a_line() {
    let house = tests::house();
    let check = |text: &str, expect: &[&str]| {
        let call = CallInfo { tool: "bash", changes: true, access: Access::Command(text.to_owned()) };
        let resolved = ResolvedAccess::of(&call.access, &house.workspace, &Rules::default());
        let rules = grants_for(&call, &resolved);
        assert_eq!(rules, expect, "{text}");
        let allow: Vec<&str> = rules.iter().map(String::as_str).collect();
        assert!(house.verdict([&[], &[], &allow], Mode::Ask, text).starts_with("allow"), "{text}");
    };
    check("cargo test 2>&1 | tail -20", &["bash(cargo test:*)", "bash(tail -20)"]);
    check(
        "cd src && python3 -m pytest -q 2>&1 | tail -5",
        &["bash(cd src)", "bash(python3 -m pytest -q)", "bash(tail -5)"],
    );
    check("RUST_BACKTRACE=1 cargo test x", &["bash(cargo test:*)"]);
    check("git commit -m 'a; b' && git status", &["bash(git commit:*)", "bash(git status:*)"]);
    check("make 'a b' > /dev/null", &["bash(make 'a b')"]);
    check("echo 'it'\\''s' && make", &["bash(echo 'it'\\''s')", "bash(make)"]);
    check("echo x:* | cat", &["bash(echo x:* | cat)"]);
    check("echo 'x:*' | cat", &["bash(echo 'x:*')", "bash(cat)"]);
    check("ls; ls", &["bash(ls)"]);
    check("make $x && ls", &["bash(make $x && ls)"]);
    check("for i in 1; do make; done", &["bash(for i in 1; do make; done)"]);
    check("export A=b; make", &["bash(export A=b; make)"]);
    check("make > out", &["bash(make > out)"]);
}

#[test]
fn the_part_of_a_line_that_meets_a_rule_is_named() {
    let house = tests::house();
    let names = tests::names();
    let rules = |texts: &[&str]| texts.iter().map(|text| Rule::parse(text, &names).unwrap()).collect::<Vec<_>>();
    let check = |rules: Rules, text: &str, expect: &[(&str, Option<&str>)]| {
        let call = CallInfo { tool: "bash", changes: true, access: Access::Command(text.to_owned()) };
        let resolved = ResolvedAccess::of(&call.access, &house.workspace, &rules);
        let met = parts_met(&rules, &[], &call, &resolved);
        let met: Vec<_> = met.iter().map(|it| (it.part.as_str(), it.rule.as_deref())).collect();
        assert_eq!(met, expect, "{text}");
    };
    let deny = || Rules { deny: rules(&["bash(git push:*)"]), ..Rules::default() };
    check(deny(), "for r in a b; do X=1 git push $r; done", &[("X=1 git push $r", Some("bash(git push:*)"))]);
    check(deny(), "ls && sudo sh -c 'git push' | cat", &[("sudo sh -c 'git push'", Some("bash(git push:*)"))]);
    check(deny(), "ls", &[]);
    let allow = Rules { allow: rules(&["bash(cargo test:*)"]), ..Rules::default() };
    check(allow, "cargo test 2>&1 | tail -2", &[("cargo test 2>&1", Some("bash(cargo test:*)")), ("tail -2", None)]);
}
