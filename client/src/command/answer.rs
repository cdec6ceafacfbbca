//! `linger answer`: answers a question from anywhere. The digest binds the answer to what `question/list` showed.

use std::collections::BTreeMap;

use linger_protocol::error::Code;
use linger_protocol::method::{QuestionAnswer, QuestionList};
use linger_protocol::question::{List, PendingQuestion};
use serde_json::{Value, json};

use super::find::MIN_PREFIX;
use crate::arguments::Answer;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::question::{Question, answer_text, too_late, unknown_kind};
use crate::render::style::Style;
use crate::terminal::{Capabilities, Terminal};

pub(super) fn run(args: Answer) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let rows = client.call(&QuestionList(List::default()))?;
    let Some(row) = find(&rows, &args.question)? else {
        return gone(&mut client, &args);
    };
    let Some(question) = Question::of_pending(row) else {
        return Err(Failure::new(Exit::FAILED, unknown_kind(row)).hint("answer it with another client"));
    };
    let Some(name) = question.named(&args.answer) else {
        let wrong = format!("'{}' is not an answer to {}", args.answer.escape_default(), row.question);
        return Err(Failure::usage(wrong).hint(format!("one of {}", question.words().join(", "))));
    };
    let value = if name == "accept" { question.fields(&args.answer)? } else { None };
    let answer = question.answer(name.clone(), args.reason)?;
    match client.call_raw(&QuestionAnswer(linger_protocol::question::Answer { value, ..answer }))? {
        Ok(_) => {}
        Err(error) if error.code() == Some(Code::AlreadyAnswered) => {
            return Err(decided(error.data));
        }
        Err(error) => return Err(error.into()),
    }
    if args.json {
        let (id, answer) = (json!(row.question), json!(name));
        let of_permission = row.asked.permission.iter();
        let of_permission = of_permission.flat_map(|_| [("permission", id.clone()), ("decision", answer.clone())]);
        let session = row.session.iter().map(|session| ("session", json!(session)));
        let fields = [("question", id.clone()), ("answer", answer.clone())].into_iter();
        let said: BTreeMap<&str, Value> = fields.chain(session).chain(of_permission).collect();
        super::print_value(&said)?;
        return Ok(Exit::GOOD);
    }
    let look = Capabilities::detect();
    let style = Style { color: look.color, unicode: look.unicode };
    let mut terminal = Terminal::new();
    terminal.talk(&question.text(&style))?;
    terminal.say(&format!("  {}", answer_text(&name)))?;
    Ok(Exit::GOOD)
}

/// Another answer came first.
fn decided(data: Option<Value>) -> Failure {
    Failure::new(Exit::FAILED, too_late(data)).hint("that answer stands; `linger inbox` lists what is still waiting")
}

fn find<'a>(rows: &'a [PendingQuestion], text: &str) -> Result<Option<&'a PendingQuestion>, Failure> {
    if let Some(row) = rows.iter().find(|row| row.question.as_str() == text) {
        return Ok(Some(row));
    }
    let fitting: Vec<&PendingQuestion> = rows.iter().filter(|row| row.question.as_str().starts_with(text)).collect();
    match fitting.as_slice() {
        [] => Ok(None),
        _ if text.chars().count() < MIN_PREFIX => Err(Failure::usage(format!("unknown question '{text}'"))
            .hint(format!("a prefix of an id has at least {MIN_PREFIX} characters; `linger inbox` lists the ids"))),
        [row] => Ok(Some(row)),
        _ => {
            let ids: Vec<&str> = fitting.iter().map(|row| row.question.as_str()).collect();
            Err(Failure::usage(format!("'{text}' could be one of {}", ids.join(", "))).hint("write more of the id"))
        }
    }
}

/// A question that does not wait: the daemon knows whether it was answered, and by whom.
fn gone(client: &mut Client, args: &Answer) -> Result<Exit, Failure> {
    let answer = linger_protocol::question::Answer {
        question: args.question.as_str().into(),
        answer: args.answer.clone(),
        value: None,
        reason: None,
        // The digest of nothing: this answers no question, even if it waits again.
        digest: Some("none".to_owned()),
        rules: Vec::new(),
        key: None,
    };
    match client.call_raw(&QuestionAnswer(answer))? {
        Err(error) if error.code() == Some(Code::AlreadyAnswered) => Err(decided(error.data)),
        Err(error) => {
            let failure = Failure::from(error);
            Err(if failure.hint.is_none() { failure.hint("`linger inbox` lists what waits") } else { failure })
        }
        Ok(_) => Ok(Exit::GOOD),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<PendingQuestion> {
        let row = |id: &str| json!({ "question": id, "session": "s1", "kind": "choice", "blocks": "turn", "text": "?", "digest": "d", "at": 1 });
        ["q2tv9abcdef", "q2tv8abcdef"].map(|id| serde_json::from_value(row(id)).unwrap()).to_vec()
    }

    #[test]
    fn a_prefix_has_four_characters_and_means_one_question() {
        let rows = rows();
        let id = |text: &str| find(&rows, text).map(|row| row.map(|row| row.question.to_string())).map_err(drop);
        assert_eq!(id("q2tv9"), Ok(Some("q2tv9abcdef".to_owned())));
        assert_eq!(id("q2tv8abcdef"), Ok(Some("q2tv8abcdef".to_owned())));
        for text in ["", "q", "q2t", "q2tv"] {
            assert_eq!(id(text), Err(()), "{text}");
        }
        assert_eq!((id("zzz"), id("q3tv9")), (Ok(None), Ok(None)));
    }
}
