//! Habits that product code of all three crates is kept free of, counted for each room.
//!
//! The numbers in [`ALLOWED`] and [`NAMES`] only shrink: a room with more fails, and so does a room with fewer, so that its number
//! is lowered in the same change. A failure prints the places and the tables to paste. It is a test of this crate because this one
//! builds in seconds.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // A panic is how a test speaks.

mod source;

use std::collections::BTreeMap;

use source::{Source, Token, closing, read};

/// The habits, in the order of the columns of [`ALLOWED`].
const HABITS: [&str; 5] = [
    "a doc comment that begins with Of, So many, That, Those or What: begin with the noun",
    "a tuple as a parameter: give each part a parameter, or name them in a struct",
    "a match on a bool: write if and else",
    "into_iter().for_each(…): write for, or if let for an Option",
    "a doc comment that repeats the name: give the unit, the bound, the owner or when it is absent",
];

/// How often each room still has each of [`HABITS`]; rooms that are not listed have none.
#[rustfmt::skip]
const ALLOWED: &[(&str, [usize; 5])] = &[
];

/// Names of more than two types, with how many there are.
#[rustfmt::skip]
const NAMES: &[(&str, usize)] = &[
    ("About", 3),
    ("Answer", 6),
    ("Args", 19),
    ("Batch", 3),
    ("Call", 3),
    ("Cancel", 3),
    ("Choice", 4),
    ("Command", 3),
    ("Confirmed", 3),
    ("Connection", 3),
    ("Content", 4),
    ("Decoder", 3),
    ("Entry", 6),
    ("Failure", 4),
    ("Get", 3),
    ("Gone", 3),
    ("Info", 3),
    ("Key", 3),
    ("Keys", 3),
    ("List", 8),
    ("Log", 3),
    ("Login", 3),
    ("Merge", 3),
    ("Message", 4),
    ("Named", 4),
    ("Names", 3),
    ("Notification", 3),
    ("Output", 3),
    ("Peer", 3),
    ("Pending", 3),
    ("Piece", 5),
    ("Place", 3),
    ("Places", 3),
    ("Program", 3),
    ("Queue", 3),
    ("Remove", 3),
    ("Report", 3),
    ("Request", 4),
    ("Resource", 3),
    ("Scope", 5),
    ("Search", 5),
    ("Seen", 3),
    ("Server", 5),
    ("Set", 4),
    ("Shown", 3),
    ("Skill", 3),
    ("Source", 3),
    ("Start", 3),
    ("State", 3),
    ("Status", 4),
    ("Step", 3),
    ("Stream", 4),
    ("Target", 4),
    ("Text", 3),
    ("Token", 3),
    ("Tool", 3),
    ("Turn", 5),
    ("Usage", 3),
    ("Waiting", 4),
    ("Workspace", 3),
    ("Write", 4),
    ("Written", 3),
];

/// How a value is encoded whose errors must not become an empty text.
const ENCODERS: [&str; 4] = ["to_string(", "to_string_pretty(", "to_vec(", "to_value("];

/// The crates' roots.
const ROOTS: [&str; 5] =
    ["client/src/lib.rs", "client/src/main.rs", "daemon/src/lib.rs", "daemon/src/main.rs", "protocol/src/lib.rs"];

/// A place of a habit: its column, and the line as text.
type Place = (usize, String);

fn sources() -> Vec<Source> {
    ROOTS.into_iter().flat_map(read).collect()
}

/// The room of a file: `daemon/store`; all of the protocol is one.
fn room(source: &Source) -> String {
    let name = source.path.components().next().unwrap().as_os_str().to_string_lossy();
    match source.module.first() {
        _ if name == "protocol" => name.into_owned(),
        Some(first) => format!("{name}/{first}"),
        None => format!("{name}/lib"),
    }
}

/// The places of all habits in a file.
fn places(source: &Source) -> Vec<Place> {
    let lines: Vec<&str> = source.text.lines().collect();
    let place = |habit, line: usize| {
        let text = lines.get(line - 1).copied().unwrap_or_default().trim();
        (habit, format!("{}:{line}: {text}", source.path.display()))
    };
    let (docs, echoes) = comments(&lines);
    let columns = [docs, tuples(&source.tokens), bools(&source.tokens), loops(&source.tokens), echoes];
    let mut places = Vec::new();
    for (habit, found) in columns.into_iter().enumerate() {
        places.extend(found.into_iter().map(|line| place(habit, line)));
    }
    places
}

/// The lines of doc comments that begin with a word to avoid, and of those that repeat the name of their item.
fn comments(lines: &[&str]) -> (Vec<usize>, Vec<usize>) {
    const AVOIDED: [&str; 5] = ["Of ", "So many", "That ", "Those ", "What "];
    let (mut begin, mut echo, mut inside) = (Vec::new(), Vec::new(), false);
    for (at, line) in lines.iter().enumerate() {
        let line = line.trim_start();
        let is_head = at == 0 && line.starts_with("//!");
        let comment = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! ").filter(|_| is_head));
        let Some(comment) = comment.filter(|_| !inside) else {
            inside = line.starts_with("///");
            continue;
        };
        inside = line.starts_with("///");
        if AVOIDED.iter().any(|word| comment.starts_with(word)) {
            begin.push(at + 1);
        }
        let item = lines.iter().skip(at + 1).map(|line| line.trim()).find(|line| !line.starts_with("#["));
        if comment.split(' ').count() <= 3 && item.is_some_and(|item| repeats(comment, item)) {
            echo.push(at + 1);
        }
    }
    (begin, echo)
}

/// Whether each word of a comment, but for articles and the like, is one of the item's name or type.
fn repeats(comment: &str, item: &str) -> bool {
    const SMALL: [&str; 9] = ["the", "a", "an", "its", "their", "of", "this", "all", "these"];
    if item.starts_with("//") {
        return false;
    }
    let known = words(item);
    let said: Vec<String> = words(comment).into_iter().filter(|word| !SMALL.contains(&word.as_str())).collect();
    let is_known = |word: &String| known.iter().any(|known| known.trim_end_matches('s') == word.trim_end_matches('s'));
    !said.is_empty() && said.iter().all(is_known)
}

/// The words of a text or of its identifiers, in lower case.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in text.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        words.last_mut().unwrap().extend(c.to_lowercase().filter(|c| c.is_alphanumeric()));
    }
    words.retain(|word| !word.is_empty());
    words
}

fn text(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| token.text.as_str())
}

/// The lines of parameters that are tuples, by pattern or by type.
fn tuples(tokens: &[Token]) -> Vec<usize> {
    let mut found = Vec::new();
    for at in (0..tokens.len()).filter(|at| text(tokens, *at) == "fn") {
        let mut open = at + 2;
        if text(tokens, open) == "<" {
            let mut depth = 0;
            while open < tokens.len() {
                match text(tokens, open) {
                    "<" => depth += 1,
                    ">" => depth -= 1,
                    _ => {}
                }
                open += 1;
                if depth == 0 {
                    break;
                }
            }
        }
        if text(tokens, open) != "(" {
            continue;
        }
        let end = closing(tokens, open);
        let mut next = open + 1;
        let mut begins = true;
        while next < end {
            if begins && is_tuple(tokens, next) {
                found.push(tokens[next].line);
            }
            begins = [",", ":"].contains(&text(tokens, next)) || begins && is_sigil(text(tokens, next));
            next = if ["(", "[", "{"].contains(&text(tokens, next)) { closing(tokens, next) + 1 } else { next + 1 };
        }
    }
    found.dedup();
    found
}

fn is_sigil(token: &str) -> bool {
    token == "&" || token == "mut" || token.starts_with('\'')
}

/// Whether a tuple of two or more begins here.
fn is_tuple(tokens: &[Token], open: usize) -> bool {
    if text(tokens, open) != "(" {
        return false;
    }
    let end = closing(tokens, open);
    let mut at = open + 1;
    while at < end {
        if text(tokens, at) == "," {
            return true;
        }
        at = if ["(", "[", "{"].contains(&text(tokens, at)) { closing(tokens, at) + 1 } else { at + 1 };
    }
    false
}

/// The lines of matches whose first arm is a bool.
fn bools(tokens: &[Token]) -> Vec<usize> {
    let is_bool = |at: &usize| {
        text(tokens, *at) == "{" && ["true", "false"].contains(&text(tokens, at + 1)) && text(tokens, at + 2) == "=>"
    };
    (0..tokens.len()).filter(is_bool).map(|at| tokens[at].line).collect()
}

/// The lines of `.into_iter().for_each(`.
fn loops(tokens: &[Token]) -> Vec<usize> {
    const CALL: [&str; 5] = ["into_iter", "(", ")", ".", "for_each"];
    let is_call = |at: &usize| CALL.iter().enumerate().all(|(i, part)| text(tokens, at + i) == *part);
    (0..tokens.len()).filter(is_call).map(|at| tokens[at + 4].line).collect()
}

/// The names of the types that a file defines, with their lines.
fn types(tokens: &[Token]) -> Vec<(&str, usize)> {
    let is_type = |pair: &&[Token]| ["struct", "enum", "union", "trait"].contains(&pair[0].text.as_str());
    let is_name = |pair: &&[Token]| pair[1].text.starts_with(char::is_uppercase);
    tokens.windows(2).filter(is_type).filter(is_name).map(|pair| (pair[1].text.as_str(), pair[1].line)).collect()
}

#[test]
fn rooms_have_no_more_of_a_habit_than_they_had() {
    let mut counts: BTreeMap<String, [usize; 5]> = BTreeMap::new();
    let mut found: BTreeMap<String, Vec<Place>> = BTreeMap::new();
    for source in sources() {
        let room = room(&source);
        for place in places(&source) {
            counts.entry(room.clone()).or_default()[place.0] += 1;
            found.entry(room.clone()).or_default().push(place);
        }
    }
    let allowed: BTreeMap<String, [usize; 5]> =
        ALLOWED.iter().map(|(room, counts)| ((*room).to_owned(), *counts)).collect();
    if counts == allowed {
        return;
    }
    let mut report = String::new();
    for (room, places) in &found {
        let allowed = allowed.get(room).copied().unwrap_or_default();
        for (habit, name) in HABITS.iter().enumerate().filter(|(habit, _)| counts[room][*habit] > allowed[*habit]) {
            report += &format!("{room} has {} in place of {} of {name}\n", counts[room][habit], allowed[habit]);
            places.iter().filter(|place| place.0 == habit).for_each(|(_, place)| report += &format!("    {place}\n"));
        }
    }
    let table: String = counts.iter().map(|(room, counts)| format!("    (\"{room}\", {counts:?}),\n")).collect();
    panic!("{report}\nthe numbers are others than in ALLOWED; those of now are\n{table}");
}

#[test]
fn no_name_is_that_of_more_types_than_it_was() {
    let sources = sources();
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for source in &sources {
        for (name, line) in types(&source.tokens) {
            found.entry(name).or_default().push(format!("{}:{line}", source.path.display()));
        }
    }
    found.retain(|_, places| places.len() > 2);
    let counts: Vec<(&str, usize)> = found.iter().map(|(name, places)| (*name, places.len())).collect();
    if counts == NAMES {
        return;
    }
    let mut report = String::new();
    for (name, places) in found.iter().filter(|(name, places)| !NAMES.contains(&(**name, places.len()))) {
        report += &format!("{} types are called {name}:\n    {}\n", places.len(), places.join("\n    "));
    }
    let table: String = counts.iter().map(|(name, count)| format!("    (\"{name}\", {count}),\n")).collect();
    panic!("{report}\nthe names are others than in NAMES; those of now are\n{table}");
}

/// The habits that are found in a text, each with its line.
fn check(text: &str, expect: &[(usize, usize)]) {
    let source = source::source("daemon/src/x.rs".as_ref(), vec!["x".to_owned()], text);
    let line = |(habit, place): Place| (habit, place.split(':').nth(1).unwrap().parse().unwrap());
    assert_eq!(places(&source).into_iter().map(line).collect::<Vec<(usize, usize)>>(), expect, "{text}");
}

#[test]
fn planted_habits_are_found() {
    check("/// So many parts.\nconst A: u8 = 1;\n/// Parts.\n/// Of each.\nconst B: u8 = 1;", &[(0, 1)]);
    check("//! Of rooms.\n\n/// What it is.\nstruct S;\n// That is fine.", &[(0, 1), (0, 3)]);
    check("fn f<T: Fn(u8) -> u8>((a, b): (u8, u8), c: &T) {}", &[(1, 1)]);
    check(
        "fn f(\n    a: u8,\n    pair: &'a (A, B<C>),\n    f: &(dyn F + Send), g: fn((A, B)), h: [(A, B); 2], i: ()) {}",
        &[(1, 3)],
    );
    check("fn f() -> u8 { match a {\n true => 1, false => 2 } }", &[(2, 1)]);
    check(
        "fn f() { match a { Some(true) => 1, _ => { x(true) } }; a\n.into_iter()\n.for_each(drop); b.iter().for_each(drop) }",
        &[(3, 3)],
    );
    check(
        "struct S {\n    /// The session.\n    session: Id,\n    /// Its name.\n    #[serde(default)]\n    name: String,\n    /// The store.\n    disk: Store,\n    /// In bytes.\n    size: u64,\n}",
        &[(4, 2), (4, 4), (4, 7)],
    );
    check(
        "/// Not for tests.\n#[cfg(test)]\nmod tests {\n    /// What it is.\n    fn f((a, b): (u8, u8)) {}\n}\nconst S: &str = \"match a { true => 1 }\";",
        &[],
    );
}

#[test]
fn what_cannot_be_encoded_is_an_error_and_never_empty() {
    let is_encoded = |line: &str| ENCODERS.iter().any(|encoder| line.contains(&format!("serde_json::{encoder}")));
    let empty = |source: Source| {
        let lines =
            source.text.lines().zip(1..).filter(|(line, _)| is_encoded(line) && line.contains("unwrap_or_default"));
        lines.map(|(line, at)| format!("{}:{at}: {}", source.path.display(), line.trim())).collect::<Vec<_>>()
    };
    let found: Vec<String> = sources().into_iter().flat_map(empty).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_path_in_a_message_or_a_state_takes_any_name() {
    let mut found = Vec::new();
    for source in sources() {
        let lines: Vec<&str> = source.text.lines().collect();
        let mut derives = false;
        for (at, line) in lines.iter().enumerate() {
            let text = line.trim_start();
            if text.starts_with("#[derive(") {
                derives = text.contains("Serialize");
            }
            let is_field = text.ends_with("PathBuf,") || text.ends_with("PathBuf>,") || text.ends_with("PathBuf>>,");
            let before = at.checked_sub(1).and_then(|at| lines.get(at)).copied().unwrap_or_default();
            if derives && is_field && text.contains(": ") && !before.contains("path::PathText::<") {
                found.push(format!("{}:{}: {text}", source.path.display(), at + 1));
            }
            if *line == "}" {
                derives = false;
            }
        }
    }
    assert!(found.is_empty(), "give these `#[serde(with = \"…path::PathText::<TYPE>\")]`: {found:#?}");
}
