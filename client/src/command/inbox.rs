//! `linger inbox`: the questions that wait, of all sessions and of the daemon.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use linger_protocol::method::QuestionList;
use linger_protocol::question::{List, PendingQuestion, QuestionKind};

use super::{print_rows, print_value};
use crate::arguments::Inbox;
use crate::connect::Client;
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::input::{Event, signals};
use crate::render::table::{age, columns};
use crate::terminal::Terminal;

/// How often a followed inbox is read: the daemon tells of questions only within their session, and a person reads no faster.
const AGAIN: Duration = Duration::from_secs(1);

/// How much of the name of a parent is shown, in characters.
const PARENT: usize = 30;

pub(super) fn run(args: &Inbox) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let list = QuestionList(List::default());
    if args.follow {
        return follow(client, args.json);
    }
    if args.json {
        print_rows(&mut client, &list)?;
        return Ok(Exit::GOOD);
    }
    let now = now();
    let rows = client.call(&list)?;
    let mut terminal = Terminal::new();
    for line in columns(&rows.iter().map(|row| columns_of(row, now)).collect::<Vec<_>>()) {
        terminal.line(&line)?;
    }
    terminal.say(hint(&rows))?;
    Ok(Exit::GOOD)
}

/// Prints questions as they come, until a signal.
fn follow(mut client: Client, json: bool) -> Result<Exit, Failure> {
    signals(client.sender(), false)?;
    let (mut seen, mut terminal) = (BTreeSet::new(), Terminal::new());
    loop {
        let rows = client.call(&QuestionList(List::default()))?;
        for row in rows.iter().filter(|row| !seen.contains(&row.question)) {
            match json {
                true => print_value(row)?,
                false => terminal.line(&columns_of(row, now()).join("  "))?,
            }
        }
        seen = rows.into_iter().map(|row| row.question).collect();
        if let Some(Event::Signal(_)) = client.next_event(Some(Instant::now() + AGAIN)) {
            return Ok(Exit::GOOD);
        }
    }
}

/// Id, session (`-` is the daemon), age, tool or kind, and what is asked with the names of its options.
fn columns_of(row: &PendingQuestion, now: u64) -> Vec<String> {
    let asked = &row.asked;
    let names = || asked.options.iter().map(|option| option.name.as_str()).collect::<Vec<_>>().join("|");
    let (what, text) = match (&asked.permission, asked.kind) {
        (Some(permission), _) => (permission.tool.clone(), permission.action.clone()),
        (None, QuestionKind::Choice) => ("choice".to_owned(), format!("{} ({})", asked.text, names())),
        (None, QuestionKind::Permission) => ("permission".to_owned(), String::new()),
        (None, QuestionKind::Form) => ("form".to_owned(), asked.text.clone()),
        (None, QuestionKind::Unknown) => ("?".to_owned(), asked.text.clone()),
    };
    let session = row.session.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    let of = row.parent.as_ref().map(|parent| {
        let name: String = row.parent_name.as_deref().unwrap_or_default().chars().take(PARENT).collect();
        let space = if name.is_empty() { "" } else { " " };
        format!(" [for {parent}{space}{name}]")
    });
    let text = text + &of.unwrap_or_default();
    vec![row.question.to_string(), session, age(row.at, now), what, text.replace('\n', " ⏎ ")]
}

/// How to answer what is listed.
fn hint(rows: &[PendingQuestion]) -> &'static str {
    let permissions = rows.iter().filter(|row| row.asked.permission.is_some()).count();
    match (rows.len(), permissions) {
        (0, _) => "nothing waits",
        (all, some) if all == some => "answer with `linger answer PERMISSION allow|session|always|deny`",
        (_, 0) => "answer with `linger answer QUESTION OPTION`",
        _ => "answer with `linger answer ID allow|session|always|deny`, a choice with the name of an option",
    }
}
