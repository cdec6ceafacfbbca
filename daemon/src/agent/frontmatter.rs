//! The header of a Markdown file: YAML between two lines of `---`. Pure.
//!
//! The header is split off by hand and bounded before the parser sees it. An unquoted colon in the description, the most common
//! error in public files, is read as text, with a warning.

use linger_protocol::agent::Problem;
use serde_json::{Map, Value};
use serde_norway::Value as Yaml;

/// The longest header, in bytes: fifty times a long one. It bounds what a parser does with aliases.
const MAX_HEADER: usize = 64 << 10;

/// The deepest nesting of lists and tables; files have two. A parser takes quadratic time over thousands.
const MAX_DEPTH: usize = 16;

/// The most anchors and aliases; files have none, and a few that refer to each other expand to gigabytes.
const MAX_ALIASES: usize = 16;

/// A Markdown file, split.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Page {
    /// The header; empty without one.
    pub(super) fields: Map<String, Value>,
    /// Whether there is a header.
    pub(super) has_header: bool,
    /// The text after the header, without blank lines around it.
    pub(super) body: String,
    /// Warnings about the header.
    pub(super) problems: Vec<Problem>,
    header: String,
}

impl Page {
    /// Splits and parses a file. Fails with the line and the reason if its header cannot be read.
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let Some((header, body)) = split(text)? else {
            return Ok(Self { body: text.trim().to_owned(), ..Self::default() });
        };
        let body = body.trim().to_owned();
        let mut problems = Vec::new();
        let yaml = match read(header) {
            Ok(yaml) => yaml,
            Err(error) => {
                let (line, quoted) = quote_description(header).ok_or_else(|| error.clone())?;
                let yaml = read(&quoted).map_err(|_| error)?;
                let why = "`description` has a colon and must be quoted; it was read as text";
                problems.push(Problem::error(line, why));
                yaml
            }
        };
        let fields = match json(yaml) {
            Value::Object(fields) => fields,
            Value::Null => Map::new(),
            _ => return Err(Problem::error(2, "the header is not a list of `key: value`")),
        };
        Ok(Self { fields, has_header: true, body, problems, header: header.to_owned() })
    }

    /// The line of a key in the file, from 1.
    pub(super) fn line(&self, key: &str) -> usize {
        let is_key = |line: &str| {
            let rest = ["\"", "'", ""].iter().find_map(|quote| {
                line.strip_prefix(quote)?.strip_prefix(key)?.strip_prefix(quote).map(str::trim_start)
            });
            rest.is_some_and(|rest| rest.starts_with(':'))
        };
        self.header.lines().position(is_key).map_or(1, |at| at + 2)
    }

    /// Notes a problem with a key.
    pub(super) fn warn(&mut self, key: &str, text: impl Into<String>) {
        let line = self.line(key);
        self.problems.push(Problem::warning(line, text));
    }

    /// Notes a problem with a key that the file's specification forbids.
    pub(super) fn wrong(&mut self, key: &str, text: impl Into<String>) {
        let line = self.line(key);
        self.problems.push(Problem::error(line, text));
    }

    /// A key as text: numbers and the like as they are written. Absent if it is missing, empty or no text, which is noted.
    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        let text = match self.fields.get(key)? {
            Value::String(text) => text.trim().to_owned(),
            Value::Null => String::new(),
            value @ (Value::Bool(_) | Value::Number(_)) => value.to_string(),
            Value::Array(_) | Value::Object(_) => {
                self.wrong(key, format!("`{key}` is not a text"));
                return None;
            }
        };
        Some(text).filter(|text| !text.is_empty())
    }

    /// A key as a list of names: a YAML list, or names between commas or blanks outside of parentheses.
    pub(super) fn names(&mut self, key: &str) -> Option<Vec<String>> {
        match self.fields.get(key)? {
            Value::Array(list) => {
                let names: Option<Vec<String>> =
                    list.iter().map(|name| name.as_str().map(|name| name.trim().to_owned())).collect();
                if names.is_none() {
                    self.wrong(key, format!("`{key}` is not a list of names"));
                }
                // What cannot be read is nothing, and never all.
                Some(names.unwrap_or_default())
            }
            Value::String(text) => Some(words(text)),
            Value::Null => Some(Vec::new()),
            _ => {
                self.wrong(key, format!("`{key}` is not a list of names"));
                Some(Vec::new())
            }
        }
    }

    /// Notes the keys that are not among `known`; `strict`: the specification forbids them.
    pub(super) fn check_keys(&mut self, known: &[&str], strict: bool) {
        let unknown: Vec<String> = self.fields.keys().filter(|key| !known.contains(&key.as_str())).cloned().collect();
        for key in unknown {
            let shown = crate::tool::text::one_line(&key);
            let text = format!("unknown key `{shown}`, which is ignored");
            if strict { self.wrong(&key, text) } else { self.warn(&key, text) }
        }
    }
}

/// The header and what follows it; `None` without a header.
fn split(text: &str) -> Result<Option<(&str, &str)>, Problem> {
    let is_mark = |line: &str| line.trim_end() == "---";
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| is_mark(line)) else { return Ok(None) };
    let mut at = first.len();
    for line in lines {
        if is_mark(line) {
            let header = text.get(first.len()..at).unwrap_or_default();
            return Ok(Some((header, text.get(at + line.len()..).unwrap_or_default())));
        }
        at += line.len();
        if at - first.len() > MAX_HEADER {
            return Err(Problem::error(1, format!("the header is longer than {MAX_HEADER} bytes")));
        }
    }
    Err(Problem::error(1, "the header is not closed: a line `---` is missing"))
}

fn read(header: &str) -> Result<Yaml, Problem> {
    check_depth(header)?;
    serde_norway::from_str(header).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line() + 1);
        let text = error.to_string();
        // Its own place counts from the header's beginning.
        let text = text.split(" at line ").next().unwrap_or_default();
        Problem::error(line, format!("the header is not YAML: {}", crate::tool::text::one_line(text)))
    })
}

/// Refuses what would take a parser long, before it sees it.
fn check_depth(header: &str) -> Result<(), Problem> {
    let (mut depth, mut aliases) = (0_usize, 0);
    for (number, line) in header.lines().enumerate() {
        let marks = line.split_whitespace().take_while(|word| ["-", "?", ":"].contains(word)).count();
        for c in line.chars() {
            match c {
                '[' | '{' => depth += 1,
                ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        let is_alias = |word: &&str| word.starts_with(['&', '*']) && word.len() > 1 && !word.starts_with("**");
        aliases += line.split([' ', '\t', ',', '[', '{']).filter(is_alias).count();
        if depth > MAX_DEPTH || marks > MAX_DEPTH {
            return Err(Problem::error(number + 2, format!("the header is nested deeper than {MAX_DEPTH} levels")));
        }
        if aliases > MAX_ALIASES {
            return Err(Problem::error(number + 2, format!("the header has more than {MAX_ALIASES} aliases")));
        }
    }
    Ok(())
}

/// The header with its description in quotes, and the line of that in the file; `None` if it is quoted, or in a block.
fn quote_description(header: &str) -> Option<(usize, String)> {
    let lines: Vec<&str> = header.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("description:"))?;
    let text = lines.get(at)?.strip_prefix("description:")?.trim();
    if text.is_empty() || text.starts_with(['"', '\'', '|', '>', '[', '{', '&', '*']) {
        return None;
    }
    let quoted = format!("description: '{}'", text.replace('\'', "''"));
    let lines: Vec<&str> = lines.iter().enumerate().map(|(i, line)| if i == at { &quoted } else { *line }).collect();
    Some((at + 2, lines.join("\n")))
}

fn json(yaml: Yaml) -> Value {
    match yaml {
        Yaml::Null => Value::Null,
        Yaml::Bool(is) => Value::Bool(is),
        Yaml::Number(number) => serde_json::to_value(&number).unwrap_or(Value::Null),
        Yaml::String(text) => Value::String(text),
        Yaml::Sequence(list) => list.into_iter().map(json).collect(),
        Yaml::Mapping(fields) => {
            let name = |key: Yaml| match json(key) {
                Value::String(name) => name,
                other => other.to_string(),
            };
            Value::Object(fields.into_iter().map(|(key, value)| (name(key), json(value))).collect())
        }
        Yaml::Tagged(tagged) => json(tagged.value),
    }
}

/// The names in a text, between commas or blanks outside of parentheses.
fn words(text: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let parts = text.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (c == ',' || c.is_whitespace())
    });
    parts.map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(text: &str) -> Value {
        Value::Object(Page::parse(text).unwrap().fields)
    }

    fn error(text: &str) -> String {
        Page::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_header_is_split_from_the_body() {
        let page = Page::parse("---\nname: a\ndescription: |\n  b\n  c\n---\n\n# Body\n---\nmore\n").unwrap();
        assert_eq!(Value::Object(page.fields.clone()), json!({ "name": "a", "description": "b\nc\n" }));
        assert_eq!((page.body.as_str(), page.line("description"), page.has_header), ("# Body\n---\nmore", 3, true));
        let plain = Page::parse("just text\n---\n").unwrap();
        assert_eq!((plain.body.as_str(), plain.has_header), ("just text\n---", false));
        assert_eq!(fields("\u{feff}---\r\nname: no\r\nn: 12\r\n---\r\n"), json!({ "name": "no", "n": 12 }));
        assert_eq!(fields("---\n---\nx"), json!({}));
    }

    #[test]
    fn an_unquoted_colon_in_a_description_is_read_as_text() {
        let page = Page::parse("---\nname: a\ndescription: Use when: it's asked\n---\n").unwrap();
        assert_eq!(page.fields["description"], "Use when: it's asked");
        assert_eq!(page.problems.len(), 1);
        assert!(page.problems[0].to_string().starts_with("line 3: "), "{}", page.problems[0]);
    }

    #[test]
    fn a_bad_header_is_refused_with_its_line() {
        assert_eq!(error("---\nname: a\n"), "line 1: the header is not closed: a line `---` is missing");
        assert!(error("---\nname: a\nx: \"\n---\n").contains("the header is not YAML"));
        assert!(error("---\nname: a\nb: c: d\n---\n").starts_with("line 3: the header is not YAML"));
        assert!(error("---\n- a\n---\n").contains("not a list of `key: value`"));
        assert!(error("---\na: 1\na: 2\n---\n").contains("duplicate"));
        assert!(error(&format!("---\nx: {}\n---\n", "[".repeat(60_000))).contains("nested deeper"));
        assert!(error(&format!("---\nx:\n {}1\n---\n", "- ".repeat(30_000))).contains("nested deeper"));
        assert!(error(&format!("---\nx: {}\n---\n", "a".repeat(70_000))).contains("longer than 65536 bytes"));
        let bomb: String = (1..30).map(|i| format!("a{i}: &a{i} [*a{0},*a{0},*a{0}]\n", i - 1)).collect();
        assert!(error(&format!("---\na0: &a0 x\n{bomb}---\n")).contains("aliases"));
    }

    #[test]
    fn names_are_a_list_or_words() {
        let names = |value: &str| Page::parse(&format!("---\ntools: {value}\n---\n")).unwrap().names("tools");
        let expect = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(names("Bash(git:*, x), Read"), expect(&["Bash(git:*, x)", "Read"]));
        assert_eq!(names("[a, b]"), expect(&["a", "b"]));
        assert_eq!(names("{a: 1}"), expect(&[]));
        assert_eq!(names(""), expect(&[]));
    }
}
