//! The order of the client's rooms, held by tests: a room imports only rooms below it, and the rooms inside a room import each
//! other without a circle.

#[path = "../../protocol/tests/source/mod.rs"]
mod source;
#[path = "../../protocol/tests/source/walls.rs"]
mod walls;

use std::fs;
use std::path::{Path, PathBuf};

/// The rooms, from the top down; `lib` is the crate's root with its programs.
const ROOMS: &[&str] = &[
    "lib",
    "command",     // one file a subcommand
    "repl",        // the readline loop
    "acp",         // the bridge for editors
    "arguments",   // the command line, as clap reads it
    "follow",      // an attached session
    "question",    // permissions, as questions to a person
    "difference",  // what a call would do to files
    "attachable",  // `@server:uri` and `/server:prompt`
    "mention",     // `@file` in a prompt
    "picture",     // `@picture.png` in a prompt
    "render",      // events as text
    "connect",     // the connection, and the way to it
    "input",       // keys, lines, signals
    "terminal",    // the terminal and its settings
    "capacity",    // how much may be unread
    "idempotency", // keys of requests
    "environment", // directory, clock, home
    "error",       // exit codes and failures
];

/// Rooms whose inner rooms still import each other in a circle; the list only shrinks.
const OPEN: &[&str] = &[];

/// The room of a file, by its path below `src`.
fn room(path: &Path) -> String {
    let first = path.components().next().map(|part| part.as_os_str().to_string_lossy()).unwrap_or_default();
    let name = first.strip_suffix(".rs").unwrap_or(&first);
    if ["main", "layers"].contains(&name) { "lib".to_owned() } else { name.to_owned() }
}

/// What is wrong with the imports of a file.
fn faults(path: &Path, text: &str) -> Vec<String> {
    let rank = |room: &str| ROOMS.iter().position(|known| *known == room);
    let (from, at) = (room(path), path.display());
    let Some(height) = rank(&from) else { return vec![format!("{at}: the room `{from}` has no place in ROOMS")] };
    let top = path.components().count() == 1 || path.ends_with("mod.rs") && path.components().count() == 2;
    let mut faults = Vec::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        if from != "lib" && (line.contains("super::super::") || (top && line.starts_with("use super::"))) {
            faults.push(format!("{at}: a room is imported by its name: {}", line.trim()));
        }
        for target in line.split("crate::").skip(1) {
            let end = target.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(target.len());
            match rank(&target[..end]) {
                Some(depth) if depth >= height => {}
                Some(_) => faults.push(format!("{at}: `{from}` imports `{}`, which stands above it", &target[..end])),
                None => faults.push(format!("{at}: no room: {}", line.trim())),
            }
        }
    }
    faults
}

fn sources(below: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn every_import_of_the_client_goes_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let sources = sources(&root);
    let below = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_path_buf();
    let others = sources.iter().filter(|path| !path.ends_with("layers.rs"));
    let faults: Vec<_> = others.flat_map(|path| faults(&below(path), &fs::read_to_string(path).unwrap())).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let gone = ROOMS.iter().find(|known| !sources.iter().any(|path| room(&below(path)) == **known));
    assert_eq!(gone, None, "a room without a file");
}

#[test]
fn an_import_that_goes_up_is_found() {
    let found = |path: &str, text: &str| faults(Path::new(path), text).len();
    assert_eq!(found("render/mod.rs", "use crate::terminal::Output;\n// crate::command\n"), 0);
    assert_eq!(found("render/mod.rs", "use crate::command::now;\n"), 1);
    assert_eq!(found("render/tool.rs", "fn f() { crate::repl::run() }\n"), 1);
    assert_eq!(found("error.rs", "use super::terminal::Terminal;\n"), 1);
    assert_eq!(found("terminal/clean.rs", "use super::super::input::Key;\n"), 1);
    assert_eq!(found("render/mod.rs", "use crate::{command, error};\n"), 1);
    assert_eq!(found("gateway.rs", ""), 1);
}

#[test]
fn the_rooms_inside_a_room_import_each_other_without_a_circle() {
    let faults = walls::faults(&source::read("client/src/lib.rs"), &[], OPEN);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
