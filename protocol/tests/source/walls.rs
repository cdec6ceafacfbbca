//! Import circles between the rooms inside a room.
//!
//! A room is the file or folder directly below a folder; the folder's `mod.rs` is its roof, called `mod`. A name that the roof
//! re-exports belongs to the room that defines it, so such an import is one of that room. The roof's `pub use` is no import as
//! long as the roof itself does not use the name.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, Token, closing};

/// An import of one room by another.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Import {
    /// The room that imports.
    from: String,
    /// The room that is imported.
    to: String,
    /// The name, with its file and line.
    place: String,
}

/// The modules of a crate, with the names that each defines and takes from others.
struct Modules<'a> {
    modules: BTreeMap<&'a [String], Module<'a>>,
}

struct Module<'a> {
    source: &'a Source,
    defined: BTreeSet<&'a str>,
    uses: Vec<Use>,
}

/// A name that a `use` brings into a module.
#[derive(Debug)]
struct Use {
    /// The name in this module; `*` for all names.
    name: String,
    /// The path as it is written.
    path: Vec<String>,
    /// Whether others can import the name from here.
    public: bool,
    line: usize,
}

/// The circles in the rooms of a crate and in the folders `inner`. A room of `open` may have one; without one it is a fault too.
pub(crate) fn faults(sources: &[Source], inner: &[&str], open: &[&str]) -> Vec<String> {
    let modules = Modules::of(sources);
    let folders = modules.folders().into_iter().chain(inner.iter().map(|&room| room.to_owned()));
    let mut faults = Vec::new();
    for room in folders {
        let circles = modules.circles(&room);
        if !open.contains(&room.as_str()) {
            faults.extend(circles);
        } else if circles.is_empty() {
            faults.push(format!("`{room}` has no circle any more: take it out of the list of open rooms"));
        }
    }
    faults
}

impl<'a> Modules<'a> {
    fn of(sources: &'a [Source]) -> Self {
        let module =
            |source: &'a Source| Module { source, defined: defined(&source.tokens), uses: uses(&source.tokens) };
        Self { modules: sources.iter().map(|source| (source.module.as_slice(), module(source))).collect() }
    }

    /// The first-level rooms that are folders.
    fn folders(&self) -> BTreeSet<String> {
        self.modules.keys().filter(|path| path.len() > 1).map(|path| path[0].clone()).collect()
    }

    /// The rooms directly below `room`, its roof too.
    fn rooms(&self, room: &[String]) -> BTreeSet<String> {
        self.modules.keys().filter_map(|path| place(room, path)).collect()
    }

    /// The imports between the rooms directly below `room`.
    fn imports(&self, room: &[String]) -> BTreeSet<Import> {
        let mut imports = BTreeSet::new();
        for (path, module) in &self.modules {
            let Some(from) = place(room, path) else { continue };
            for (names, line) in self.paths(path, module) {
                let target = self.owner(path, &names, 0);
                let Some(to) = target.and_then(|owner| place(room, &owner)).filter(|to| *to != from) else { continue };
                let place = format!("{} ({}:{line})", names.join("::"), module.source.path.display());
                imports.insert(Import { from: from.clone(), to, place });
            }
        }
        imports
    }

    /// The paths that a module names, each with its line.
    fn paths(&self, path: &[String], module: &Module<'_>) -> Vec<(Vec<String>, usize)> {
        let tokens = &module.source.tokens;
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
        let statements = statements(tokens);
        let in_use = |at: usize| statements.iter().any(|&(from, to)| from <= at && at <= to);
        let used = |name: &str| {
            let bare = |at: usize| at == 0 || ![".", "fn", "::"].contains(&text(at - 1));
            (0..tokens.len()).any(|at| text(at) == name && bare(at) && !in_use(at))
        };
        let imported = module.uses.iter().filter(|import| !import.public || used(&import.name));
        let mut paths: Vec<_> = imported.map(|import| (import.path.clone(), import.line)).collect();
        let inline = inline_modules(tokens);
        for (at, token) in tokens.iter().enumerate() {
            let begins = text(at + 1) == "::" && (at == 0 || !["::", "in"].contains(&text(at - 1))) && !in_use(at);
            if !begins || !self.begins_here(path, module, text(at)) {
                continue;
            }
            let mut names = vec![text(at).to_owned()];
            let mut next = at + 1;
            while text(next) == "::" && text(next + 1).starts_with(|c: char| c.is_alphabetic() || c == '_') {
                names.push(text(next + 1).to_owned());
                next += 2;
            }
            // Inside `mod x { … }` the first `super` is this module.
            if names[0] == "super" && inline.iter().any(|&(from, to)| from < at && at < to) {
                names[0] = "self".to_owned();
            }
            paths.push((names, token.line));
        }
        paths
    }

    /// Whether a path that begins with this name may lead to another module of this crate.
    fn begins_here(&self, path: &[String], module: &Module<'_>, name: &str) -> bool {
        let child = [path, &[name.to_owned()]].concat();
        ["crate", "super", "self"].contains(&name)
            || self.modules.contains_key(child.as_slice())
            || module.uses.iter().any(|import| import.name == name && name.starts_with(char::is_lowercase))
    }

    /// The module in which the name at the end of a path is defined, if it is one of this crate.
    fn owner(&self, from: &[String], names: &[String], depth: usize) -> Option<Vec<String>> {
        let (first, rest) = names.split_first()?;
        let start = match first.as_str() {
            _ if depth > 16 => return None,
            "crate" => Vec::new(),
            "self" => from.to_vec(),
            "super" => from.split_last()?.1.to_vec(),
            _ => return self.owner_in(from, names, depth, false),
        };
        if rest.first().is_some_and(|next| next == "super") {
            return self.owner(&start, rest, depth + 1);
        }
        self.owner_in(&start, rest, depth, true)
    }

    /// The same for a path whose first name is one of the module at `here`. With `sure`, a name that cannot be found there is
    /// taken for one that a macro defines there.
    fn owner_in(&self, here: &[String], names: &[String], depth: usize, sure: bool) -> Option<Vec<String>> {
        let Some((first, rest)) = names.split_first() else { return Some(here.to_vec()) };
        let child = [here, std::slice::from_ref(first)].concat();
        if self.modules.contains_key(child.as_slice()) {
            return self.owner_in(&child, rest, depth, true);
        }
        let module = self.modules.get(here)?;
        if module.defined.contains(first.as_str()) || first == "*" {
            return Some(here.to_vec());
        }
        if let Some(import) = module.uses.iter().find(|import| import.name == *first) {
            let whole = [import.path.as_slice(), rest].concat();
            return if import.path.first() == Some(first) && import.path.len() == 1 {
                None
            } else {
                self.owner(here, &whole, depth + 1)
            };
        }
        let globs = module.uses.iter().filter(|import| import.name == "*");
        let mut through = globs.filter_map(|import| {
            let path = &import.path[..import.path.len() - 1];
            let target = self.owner(here, path, depth + 1)?;
            let known = self.modules.get(target.as_slice())?.defined.contains(first.as_str());
            known.then_some(target)
        });
        through.next().or_else(|| sure.then(|| here.to_vec()))
    }

    /// The circles inside `room`, each as a text that names its rooms and the imports that tie it.
    fn circles(&self, room: &str) -> Vec<String> {
        let path: Vec<String> = room.split("::").map(str::to_owned).collect();
        let imports = self.imports(&path);
        let reached = |from: &str| {
            let mut reached = BTreeSet::new();
            let mut open = vec![from.to_owned()];
            while let Some(at) = open.pop() {
                let next = imports.iter().filter(|import| import.from == at).map(|import| import.to.clone());
                open.extend(next.filter(|next| reached.insert(next.clone())));
            }
            reached
        };
        let rooms = self.rooms(&path);
        let reach: BTreeMap<&String, BTreeSet<String>> = rooms.iter().map(|room| (room, reached(room))).collect();
        let tied = |a: &String, b: &String| reach[a].contains(b) && reach[b].contains(a);
        let circles: BTreeSet<Vec<&String>> = rooms
            .iter()
            .filter(|room| tied(room, room))
            .map(|room| rooms.iter().filter(|other| tied(room, other)).collect())
            .collect();
        let show = |circle: &Vec<&String>| {
            let inside = imports.iter().filter(|import| circle.contains(&&import.from) && circle.contains(&&import.to));
            let names: Vec<&str> = circle.iter().map(|name| name.as_str()).collect();
            let ties: String =
                inside.map(|import| format!("\n    {} imports {}: {}", import.from, import.to, import.place)).collect();
            format!("a circle in `{room}` of {} of its {} rooms: {}{ties}", circle.len(), rooms.len(), names.join(", "))
        };
        circles.iter().map(show).collect()
    }
}

/// The room directly below `room` that a module is in.
fn place(room: &[String], module: &[String]) -> Option<String> {
    let inside = module.strip_prefix(room)?;
    Some(inside.first().map_or("mod", String::as_str).to_owned())
}

/// The names of the items at the top of a file.
fn defined(tokens: &[Token]) -> BTreeSet<&str> {
    const ITEMS: &[&str] = &["fn", "struct", "enum", "trait", "type", "const", "static", "union", "mod", "!"];
    let (mut names, mut depth) = (BTreeSet::new(), 0);
    for pair in tokens.windows(2) {
        match pair[0].text.as_str() {
            "{" | "(" => depth += 1,
            "}" | ")" => depth -= 1,
            item if depth == 0 && ITEMS.contains(&item) => {
                names.insert(pair[1].text.as_str());
            }
            _ => {}
        }
    }
    names
}

/// The bodies of the modules that stand inside a file.
fn inline_modules(tokens: &[Token]) -> Vec<(usize, usize)> {
    let begins = |at: &usize| tokens[*at].text == "mod" && tokens.get(at + 2).is_some_and(|token| token.text == "{");
    (0..tokens.len()).filter(begins).map(|at| (at + 2, closing(tokens, at + 2))).collect()
}

/// The `use` statements of a file, from `use` to `;`.
fn statements(tokens: &[Token]) -> Vec<(usize, usize)> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let begins = |at: &usize| text(*at) == "use" && text(at + 1) != "<";
    let end = |from: usize| (from..tokens.len()).find(|at| text(*at) == ";").unwrap_or(tokens.len());
    (0..tokens.len()).filter(begins).map(|at| (at, end(at))).collect()
}

fn uses(tokens: &[Token]) -> Vec<Use> {
    let inline = inline_modules(tokens);
    let mut uses = Vec::new();
    for (from, to) in statements(tokens) {
        let public = from > 0 && ["pub", ")"].contains(&tokens[from - 1].text.as_str());
        let mut tree = Tree { tokens: &tokens[..to], at: from + 1, public, found: Vec::new() };
        tree.branch(&[]);
        if inline.iter().any(|&(open, close)| open < from && from < close) {
            let of_parent = |import: &&mut Use| import.path.first().is_some_and(|first| first == "super");
            tree.found.iter_mut().filter(of_parent).for_each(|import| import.path[0] = "self".to_owned());
        }
        uses.append(&mut tree.found);
    }
    uses
}

/// The reader of one `use` statement.
struct Tree<'a> {
    tokens: &'a [Token],
    at: usize,
    public: bool,
    found: Vec<Use>,
}

impl Tree<'_> {
    fn text(&self) -> &str {
        self.tokens.get(self.at).map_or("", |token| token.text.as_str())
    }

    /// One branch of the tree, below `above`.
    fn branch(&mut self, above: &[String]) {
        let mut path = above.to_vec();
        let line = self.tokens.get(self.at).map_or(0, |token| token.line);
        loop {
            match self.text() {
                "::" => self.at += 1,
                "{" => return self.branches(&path),
                "self" if !path.is_empty() => self.at += 1,
                "" | "," | "}" | "as" => break,
                name => {
                    path.push(name.to_owned());
                    self.at += 1;
                }
            }
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if self.text() == "as" {
            name = self.tokens.get(self.at + 1).map_or_else(String::new, |token| token.text.clone());
            self.at += 2;
        }
        self.found.push(Use { name, path, public: self.public, line });
    }

    fn branches(&mut self, above: &[String]) {
        self.at += 1;
        while !["}", ""].contains(&self.text()) {
            self.branch(above);
            if self.text() == "," {
                self.at += 1;
            }
        }
        self.at += 1;
    }
}
