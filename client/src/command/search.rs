//! `linger search`: finds messages of all sessions by their words.

use linger_protocol::message::Role;
use linger_protocol::method::SessionSearch;
use linger_protocol::search::{FoundMessage, FoundMessages, Search as Params};

use super::output::print_value;
use crate::arguments::Search;
use crate::connect::Client;
use crate::environment::{now, working_directory};
use crate::error::{Exit, Failure};
use crate::render::style::Style;
use crate::render::table::age;
use crate::terminal::{Capabilities, Terminal, clean_line};

pub(super) fn run(args: &Search) -> Result<Exit, Failure> {
    let cwd = if args.here { Some(working_directory()?) } else { None };
    let text = args.text.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    let mut client = Client::open()?;
    let found = client.call(&SessionSearch(Params { text, cwd, limit: Some(args.limit) }))?;
    let FoundMessages { rows, behind } = found;
    let mut terminal = Terminal::new();
    if behind > 0 {
        terminal.say(&format!("note: {behind} events are not indexed yet; search again in a moment"))?;
    }
    if args.json {
        rows.iter().try_for_each(print_value)?;
        return Ok(Exit::GOOD);
    }
    let capabilities = Capabilities::detect();
    let style = Style { color: capabilities.data_color, unicode: capabilities.unicode };
    let now = now();
    for row in &rows {
        terminal.text(&shown(row, now, style))?;
    }
    match rows.first() {
        None => terminal.say("no messages found")?,
        Some(first) => terminal.say(&format!(
            "`linger attach {}` opens a session, `linger log {}` prints it",
            first.session, first.session
        ))?,
    }
    Ok(Exit::GOOD)
}

/// Quotes an argument of several words as a phrase; the shell has removed its quotes.
fn quoted(word: &str) -> String {
    if word.contains(char::is_whitespace) && !word.contains('"') { format!("\"{word}\"") } else { word.to_owned() }
}

/// A match: session, time and role, then the text on its own line.
fn shown(row: &FoundMessage, now: u64, style: Style) -> String {
    let name = row.name.as_ref().map(|name| format!("  {}", clean_line(name))).unwrap_or_default();
    let who = match row.role {
        Role::User => "you",
        Role::Assistant => "model",
    };
    let cwd = row.cwd.display().to_string();
    let head = format!("{}{name}  {} ago  {who}  {}", row.session, age(row.at, now), clean_line(&cwd));
    format!("{}\n  {}\n", style.dim(&head), clean_line(&row.snippet))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_quoted_for_the_shell_are_a_phrase() {
        assert_eq!(
            ["parser", "off by one", "\"a b\"", "conf*"].map(quoted),
            ["parser", "\"off by one\"", "\"a b\"", "conf*"]
        );
    }

    #[test]
    fn a_match_says_where_and_when_and_what() {
        let row = FoundMessage {
            session: "k3x9abcd".into(),
            name: Some("fix".to_owned()),
            cwd: "/p".into(),
            seq: 4,
            at: 1000,
            role: Role::Assistant,
            snippet: "the \u{1b}[31mparser".to_owned(),
        };
        let text = shown(&row, 61_000, Style { color: false, unicode: true });
        assert!(text.starts_with("k3x9abcd  fix  1 min ago  model  /p\n  the "), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
