//! `linger answer`: decides a permission from anywhere. What is answered is what `permission/list` showed, by its digest.

use linger_protocol::error::Code;
use linger_protocol::method::{PermissionAnswer, PermissionList};
use linger_protocol::permission::{Decision, List, Pending};
use serde_json::{Value, json};

use crate::cli::Answer;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::question::{Question, said, too_late};
use crate::render::style::Style;
use crate::terminal::{Look, Terminal};

pub(super) fn run(args: Answer) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let rows = client.call(&PermissionList(List::default()))?;
    let decision = Decision::from(args.decision);
    let Some(row) = find(&rows, &args.permission)? else {
        return gone(&mut client, &args, decision);
    };
    let question = Question::of_pending(row);
    match client.call_raw(&PermissionAnswer(question.answer(decision, args.reason)?))? {
        Ok(_) => {}
        Err(error) if error.code() == Some(Code::AlreadyAnswered) => {
            return Err(decided(error.data));
        }
        Err(error) => return Err(error.into()),
    }
    if args.json {
        let (session, permission) = (&row.session, &row.permission);
        super::print_value(&json!({ "session": session, "permission": permission, "decision": decision }))?;
        return Ok(Exit::GOOD);
    }
    let look = Look::of_process();
    let style = Style { color: look.color, unicode: look.unicode };
    let mut terminal = Terminal::new();
    terminal.talk(&question.text(&style))?;
    terminal.say(&format!("  {}", said(decision)))?;
    Ok(Exit::GOOD)
}

/// Somebody was faster.
fn decided(data: Option<Value>) -> Failure {
    Failure::new(Exit::FAILED, too_late(data)).hint("that decision stands; `linger inbox` lists what still waits")
}

fn find<'a>(rows: &'a [Pending], text: &str) -> Result<Option<&'a Pending>, Failure> {
    if let Some(row) = rows.iter().find(|row| row.permission.as_str() == text) {
        return Ok(Some(row));
    }
    let fitting: Vec<&Pending> = rows.iter().filter(|row| row.permission.as_str().starts_with(text)).collect();
    match fitting.as_slice() {
        [] => Ok(None),
        [row] => Ok(Some(row)),
        _ => {
            let ids: Vec<&str> = fitting.iter().map(|row| row.permission.as_str()).collect();
            Err(Failure::usage(format!("'{text}' could be one of {}", ids.join(", "))).hint("write more of the id"))
        }
    }
}

/// It does not wait any more, or never did: the daemon knows which, and who was faster.
fn gone(client: &mut Client, args: &Answer, decision: Decision) -> Result<Exit, Failure> {
    let answer = linger_protocol::permission::Answer {
        permission: args.permission.as_str().into(),
        decision,
        reason: None,
        // Of no action: nothing can be allowed by this, should it wait again in the meantime.
        digest: Some("none".to_owned()),
        key: None,
    };
    match client.call_raw(&PermissionAnswer(answer))? {
        Err(error) if error.code() == Some(Code::AlreadyAnswered) => Err(decided(error.data)),
        Err(error) => {
            let failure = Failure::from(error);
            Err(if failure.hint.is_none() { failure.hint("`linger inbox` lists what waits") } else { failure })
        }
        Ok(_) => Ok(Exit::GOOD),
    }
}
