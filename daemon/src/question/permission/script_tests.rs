//! What is read as simple commands, what is refused, and bash itself as the judge.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

fn read(script: &str) -> Option<Vec<Words>> {
    simple_commands(script)
}

#[test]
fn simple_commands_are_read_as_a_shell_reads_them() {
    let check = |script: &str, expect: &[&[&str]]| {
        let expect: Vec<Words> =
            expect.iter().map(|words| words.iter().map(|word| (*word).to_owned()).collect()).collect();
        assert_eq!(read(script), Some(expect), "{script}");
    };
    check("cargo test", &[&["cargo", "test"]]);
    check("  cargo   test ", &[&["cargo", "test"]]);
    check("a&&b||c;d|e", &[&["a"], &["b"], &["c"], &["d"], &["e"]]);
    check("git commit -m 'a; b' --author=\"x <y>\"", &[&["git", "commit", "-m", "a; b", "--author=x <y>"]]);
    check("a 'b'\"c\"d '' \"\"", &[&["a", "bcd", "", ""]]);
    check("make CC=gcc -j8 a/b.c,d:e+f@g%h", &[&["make", "CC=gcc", "-j8", "a/b.c,d:e+f@g%h"]]);
    check("a '$x `y` \\ ! * ~ # {1,2}' \"é ~ * # {1,2}\"", &[&["a", "$x `y` \\ ! * ~ # {1,2}", "é ~ * # {1,2}"]]);
    check("'a' x", &[&["a", "x"]]);
    check("echo if then", &[&["echo", "if", "then"]]);
}

#[test]
fn what_a_shell_could_read_otherwise_is_refused() {
    for script in [
        "",
        " ",
        ";",
        "a;",
        ";a",
        "a;;b",
        "a&",
        "a&b",
        "a &&",
        "a && && b",
        "a | | b",
        "a |& b",
        "a ||| b",
        "a &&& b",
        "a\nb",
        "a\tb",
        "a\rb",
        "a\u{b}b",
        "a \u{7f}",
        "a \u{85}",
        "a\u{a0}b",
        "é",
        "a é",
        "a 'b\nc'",
        "a \"b\nc\"",
        "a 'b",
        "a \"b",
        "a b'",
        "$a",
        "a $b",
        "a \"$b\"",
        "a `b`",
        "a \"`b`\"",
        "a $(b)",
        "a \"\\$b\"",
        "a \\b",
        "\\a",
        "a\\ b",
        "a b\\",
        "(a)",
        "{ a; }",
        "a {b,c}",
        "a {}",
        "a *",
        "a ?",
        "a [b]",
        "[ a ]",
        "a ~",
        "~/a",
        "a b=~/c",
        "a #b",
        "a b#c",
        "a >b",
        "a 2>b",
        "a <b",
        "a <<<b",
        "a <(b)",
        "A=b",
        "A=b c",
        "A+=b c",
        "'A'=b c",
        "a^b",
        "a!b",
        "! a",
        "a \"b!c\"",
        "=a",
        "a =b",
        "-a",
        "+a",
        "@a",
        ":",
        "%1",
        "1%",
        "''",
        "\"\" a",
        "if a",
        "'then' a",
        "time a",
        "coproc a",
        "function a",
        "for a",
        "a && while b",
        "a; do b",
    ] {
        assert_eq!(read(script), None, "{script:?}");
    }
}

#[test]
fn builtins_that_evaluate_are_known() {
    for name in EVALUATING {
        assert!(evaluates(&[name.to_owned()]), "{name}");
    }
    assert!(EVALUATING.is_sorted() && RESERVED.is_sorted());
    assert!(!evaluates(&["echo".to_owned()]));
}

/// How many scripts the judge sees: a few hundred in a test, more by night.
fn scripts() -> u64 {
    std::env::var("LINGER_TEST_SCRIPTS").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}

/// Programs of the shims; `own` is what the rule of the law below names.
const PROGRAMS: [&str; 4] = ["own", "other", "ls", "A"];

/// What scripts are made of: what reads as a part of simple commands, and what only nearly does.
const PARTS: [&str; 72] = [
    "own", "own", "own", "own", "other", "ls", "A", "eval", "command", "exec", ".", "builtin", "alias", "export",
    "set", "if", "then", "time", "coproc", " ", " ", " ", " ", " ", " ", " && ", " || ", ";", " | ", "|", "&&", "&",
    "\n", "\t", "\r", "'", "'", "\"", "\"", "\\", "$", "$(", ")", "`", "{", "}", "(", "*", "?", "[", "]", "~", "#",
    "!", "<", ">", "=", "A=", "-c", "-", "+", "%", "^", ":", ",", "@", "\u{b}", "\u{a0}", "é", "x y", "'a b'",
    "\"c d\"",
];

/// Shims in a directory of their own: each adds its words to `ran`, one command a line, each word in brackets.
fn shims(dir: &Path) {
    for name in PROGRAMS {
        let file = dir.join("bin").join(name);
        // In one write: the commands of a pipe run side by side.
        let text = format!(
            "#!/bin/bash\nprintf -v line '[%q]' {name} \"$@\"\nprintf '%s\\n' \"$line\" >> {}\n",
            dir.join("ran").display()
        );
        fs::create_dir_all(dir.join("bin")).unwrap();
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
    }
}

/// A line of `ran`, with the quotes of bash taken away by bash.
fn line(bash: &Path, words: &[String]) -> String {
    #[allow(clippy::disallowed_methods, reason = "bash is the judge of this test")]
    let out = Command::new(bash).args(["-c", "printf '[%q]' \"$@\"", "bash"]).args(words).output().unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn bash_runs_the_commands_that_were_read_and_no_others() {
    let bash = Path::new("/bin/bash");
    if !bash.exists() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    shims(dir.path());
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("other"), "other\n").unwrap();
    let ran = dir.path().join("ran");
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        // xorshift64: the same scripts in every run.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 33) as usize % below
    };
    let (mut judged, mut tried) = (0, 0_u64);
    while judged < scripts() {
        tried += 1;
        assert!(tried < 1000 * scripts(), "{judged} of {tried} scripts are read");
        let script: String = (0..=next(9)).map(|_| PARTS[next(PARTS.len())]).collect();
        let Some(commands) = read(&script).filter(|commands| !commands.iter().any(|words| evaluates(words))) else {
            continue;
        };
        judged += 1;
        #[allow(clippy::disallowed_methods, reason = "bash is the judge of this test")]
        let status = Command::new(bash)
            .args(["--norc", "--noprofile", "-c", &script])
            .current_dir(&work)
            .env_clear()
            .env("PATH", dir.path().join("bin"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_ne!(status.code(), Some(2), "a syntax error: {script:?}");
        let ran_lines = fs::read_to_string(&ran).unwrap_or_default();
        let _none = fs::remove_file(&ran);
        let known: Vec<String> = commands.iter().map(|words| line(bash, words)).collect();
        for ran in ran_lines.lines() {
            assert!(known.iter().any(|known| known == ran), "{script:?} is read as {known:?} and ran {ran}");
        }
        let first = commands.first().filter(|words| PROGRAMS.contains(&words[0].as_str()));
        assert!(first.is_none() || !ran_lines.is_empty(), "{script:?} ran nothing");
        let left: Vec<_> = fs::read_dir(&work).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["other"], "{script:?} made a file");
    }
}
