//! Completion with Tab: the longest common beginning is inserted, the choices are listed above the prompt, and each
//! further Tab takes the next one.
//!
//! rustyline asks for completions and inserts the only one that it is given: the list and the order in which it is gone through
//! are kept here. The daemon's names come from the thread that owns the connection ([`Known`]).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use linger_protocol::permission::Mode;

use super::files;
use super::menu::Choice;
use super::slash::{self, Argument};
use crate::input::{Event, Hotkey, Names};

/// How long Tab waits for names of the daemon: what takes longer is there at the next Tab.
const ANSWER: Duration = Duration::from_millis(500);

/// The daemon's names, as far as they were asked for.
#[derive(Clone, Debug)]
pub(super) struct Known {
    sender: Sender<Event>,
    lists: Arc<(Mutex<Lists>, Condvar)>,
}

#[derive(Debug, Default)]
struct Lists {
    answers: u64,
    names: HashMap<Names, Vec<Choice>>,
}

impl Known {
    /// Nothing is known yet; what is wanted is asked of the receiver.
    pub(super) fn new(sender: Sender<Event>) -> Self {
        Self { sender, lists: Arc::default() }
    }

    /// Takes an answer.
    pub(super) fn put(&self, names: Names, list: Vec<Choice>) {
        let mut lists = self.lists.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.answers += 1;
        lists.names.insert(names, list);
        self.lists.1.notify_all();
    }

    /// Asks for the names, and gives them, or those that were known before if the answer takes long.
    fn get(&self, names: Names) -> Vec<Choice> {
        let lists = self.lists.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = lists.answers;
        if self.sender.send(Event::Hotkey(Hotkey::Names(names))).is_err() {
            return Vec::new();
        }
        let waited = self.lists.1.wait_timeout_while(lists, ANSWER, |lists| lists.answers == before);
        let (lists, _) = waited.unwrap_or_else(PoisonError::into_inner);
        lists.names.get(&names).cloned().unwrap_or_default()
    }
}

/// Completions of a text.
#[derive(Debug, Default, PartialEq, Eq)]
struct Completions {
    /// Where in the line it begins.
    start: usize,
    /// Prefix matches.
    begin: Vec<Choice>,
    /// Other matches, listed behind them.
    others: Vec<Choice>,
}

fn find(typed: &str, known: &Known, places: &[PathBuf]) -> Option<Completions> {
    if let Some(files) = files::mentioned(typed, places) {
        let choices = |names: Vec<String>| names.into_iter().map(|name| Choice::new(name, "")).collect::<Vec<_>>();
        let (mut begin, others) = (choices(files.begin), choices(files.fuzzy));
        begin.extend(resources(typed, files.start, known));
        return Some(Completions { start: files.start, begin, others });
    }
    if !typed.starts_with('/') || typed.contains('\n') {
        return None;
    }
    let Some((command, words)) = typed.split_once(' ') else {
        let mut choices = slash::names();
        choices.extend(known.get(Names::Commands));
        return Some(among(0, typed, choices));
    };
    let start = typed.rfind(' ').map_or(0, |space| space + 1);
    let word = typed.get(start..).unwrap_or_default();
    // Only the first word has names, but for a path, which may have spaces.
    let first = !words.trim_start().contains(' ');
    let named = |names: &[&str]| names.iter().map(|name| Choice::new(*name, "")).collect::<Vec<_>>();
    let choices = match slash::argument(command)? {
        Argument::Directory => {
            let text = words.trim_start();
            let names = files::directories(text, places).into_iter().map(|name| Choice::new(name, "")).collect();
            return Some(Completions { start: typed.len() - text.len(), begin: names, others: Vec::new() });
        }
        _ if !first => return None,
        Argument::Mode => Mode::ALL.map(|mode| Choice::new(mode.to_string(), mode.description())).to_vec(),
        Argument::Words(words) => named(words),
        Argument::Command => slash::names(),
        Argument::Names(names) => known.get(names),
    };
    Some(among(start, word, choices))
}

/// The servers and their resources that a name may become which begins at `start`: `@server:uri`.
fn resources(typed: &str, start: usize, known: &Known) -> Vec<Choice> {
    let word = typed.get(start..).unwrap_or_default();
    let names = match word.split_once(':') {
        Some((server, _)) if is_server(server) => Names::Resources,
        None if word.is_empty() || is_server(word) => Names::Servers,
        // A path, or a name in quotes.
        _ => return Vec::new(),
    };
    let is_bare = typed.get(..start).is_some_and(|before| before.ends_with('@'));
    let mut found = if is_bare { known.get(names) } else { Vec::new() };
    found.retain(|choice| choice.text.starts_with(word));
    found
}

/// Whether a server may be called so.
fn is_server(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

/// Prefix matches, the shortest first, so the exact name is the first; if none, fuzzy matches.
fn among(start: usize, word: &str, choices: Vec<Choice>) -> Completions {
    let (mut begin, rest): (Vec<_>, Vec<_>) = choices.into_iter().partition(|choice| choice.text.starts_with(word));
    if !word.is_empty() {
        begin.sort_by_key(|choice| choice.text.len());
    }
    let rest = if begin.is_empty() { rest } else { Vec::new() };
    let mut others: Vec<_> = rest.into_iter().filter_map(|it| Some((files::rank(word, &it.text)?, it))).collect();
    others.sort_by_key(|(score, _)| *score);
    Completions { start, begin, others: others.into_iter().map(|(_, choice)| choice).collect() }
}

/// The longest beginning that all have.
fn common(choices: &[Choice]) -> Option<&str> {
    let (first, rest) = choices.split_first()?;
    let shared = |a: &str, b: &str| a.char_indices().zip(b.chars()).find(|((_, x), y)| x != y).map(|((at, _), _)| at);
    let end = rest
        .iter()
        .fold(first.text.len(), |end, choice| shared(&first.text, &choice.text).unwrap_or(choice.text.len()).min(end));
    first.text.get(..end)
}

/// A list that is on the screen.
#[derive(Debug, Default)]
pub(super) struct Completer {
    start: usize,
    choices: Vec<Choice>,
    chosen: Option<usize>,
    /// The line up to the cursor as the last Tab left it; a different one starts a new list.
    left: Option<String>,
}

impl Completer {
    /// The byte to replace from, up to the cursor, and the text to put there; `None` if nothing completes it.
    pub(super) fn tab(&mut self, typed: &str, known: &Known, places: &[PathBuf]) -> Option<(usize, String)> {
        if self.left.as_deref() == Some(typed) && self.choices.len() > 1 {
            let next = self.chosen.map_or(0, |chosen| (chosen + 1) % self.choices.len());
            self.chosen = Some(next);
            let text = self.choices.get(next)?.text.clone();
            return Some(self.leave(typed, text));
        }
        *self = Self::default();
        let Completions { start, begin, others } = find(typed, known, places)?;
        self.start = start;
        let word = typed.get(start..).unwrap_or_default();
        let only = match (begin.as_slice(), others.as_slice()) {
            ([only], _) if only.text != word || others.is_empty() => Some(only.text.clone()),
            ([], [only]) => Some(only.text.clone()),
            _ => None,
        };
        if let Some(only) = only {
            // A command with an argument goes on with it.
            let space = start == 0 && slash::argument(&only).is_some();
            return Some((start, if space { format!("{only} ") } else { only }));
        }
        let extended = common(&begin).filter(|common| common.len() > word.len()).unwrap_or(word).to_owned();
        self.choices = begin.into_iter().chain(others).collect();
        (!self.choices.is_empty()).then(|| self.leave(typed, extended))
    }

    fn leave(&mut self, typed: &str, text: String) -> (usize, String) {
        self.left = typed.get(..self.start).map(|before| format!("{before}{text}"));
        (self.start, text)
    }

    /// The choices of the list, and the index of the selected one.
    pub(super) fn list(&self) -> (&[Choice], Option<usize>) {
        (&self.choices, self.chosen)
    }

    /// Takes the list away.
    pub(super) fn close(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn known() -> Known {
        let (sender, wanted) = channel();
        let known = Known::new(sender);
        let answers = known.clone();
        std::thread::spawn(move || {
            for event in wanted {
                let Event::Hotkey(Hotkey::Names(names)) = event else { continue };
                let list = match names {
                    Names::Efforts => ["auto", "low", "xhigh"].map(|effort| Choice::new(effort, "")).to_vec(),
                    Names::Models => vec![Choice::new("mock/large", ""), Choice::new("mock/small", "")],
                    Names::Commands => vec![Choice::new("/review", "a command")],
                    Names::Servers => vec![Choice::new("docs:", "")],
                    Names::Resources => {
                        vec![Choice::new("docs:file:///a.md", "the first"), Choice::new("docs:file:///b.md", "")]
                    }
                    Names::Sessions | Names::Agents | Names::Merges => Vec::new(),
                };
                answers.put(names, list);
            }
        });
        known
    }

    /// What each Tab makes of a line.
    fn tabs(line: &str, count: usize) -> Vec<Option<String>> {
        let (known, mut completer, mut line) = (known(), Completer::default(), line.to_owned());
        (0..count)
            .map(|_| {
                let (start, text) = completer.tab(&line, &known, &[])?;
                line.replace_range(start.., &text);
                Some(line.clone())
            })
            .collect()
    }

    #[track_caller]
    fn check(line: &str, expect: &[&str]) {
        let expect: Vec<_> = expect.iter().map(|line| Some((*line).to_owned())).collect();
        assert_eq!(tabs(line, expect.len()), expect, "{line}");
    }

    #[test]
    fn tab_extends_then_lists_and_then_goes_through_the_list() {
        check("/model m", &["/model mock/", "/model mock/large", "/model mock/small", "/model mock/large"]);
        check("/model sm", &["/model mock/small"]);
        check("/mode p", &["/mode plan"]);
        check("/ef", &["/effort "]);
        check("/rev", &["/review"]);
        check("/effort x", &["/effort xhigh"]);
        check("see @do", &["see @docs:", "see @docs:file:///", "see @docs:file:///a.md", "see @docs:file:///b.md"]);
        assert_eq!(tabs("see @\"do", 1), [None], "a file's name in quotes");
        assert_eq!(tabs("/mode plan and", 1), [None]);
        assert_eq!(tabs("words", 1), [None]);
    }

    #[test]
    fn a_list_says_what_each_command_does() {
        let (known, mut completer) = (known(), Completer::default());
        assert_eq!(completer.tab("/re", &known, &[]), Some((0, "/re".to_owned())));
        let names: Vec<_> = completer.list().0.iter().map(|choice| choice.text.as_str()).collect();
        assert!(names.contains(&"/rename") && names.contains(&"/review") && completer.list().1.is_none(), "{names:?}");
        completer.close();
        assert!(completer.list().0.is_empty());
    }
}
