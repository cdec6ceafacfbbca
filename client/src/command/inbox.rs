//! `linger inbox`: the waiting questions of all sessions and of the daemon.

use std::collections::BTreeSet;

use linger_protocol::event::{EventBody, Notice};
use linger_protocol::events::{NOW, Subscribe};
use linger_protocol::id::{Cursor, QuestionId};
use linger_protocol::method::QuestionList;
use linger_protocol::question::{List, PendingQuestion, QuestionKind, Subject};

use super::events::Feed;
use super::output::{print_rows, print_value};
use crate::arguments::Inbox;
use crate::connect::Client;
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::input::signals;
use crate::render::table::{age, columns};
use crate::terminal::Terminal;

/// The kinds of events that ask a question.
const ASKING: [&str; 2] = ["permission_requested", "question_asked"];

/// Characters of a parent's name that are shown.
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

/// Prints waiting questions, then new ones as they come, until a signal.
fn follow(client: Client, json: bool) -> Result<Exit, Failure> {
    signals(client.sender(), false)?;
    let (kinds, after) = (Some(ASKING.map(str::to_owned).into()), Some(Cursor(NOW.to_owned())));
    // Subscribe before listing, so that no question falls in between.
    let mut feed = Feed::start(client, Subscribe { kinds, after, ..Subscribe::default() })?;
    let mut seen = BTreeSet::new();
    print_new(&mut feed.client, &mut seen, json)?;
    while let Some((notification, _)) = feed.next()? {
        match &notification.event.body {
            EventBody::Notice(Notice { text, .. }) if notification.session.is_none() => {
                return Err(Failure::new(Exit::FAILED, text.clone()));
            }
            EventBody::CaughtUp {} => {}
            _ => print_new(&mut feed.client, &mut seen, json)?,
        }
    }
    Ok(Exit::GOOD)
}

/// Prints waiting questions that were not printed before.
fn print_new(client: &mut Client, seen: &mut BTreeSet<QuestionId>, json: bool) -> Result<(), Failure> {
    let rows = client.call(&QuestionList(List::default()))?;
    let mut terminal = Terminal::new();
    for row in rows.iter().filter(|row| !seen.contains(&row.question)) {
        if json {
            print_value(row)?;
        } else {
            terminal.line(&columns_of(row, now()).join("  "))?;
        }
    }
    *seen = rows.into_iter().map(|row| row.question).collect();
    Ok(())
}

/// Id, session (`-` for the daemon), age, tool or kind, and the question with its options.
fn columns_of(row: &PendingQuestion, now: u64) -> Vec<String> {
    let asked = &row.asked;
    let names = || asked.options.iter().map(|option| option.name.as_str()).collect::<Vec<_>>().join("|");
    let (what, text) = match (&asked.permission, asked.kind) {
        (Some(permission), _) if asked.about == Some(Subject::Check) => ("check".to_owned(), permission.action.clone()),
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
    let position = asked.permission.as_ref().and_then(|action| action.position.as_ref());
    let place = position.map(|it| format!(" [{} of {}]", it.number, it.of)).unwrap_or_default();
    let text = text + &place + &of.unwrap_or_default();
    vec![row.question.to_string(), session, age(row.at, now), what, text.replace('\n', " ⏎ ")]
}

/// The hint on how to answer the listed questions.
fn hint(rows: &[PendingQuestion]) -> &'static str {
    let permissions = rows.iter().filter(|row| row.asked.permission.is_some()).count();
    let has_forms = rows.iter().any(|row| row.asked.kind == QuestionKind::Form);
    match (rows.len(), permissions) {
        (0, _) => "no questions",
        _ if has_forms => {
            "answer with `linger answer ID OPTION`, a form with '{\"FIELD\": VALUE, …}' or decline; --json lists its fields"
        }
        (1, 1) => "answer with `linger answer allow|session|always|deny|never`",
        (all, some) if all == some => "answer with `linger answer ID allow|session|always|deny|never`",
        (_, 0) => "answer with `linger answer ID OPTION`",
        _ => "answer with `linger answer ID allow|session|always|deny|never`; choices with the name of an option",
    }
}
