//! The model of a first configuration: chosen among those that the provider lists, and asked once.

use std::io::{BufRead as _, IsTerminal as _};
use std::time::{Duration, Instant};

use linger_protocol::completion::{CompletionEvent, Message, Start};
use linger_protocol::daemon::{Model, Models};
use linger_protocol::message::{ContentBlock, Role};
use linger_protocol::method::{CompletionStart, ModelList};
use linger_protocol::transport::blocking::Incoming;

use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::input::Event;
use crate::terminal::{Terminal, clean_line};

/// Models that are listed, at most.
const SHOWN: usize = 12;

/// How long the request may take: a local server loads its model first.
const ANSWER: Duration = Duration::from_secs(120);

/// Bytes read of an answer, at most.
const MAX_LINE: u64 = 4 << 10;

/// The question to the model.
const QUESTION: &str = "Answer with the word ok, and nothing else.";

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// The model answered after this time.
    Answered(Duration),
    /// Why it did not.
    Failed(String),
}

/// The model for a provider that was named without one, as `provider/model`. `usual` is the provider's default model, if it has
/// one. On a terminal the user chooses; elsewhere it is the default, or else the first one that the provider lists.
pub(super) fn pick(client: &mut Client, provider: &str, usual: Option<&str>, asks: bool) -> Result<String, Failure> {
    let rows = client.call(&ModelList(Models { all: true, ..Models::default() }))?;
    let rows: Vec<Model> = rows.into_iter().filter(|row| provider_of(&row.model) == provider).collect();
    let problem = rows.iter().find_map(|row| row.problem.clone());
    let listed: Vec<String> = rows.into_iter().map(|row| row.model).filter(|name| !is_placeholder(name)).collect();
    let first = usual.map(str::to_owned).or_else(|| listed.first().cloned());
    if let Some(problem) = &problem {
        let text = format!("note: {provider} does not list its models: {}", clean_line(problem));
        Terminal::new().say(&text)?;
    }
    if asks && (listed.len() > 1 || first.is_none()) {
        return choose(provider, &listed, first.as_deref());
    }
    first.ok_or_else(|| {
        Failure::usage(format!("{provider} lists no model"))
            .hint(format!("name one: `linger init -m {provider}/MODEL`; a local server has those that were downloaded"))
    })
}

/// Asks for a model: by number, by name, or Enter for `first`.
fn choose(provider: &str, listed: &[String], first: Option<&str>) -> Result<String, Failure> {
    let mut terminal = Terminal::new();
    let mut shown: Vec<&str> = first.into_iter().collect();
    shown.extend(listed.iter().map(String::as_str).filter(|name| Some(*name) != first));
    for (n, name) in shown.iter().take(SHOWN).enumerate() {
        terminal.say(&format!("{:>3}  {}", n + 1, clean_line(name)))?;
    }
    if shown.len() > SHOWN {
        terminal.say(&format!("     and {} more: `linger models {provider}/`", shown.len() - SHOWN))?;
    }
    loop {
        let line = ask_line(if first.is_some() { "model, by number or name [1]: " } else { "model: " })?;
        match chosen(provider, &shown, &line) {
            Some(model) => return Ok(model),
            None => {
                terminal.complain(Failure::usage(format!("'{}' is no model of the list", line.escape_default())))?
            }
        }
    }
}

/// The model that an answer means; a name that is not listed may be one all the same.
fn chosen(provider: &str, shown: &[&str], line: &str) -> Option<String> {
    let known = |name: &str| shown.iter().find(|shown| **shown == name).map(|name| (*name).to_owned());
    match line.parse::<usize>() {
        _ if line.is_empty() => shown.first().map(|name| (*name).to_owned()),
        Ok(number) => shown.get(number.checked_sub(1)?).map(|name| (*name).to_owned()),
        Err(_) if line.contains(char::is_whitespace) => None,
        Err(_) => {
            let whole = if provider_of(line) == provider && line.contains('/') {
                line.to_owned()
            } else {
                format!("{provider}/{line}")
            };
            known(&whole).or(Some(whole))
        }
    }
}

/// Asks the model for one word, without a session.
pub(super) fn try_out(client: &mut Client, model: &str) -> Result<Trial, Failure> {
    let messages = vec![Message { role: Role::User, content: vec![ContentBlock::text(QUESTION.to_owned())] }];
    let start = Start { model: Some(model.to_owned()), messages, ..Start::default() };
    let (began, until) = (Instant::now(), Instant::now() + ANSWER);
    let completion = match client.call(&CompletionStart(start)) {
        Ok(started) => started.completion,
        Err(failure) if failure.interrupted || failure.is_no_answer() => return Err(failure),
        Err(failure) => return Ok(Trial::Failed(words(failure.message, failure.hint))),
    };
    loop {
        match client.next_event(Some(until)) {
            Some(Event::Incoming(_, Incoming::Completion(piece))) if piece.completion == completion => {
                match piece.event {
                    CompletionEvent::Completed { .. } => return Ok(Trial::Answered(began.elapsed())),
                    CompletionEvent::Failed { message, hint, .. } => {
                        return Ok(Trial::Failed(words(Some(message), Some(hint))));
                    }
                    _ => {}
                }
            }
            Some(Event::Lost(_)) => return Ok(Trial::Failed("the connection to the daemon was lost".to_owned())),
            Some(Event::Refused(_, failure)) => return Err(failure),
            Some(event) if event.is_stop() => return Err(Failure::new(Exit::CANCELLED, "cancelled")),
            Some(_) => {}
            None => return Ok(Trial::Failed(format!("no answer within {} s", ANSWER.as_secs()))),
        }
    }
}

fn words(message: Option<String>, hint: Option<String>) -> String {
    let message = message.unwrap_or_default();
    match hint.filter(|hint| !hint.is_empty()) {
        Some(hint) => format!("{message}\nhint: {hint}"),
        None => message,
    }
}

/// Reads a line from the terminal. Fails at its end.
pub(super) fn ask_line(question: &str) -> Result<String, Failure> {
    debug_assert!(std::io::stdin().is_terminal());
    Terminal::new().talk(question)?;
    let mut line = String::new();
    let read = std::io::Read::take(std::io::stdin().lock(), MAX_LINE).read_line(&mut line)?;
    if read == 0 {
        return Err(Failure::new(Exit::CANCELLED, "cancelled; nothing was written"));
    }
    Ok(line.trim().to_owned())
}

fn provider_of(model: &str) -> &str {
    model.split('/').next().unwrap_or_default()
}

/// Whether a row stands for a provider whose models are unknown.
pub(super) fn is_placeholder(model: &str) -> bool {
    model.split_once('/').is_none_or(|(_, name)| name == "MODEL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_chosen_by_number_or_name() {
        let shown = ["ollama/qwen3", "ollama/gemma3:4b"];
        let check = |line: &str, expect: Option<&str>| {
            assert_eq!(chosen("ollama", &shown, line).as_deref(), expect, "{line}");
        };
        check("", Some("ollama/qwen3"));
        check("2", Some("ollama/gemma3:4b"));
        check("0", None);
        check("3", None);
        check("gemma3:4b", Some("ollama/gemma3:4b"));
        check("ollama/qwen3", Some("ollama/qwen3"));
        check("not-listed", Some("ollama/not-listed"));
        check("meta/llama", Some("ollama/meta/llama"));
        check("two words", None);
        assert_eq!(chosen("ollama", &[], ""), None);
    }
}
