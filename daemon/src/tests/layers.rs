//! The order of the daemon's rooms, held by tests: a room imports only rooms below it, and the rooms inside a room import each
//! other without a circle.
//!
//! The table is the one of `daemon/README.md`, and a test holds the two against each other. There are no exceptions.

#[path = "../../../protocol/tests/source/mod.rs"]
pub(super) mod source;
#[path = "../../../protocol/tests/source/walls.rs"]
mod walls;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms, from the top down; `lib` is the crate's root with its programs.
const ROOMS: &[&str] = &[
    "lib",
    "keeper",
    "rpc",
    "face",
    "service",
    "registry",
    "recover",
    "session",
    "agent",
    "config",
    "mcp",
    "question",
    "tool",
    "provider",
    "store",
    "log",
    "process",
    "diagnostics",
    "sys",
    "fault",
];

/// Rooms whose inner rooms still import each other in a circle; the list only shrinks.
const OPEN: &[&str] = &[];

/// Folders below the second level whose rooms have no circle either.
const INNER: &[&str] = &["face::gateway", "face::gateway::openai", "question::permission"];

/// The room of a file, by its path below `src`.
fn room(path: &Path) -> String {
    let first = path.components().next().map(|part| part.as_os_str().to_string_lossy()).unwrap_or_default();
    let name = first.strip_suffix(".rs").unwrap_or(&first);
    if ["main", "tests"].contains(&name) { "lib".to_owned() } else { name.to_owned() }
}

/// The names that follow each `crate::` in a file, those in braces too.
fn imports(text: &str) -> BTreeSet<String> {
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut names = BTreeSet::new();
    for target in code.split("crate::").skip(1) {
        let Some(inner) = target.strip_prefix('{') else {
            names.insert(name(target));
            continue;
        };
        let (mut depth, mut begins) = (0, true);
        for (at, c) in inner.char_indices() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && !c.is_whitespace() => {
                    names.insert(name(&inner[at..]));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    names
}

/// The rooms above its own that a file imports, and what has no room.
fn up(path: &Path, text: &str) -> Vec<String> {
    let rank = |room: &str| ROOMS.iter().position(|known| *known == room);
    let Some(height) = rank(&room(path)) else { return vec![format!("(`{}` has no place in ROOMS)", room(path))] };
    imports(text).into_iter().filter(|target| rank(target).is_none_or(|depth| depth < height)).collect()
}

fn sources(below: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path());
    let all = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    all.filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
}

#[test]
fn every_import_of_the_daemon_goes_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let below = |path: &Path| path.strip_prefix(&root).unwrap().to_path_buf();
    let sources = sources(&root);
    let read = sources.iter().filter(|path| !path.ends_with("tests/layers.rs"));
    let read = read.map(|path| (below(path), fs::read_to_string(path).unwrap()));
    let arrows: Vec<(String, Vec<String>)> = read
        .map(|(path, text)| (path.display().to_string(), up(&path, &text)))
        .filter(|(_, rooms)| !rooms.is_empty())
        .collect();
    assert!(arrows.is_empty(), "these imports go up: {arrows:#?}");
    let empty = ROOMS.iter().find(|known| !sources.iter().any(|path| room(&below(path)) == **known));
    assert_eq!(empty, None, "a room without a file");
}

#[test]
fn the_table_of_the_readme_has_the_rooms_in_the_same_order() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let section = readme.split("\n## Rooms\n").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(rows.collect::<Vec<_>>(), ROOMS);
}

#[test]
fn an_import_that_goes_up_is_found() {
    let found = |path: &str, text: &str| up(Path::new(path), text);
    assert_eq!(found("store/mod.rs", "use crate::log::Log;\n// crate::session\n"), [""; 0]);
    assert_eq!(found("store/mod.rs", "use crate::session::state::State;\n"), ["session"]);
    assert_eq!(found("store/deep/er.rs", "fn f() { crate::rpc::run() }\n"), ["rpc"]);
    assert_eq!(found("keeper/mod.rs", "use crate::{\n    diagnostics::{secret, log}, lib,\n};\n"), ["lib"]);
    assert_eq!(found("store/mod.rs", "use crate::nowhere;\n"), ["nowhere"]);
    assert_eq!(found("nowhere.rs", "").len(), 1);
    assert_eq!(found("store/mod.rs", "use crate::face::gateway;\n"), ["face"]);
}

#[test]
fn the_rooms_inside_a_room_import_each_other_without_a_circle() {
    let faults = walls::faults(&source::read("daemon/src/lib.rs"), INNER, OPEN);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The faults of a crate with these files, each a path and a text.
fn circles(files: &[(&str, &str)], open: &[&str]) -> Vec<String> {
    let source = |(path, text): &(&str, &str)| {
        let module = path.trim_end_matches(".rs").split('/').filter(|part| *part != "mod").map(str::to_owned);
        source::source(Path::new(path), module.collect(), text)
    };
    walls::faults(&files.iter().map(source).collect::<Vec<_>>(), &[], open)
}

#[test]
fn a_circle_between_inner_rooms_is_found() {
    let circle = [
        ("a/mod.rs", "mod b;\nmod c;"),
        ("a/b.rs", "use super::c::{self, C};"),
        ("a/c.rs", "type X = crate::a::b::B;"),
    ];
    let found = circles(&circle, &[]);
    assert_eq!(found.len(), 1);
    for part in [
        "a circle in `a` of 2 of its 3 rooms: b, c",
        "b imports c: super::c::C (a/b.rs:1)",
        "crate::a::b::B (a/c.rs:1)",
    ] {
        assert!(found[0].contains(part), "{part} is not in {}", found[0]);
    }
    assert_eq!(circles(&circle, &["a"]), [""; 0]);
    assert_eq!(circles(&[circle[0]], &["a"]).len(), 0, "a room without a folder");
    assert_eq!(circles(&circle[..2], &["a"]).len(), 1, "an open room without a circle");
}

#[test]
fn the_roof_counts_for_what_it_defines_and_uses() {
    let child = ("a/b.rs", "use super::Name;\npub struct B;");
    let grandchild = ("a/c/d.rs", "use super::super::Name;\npub struct B;");
    assert_eq!(circles(&[("a/mod.rs", "struct Name; fn f(_: b::B) {}"), child], &[]).len(), 1);
    assert_eq!(circles(&[("a/mod.rs", "use b::B; struct Name;"), child], &[]).len(), 1);
    assert_eq!(circles(&[("a/mod.rs", "pub use b::B; struct Name; fn f(_: B) {}"), child], &[]).len(), 1);
    assert_eq!(circles(&[("a/mod.rs", "use c::d::B; struct Name;"), grandchild, ("a/c/mod.rs", "")], &[]).len(), 1);
    assert_eq!(circles(&[("a/mod.rs", "mod b; pub use b::B; struct Name;"), child], &[]).len(), 0);
    let reexported = [("a/mod.rs", "pub use c::Name; fn f(_: b::B) {}"), child, ("a/c.rs", "pub struct Name;")];
    assert_eq!(circles(&reexported, &[]).len(), 0);
}

#[test]
fn tests_tie_no_circle() {
    let text = "pub struct B;\n#[cfg(test)]\nmod tests { use super::super::Name; }\n// super::Name\nconst C: &str = \"super::Name\";";
    assert_eq!(circles(&[("a/mod.rs", "use b::B; struct Name;"), ("a/b.rs", text)], &[]).len(), 0);
    let outside = format!("{text}\nfn f(_: super::Name) {{}}");
    assert_eq!(circles(&[("a/mod.rs", "use b::B; struct Name;"), ("a/b.rs", &outside)], &[]).len(), 1);
}
