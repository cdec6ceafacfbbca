//! `linger completions`, and `linger complete`, which the shell functions call to complete a word.
//!
//! Commands and options come from the declaration of the command line; sessions, models, agents and questions from the daemon.
//! No daemon is started, and one that does not answer at once is not waited for: a person has pressed Tab.

use std::time::Duration;

use clap::{Arg, ArgAction, Command, CommandFactory as _, ValueHint};
use linger_protocol::agent::List as Agents;
use linger_protocol::daemon::{Model, Models};
use linger_protocol::events::stored_kinds;
use linger_protocol::mcp::List as Servers;
use linger_protocol::method::{AgentList, KeyList, McpList, Method, ModelList, QuestionList, SessionList};
use linger_protocol::place::Places;
use linger_protocol::question::List as Questions;
use linger_protocol::session::List;

use crate::arguments::{Arguments, Complete, Completions, Shell};
use crate::connect::{Client, Reply, parse};
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::terminal::{Terminal, clean_line};

/// How long to wait for names from the daemon.
const SOON: Duration = Duration::from_millis(500);

/// Sessions offered, at most; the latest first.
const MAX_SESSIONS: u32 = 200;

/// Characters of a description that are shown: part of a row.
const MAX_ABOUT: usize = 60;

/// Answers to a permission, as people write them.
const ANSWERS: [&str; 4] = ["allow", "session", "always", "deny"];

/// The shell functions, as packagers find them in `contrib/completions`.
const BASH: &str = include_str!("../../../contrib/completions/linger.bash");
const ZSH: &str = include_str!("../../../contrib/completions/linger.zsh");
const FISH: &str = include_str!("../../../contrib/completions/linger.fish");

/// Prints the function of one shell.
pub(super) fn completions(args: &Completions) -> Result<Exit, Failure> {
    let text = match args.shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    };
    Terminal::new().text(text)?;
    Ok(Exit::GOOD)
}

/// Prints the completions of the last word of a line: one value per line, a tab before its description. `:files` and `:dirs`
/// tell the shell to complete file names.
pub(super) fn complete(args: &Complete) -> Result<Exit, Failure> {
    let mut terminal = Terminal::new();
    for Candidate { value, about } in candidates(&words(&args.line), names) {
        let about: String = clean_line(about.lines().next().unwrap_or_default()).chars().take(MAX_ABOUT).collect();
        let value = clean_line(&value).into_owned();
        terminal.data(&if about.is_empty() { value } else { format!("{value}\t{about}") })?;
    }
    Ok(Exit::GOOD)
}

/// One completion.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    value: String,
    about: String,
}

fn candidate(value: impl Into<String>, about: impl Into<String>) -> Candidate {
    Candidate { value: value.into(), about: about.into() }
}

/// A kind of name that the daemon knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompletedNames {
    Session,
    Binned,
    Model,
    Agent,
    Question,
    Provider,
    Server,
}

/// Splits a line as a shell would. The last word is still being typed and may be empty.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut escaped) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match (c, quote) {
            _ if escaped => {
                word.push(c);
                escaped = false;
            }
            ('\\', None | Some('"')) => escaped = true,
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (c, None) if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            (c, _) => word.push(c),
        }
    }
    words.push(word);
    words
}

/// Completions of the last word; the first word is the program.
fn candidates(words: &[String], names: impl Fn(CompletedNames) -> Vec<Candidate>) -> Vec<Candidate> {
    let mut root = Arguments::command();
    root.build();
    let Some((current, before)) = words.split_last() else { return Vec::new() };
    let (mut command, mut positional, mut value_of, mut only_values) = (&root, 0, None, false);
    for word in before.iter().skip(1) {
        if value_of.take().is_some() {
            continue;
        }
        if only_values || !word.starts_with('-') || word == "-" {
            match command.find_subcommand(word).filter(|_| positional == 0 && !only_values) {
                Some(found) => command = found,
                None => positional += 1,
            }
        } else if word == "--" {
            only_values = true;
        } else if !word.contains('=') {
            value_of = option(command, word).filter(|arg| takes_value(arg));
        }
    }
    let mut found = if let Some(arg) = value_of {
        values(command, arg, &names)
    } else if only_values || !current.starts_with('-') {
        let mut found = Vec::new();
        if positional == 0 && !only_values {
            let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
            found.extend(shown.map(|it| candidate(it.get_name(), text_of(it.get_about()))));
        }
        let mut positionals: Vec<&Arg> = command.get_positionals().filter(|arg| !arg.is_hide_set()).collect();
        positionals.sort_by_key(|arg| arg.get_index());
        let next = positionals.get(positional).or_else(|| positionals.last().filter(|arg| takes_several(arg)));
        found.extend(next.map(|arg| values(command, arg, &names)).unwrap_or_default());
        found
    } else if let Some((name, _)) = current.split_once('=') {
        let found = option(command, name).map(|arg| values(command, arg, &names)).unwrap_or_default();
        found.into_iter().map(|it| candidate(format!("{name}={}", it.value), it.about)).collect()
    } else {
        options(command)
    };
    // The shell completes file names itself.
    found.retain(|it| it.value.starts_with(':') || it.value.starts_with(current.as_str()));
    // Shells that keep the order have the exact name first.
    found.sort_by_key(|it| it.value != *current);
    found
}

fn options(command: &Command) -> Vec<Candidate> {
    let long = |arg: &Arg| Some(candidate(format!("--{}", arg.get_long()?), text_of(arg.get_help())));
    command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(long).collect()
}

/// The option with this name; for several short ones in a word, the last.
fn option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|all| all.contains(&long)),
        None => arg.get_short().is_some() && arg.get_short() == word.chars().last(),
    })
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) && !arg.is_positional()
}

fn takes_several(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|range| range.max_values() > 1) || matches!(arg.get_action(), ArgAction::Append)
}

/// Completions of the value of an argument.
fn values(command: &Command, arg: &Arg, names: &impl Fn(CompletedNames) -> Vec<Candidate>) -> Vec<Candidate> {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        let shown = possible.iter().filter(|it| !it.is_hide_set());
        return shown.map(|it| candidate(it.get_name(), text_of(it.get_help()))).collect();
    }
    let words = |words: &[&str]| words.iter().map(|word| candidate(*word, "")).collect::<Vec<_>>();
    match (arg.get_id().as_str(), command.get_name()) {
        ("session" | "sessions", "restore") => names(CompletedNames::Binned),
        ("session" | "sessions" | "resume", _) => names(CompletedNames::Session),
        ("model" | "fallback", _) => names(CompletedNames::Model),
        ("agent", _) => names(CompletedNames::Agent),
        // Alone, an answer is about the only question.
        ("question", _) => {
            let mut found = names(CompletedNames::Question);
            found.extend(words(&ANSWERS));
            found
        }
        ("provider", _) => names(CompletedNames::Provider),
        ("server", command) if command != "add" => names(CompletedNames::Server),
        ("answer", _) => words(&ANSWERS),
        ("mode", _) => words(&["ask", "edit", "auto", "plan"]),
        ("effort", _) => words(&["auto", "none", "minimal", "low", "medium", "high", "xhigh", "max"]),
        ("color", _) => words(&["auto", "always", "never"]),
        ("thinking", _) => words(&["show", "hide", "summary"]),
        ("unattended", _) => words(&["hold", "deny"]),
        ("kinds", _) => stored_kinds().chain(["all"]).map(|kind| candidate(kind, "")).collect(),
        ("about", "help") => {
            let mut root = Arguments::command();
            root.build();
            let shown = root.get_subcommands().filter(|it| !it.is_hide_set());
            let topics = super::help::TOPICS.iter().map(|(name, about)| candidate(*name, *about));
            topics
                .chain([candidate("commands", "all commands and options")])
                .chain(shown.map(|it| candidate(it.get_name(), text_of(it.get_about()))))
                .collect()
        }
        ("directory" | "add_dir" | "cwd", _) => vec![candidate(":dirs", "")],
        _ if matches!(arg.get_value_hint(), ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath) => {
            vec![candidate(":files", "")]
        }
        _ => Vec::new(),
    }
}

fn text_of(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

/// The names that the daemon knows; empty if it does not run or does not answer in time.
fn names(what: CompletedNames) -> Vec<Candidate> {
    ask(what).ok().flatten().unwrap_or_default()
}

/// The answer to one request; none if it does not come in time.
fn once<M: Method>(client: &mut Client, request: &M) -> Result<Option<M::Result>, Failure> {
    match client.call_once(request, SOON)? {
        Reply::Answered(Ok(raw)) => parse::<M>(&raw).map(Some),
        Reply::Answered(Err(_)) | Reply::Lost | Reply::Late => Ok(None),
    }
}

fn ask(what: CompletedNames) -> Result<Option<Vec<Candidate>>, Failure> {
    let Some(mut client) = Client::open_running(&Places::of_user()?)? else { return Ok(None) };
    let cwd = working_directory()?;
    Ok(Some(match what {
        CompletedNames::Session | CompletedNames::Binned => {
            let list = List { limit: Some(MAX_SESSIONS), bin: what == CompletedNames::Binned, ..List::default() };
            let Some(rows) = once(&mut client, &SessionList(list))? else { return Ok(None) };
            let named = |name: &Option<String>, id: &str| name.clone().unwrap_or_else(|| id.to_owned());
            let about = |cwd: &std::path::Path, model: &str| format!("{model} in {}", cwd.display());
            rows.iter()
                .map(|row| candidate(named(&row.name, row.session.as_str()), about(&row.cwd, &row.model)))
                .collect()
        }
        CompletedNames::Model => {
            let Some(mut rows) = once(&mut client, &ModelList(Models::default()))? else { return Ok(None) };
            // All models of the providers, if they answer in time.
            if let Some(all) = once(&mut client, &ModelList(Models { all: true, ..Models::default() }))? {
                rows = all;
            }
            let can_be_used = |row: &Model| row.ready && !row.model.ends_with("/MODEL");
            rows.into_iter().filter(can_be_used).map(|row| candidate(row.model, row.kind.to_string())).collect()
        }
        CompletedNames::Agent => {
            let Some(rows) = once(&mut client, &AgentList(Agents { cwd, ..Agents::default() }))? else {
                return Ok(None);
            };
            rows.into_iter().map(|row| candidate(row.name, row.description.unwrap_or_default())).collect()
        }
        CompletedNames::Question => {
            let Some(rows) = once(&mut client, &QuestionList(Questions::default()))? else { return Ok(None) };
            let about = |row: &linger_protocol::question::PendingQuestion| match &row.asked.permission {
                Some(permission) => format!("{} {}", permission.tool, permission.action),
                None => row.asked.text.clone(),
            };
            rows.iter().map(|row| candidate(row.question.to_string(), about(row))).collect()
        }
        CompletedNames::Provider => {
            let Some(rows) = once(&mut client, &KeyList(linger_protocol::daemon::Empty {}))? else { return Ok(None) };
            rows.keys.into_iter().map(|row| candidate(row.provider.clone(), super::key::origin(&row))).collect()
        }
        CompletedNames::Server => {
            let Some(rows) = once(&mut client, &McpList(Servers { cwd: Some(cwd), ..Servers::default() }))? else {
                return Ok(None);
            };
            rows.into_iter().map(|row| candidate(row.server, row.target)).collect()
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The completions of a line; each kind of name has one example.
    fn found(line: &str) -> Vec<String> {
        let names = |what| vec![candidate(format!("{what:?}-1").to_lowercase(), "about it")];
        candidates(&words(line), names).into_iter().map(|it| it.value).collect()
    }

    #[test]
    fn a_line_is_read_as_a_shell_reads_it() {
        assert_eq!(words("linger run  'a b' c\\ d \"e"), ["linger", "run", "a b", "c d", "e"]);
        assert_eq!(words("linger "), ["linger", ""]);
        assert_eq!(words(""), [""]);
    }

    #[test]
    fn commands_options_and_their_values_are_offered() {
        assert_eq!(found("linger dae"), ["daemon"]);
        assert_eq!(found("linger daemon st"), ["status", "start", "stop"]);
        assert_eq!(found("linger run --mod"), ["--model", "--mode"]);
        assert_eq!(found("linger run --mode "), ["ask", "edit", "auto", "plan"]);
        assert_eq!(found("linger run --mode=a"), ["--mode=ask", "--mode=auto"]);
        assert_eq!(found("linger run --mode ask --mode"), ["--mode", "--model"]);
        assert_eq!(found("linger export --format "), ["md", "jsonl"]);
        assert_eq!(found("linger --color n"), ["never"]);
        assert_eq!(found("linger run -C "), [":dirs"]);
        assert_eq!(found("linger run --schema "), [":files"]);
        assert!(found("linger ").contains(&"events".to_owned()));
        assert!(!found("linger ").contains(&"complete".to_owned()), "it is hidden");
    }

    #[test]
    fn names_of_the_daemon_are_offered_where_they_belong() {
        assert_eq!(found("linger attach "), ["session-1"]);
        assert_eq!(found("linger resume "), ["session-1"]);
        assert_eq!(found("linger wait a b "), ["session-1"]);
        assert_eq!(found("linger log -n 3 s"), ["session-1"]);
        assert_eq!(found("linger run -s "), ["session-1"]);
        assert_eq!(found("linger restore "), ["binned-1"]);
        assert_eq!(found("linger run -m "), ["model-1"]);
        assert_eq!(found("linger new --agent "), ["agent-1"]);
        assert_eq!(found("linger answer "), ["question-1", "allow", "session", "always", "deny"]);
        assert_eq!(found("linger answer q1 "), ["allow", "session", "always", "deny"]);
        assert_eq!(found("linger key set "), ["provider-1"]);
        assert_eq!(found("linger mcp restart "), ["server-1"]);
        assert_eq!(found("linger attach x"), [""; 0]);
    }
}
