//! `linger answer`: answers a question from anywhere; without an id, the only one that waits.
//!
//! The digest binds the answer to what `question/list` showed.

use std::collections::{BTreeMap, BTreeSet};

use linger_protocol::error::Code;
use linger_protocol::method::{QuestionAnswer, QuestionList};
use linger_protocol::permission::Decision;
use linger_protocol::question::{List, PendingQuestion};
use serde_json::{Value, json};

use super::config::{ask_about, list};
use super::find::MIN_PREFIX;
use super::output::print_value;
use crate::arguments::Answer;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::question::{Question, answer_text, too_late, unknown_kind};
use crate::render::style::Style;
use crate::terminal::{Capabilities, Terminal, clean_line};

pub(super) fn run(args: Answer) -> Result<Exit, Failure> {
    let Answer { question, answer, reason, rest, digest, json } = args;
    let mut client = Client::open()?;
    let rows = client.call(&QuestionList(List::default()))?;
    let (row, word) = match (question, answer) {
        (Some(id), Some(word)) => match find(&rows, &id)? {
            Some(row) => (row, word),
            None => return not_waiting(&mut client, &id, word),
        },
        // One word is an id without an answer, or the answer to the only question.
        (Some(word), None) => match find(&rows, &word) {
            Ok(Some(row)) => return Err(no_answer(row)),
            Ok(None) | Err(_) => (only(&rows, Some(&word))?, word),
        },
        (None, _) => return Err(no_answer(only(&rows, None)?)),
    };
    let Some(question) = Question::of_pending(row) else {
        return Err(Failure::new(Exit::FAILED, unknown_kind(row)).hint("answer it with another client"));
    };
    let Some(name) = question.named(&word) else {
        let wrong = format!("'{}' is not an answer to {}", word.escape_default(), row.question);
        return Err(Failure::usage(wrong).hint(format!("one of {}", question.words().join(", "))));
    };
    if rest {
        return answer_rest(&mut client, &rows, row, &name, &digest, json);
    }
    let value = if name == "accept" { question.fields(&word)? } else { None };
    let answer = question.answer(name.clone(), reason)?;
    match client.call_raw(&QuestionAnswer(linger_protocol::question::Answer { value, ..answer }))? {
        Ok(_) => {}
        Err(error) if error.code() == Some(Code::AlreadyAnswered) => return Err(answered_before(error.data)),
        Err(error) => return Err(error.into()),
    }
    if json {
        print_value(&fields(row, &name))?;
        return Ok(Exit::GOOD);
    }
    let capabilities = Capabilities::detect();
    let style = Style { color: capabilities.color, unicode: capabilities.unicode };
    let mut terminal = Terminal::new();
    terminal.talk(&question.text(&style))?;
    terminal.say(&format!("  {}", answer_text(&name)))?;
    Ok(Exit::GOOD)
}

/// Allows all that the same answer of the model still asks, once all of it was shown: on a terminal by a key, otherwise by the digests
/// that the first try prints.
fn answer_rest(
    client: &mut Client,
    rows: &[PendingQuestion],
    row: &PendingQuestion,
    name: &str,
    digests: &[String],
    json: bool,
) -> Result<Exit, Failure> {
    if name != Decision::AllowOnce.name() {
        return Err(Failure::usage("--rest goes with `allow` alone").hint("answer the others one by one"));
    }
    let rest = rest_of(rows, row);
    let open: BTreeSet<&str> = rest.iter().map(|row| row.asked.digest.as_str()).collect();
    let shown: BTreeSet<&str> = digests.iter().map(String::as_str).collect();
    if shown.is_empty() {
        let title = format!("this answer of the model asks to run {}:", rest.len());
        let texts: Vec<String> = rest.iter().filter_map(|row| Some(Question::of_pending(row)?.whole_text())).collect();
        if !Capabilities::detect().can_ask() {
            list(&title, &texts)?;
            let digests = open.into_iter().collect::<Vec<_>>().join(",");
            let hint = format!("`linger answer {} allow --rest --digest {digests}` allows exactly this", row.question);
            return Err(Failure::new(Exit::QUESTION, "there is no terminal to ask on").hint(hint));
        }
        if !ask_about(client, &title, &texts, &format!("allow these {}, this once?", rest.len()))? {
            Terminal::new().say("nothing was answered")?;
            return Ok(Exit::CANCELLED);
        }
    } else if shown != open {
        return Err(Failure::new(Exit::FAILED, "the digests are not those of what this answer of the model asks now")
            .hint(format!("`linger answer {} allow --rest` shows it", row.question)));
    }
    for row in rest {
        let Some(question) = Question::of_pending(row) else { continue };
        match client.call_raw(&QuestionAnswer(question.answer(name.to_owned(), None)?))? {
            Ok(_) => {}
            Err(error) if error.code() == Some(Code::AlreadyAnswered) => return Err(answered_before(error.data)),
            Err(error) => return Err(error.into()),
        }
        if json {
            print_value(&fields(row, name))?;
        } else {
            Terminal::new().say(&format!("{}: {}", row.question, answer_text(name)))?;
        }
    }
    Ok(Exit::GOOD)
}

/// The open questions of the same answer of the model, this one included.
fn rest_of<'a>(rows: &'a [PendingQuestion], row: &PendingQuestion) -> Vec<&'a PendingQuestion> {
    let first = |row: &PendingQuestion| Some(row.asked.permission.as_ref()?.position.as_ref()?.first.clone());
    let of = first(row);
    rows.iter().filter(|it| it.question == row.question || of.is_some() && first(it) == of).collect()
}

/// The fields that `--json` prints. A question of the daemon has no session.
fn fields(row: &PendingQuestion, name: &str) -> BTreeMap<&'static str, Value> {
    let mut fields = BTreeMap::from([("question", json!(row.question)), ("answer", json!(name))]);
    if row.asked.permission.is_some() {
        fields.extend([("permission", json!(row.question)), ("decision", json!(name))]);
    }
    if let Some(session) = &row.session {
        fields.insert("session", json!(session));
    }
    fields
}

/// The question that an answer without an id is for. Fails unless exactly one waits.
fn only<'a>(rows: &'a [PendingQuestion], answer: Option<&str>) -> Result<&'a PendingQuestion, Failure> {
    match rows {
        [row] => Ok(row),
        [] => Err(Failure::usage("no question waits for an answer")
            .hint("`linger inbox -f` prints questions as they come; `linger wait SESSION` waits for one")),
        several => {
            let ids: Vec<&str> = several.iter().map(|row| row.question.as_str()).collect();
            let answer = answer.map(clean_line).unwrap_or("ANSWER".into());
            Err(Failure::usage(format!("{} questions wait: {}", ids.len(), ids.join(", ")))
                .hint(format!("`linger answer ID {answer}` answers one, `linger inbox` shows them")))
        }
    }
}

/// The error for a question without an answer: shows the question and lists the answers.
fn no_answer(row: &PendingQuestion) -> Failure {
    let Some(question) = Question::of_pending(row) else {
        return Failure::new(Exit::FAILED, unknown_kind(row)).hint("answer it with another client");
    };
    let style = Style { color: false, unicode: Capabilities::detect().unicode };
    Failure::usage(format!("{} needs an answer:\n{}", row.question, question.text(&style).trim_end())).hint(format!(
        "`linger answer {} ANSWER`, one of {}",
        row.question,
        question.words().join(", ")
    ))
}

/// The failure when another answer came first.
fn answered_before(data: Option<Value>) -> Failure {
    Failure::new(Exit::FAILED, too_late(data))
        .hint("that answer counts; `linger inbox` lists the questions that still wait")
}

fn find<'a>(rows: &'a [PendingQuestion], text: &str) -> Result<Option<&'a PendingQuestion>, Failure> {
    if let Some(row) = rows.iter().find(|row| row.question.as_str() == text) {
        return Ok(Some(row));
    }
    let fitting: Vec<&PendingQuestion> = rows.iter().filter(|row| row.question.as_str().starts_with(text)).collect();
    match fitting.as_slice() {
        [] => Ok(None),
        _ if text.chars().count() < MIN_PREFIX => Err(Failure::usage(format!("unknown question '{text}'"))
            .hint(format!("a prefix of an id needs at least {MIN_PREFIX} characters; `linger inbox` lists the ids"))),
        [row] => Ok(Some(row)),
        _ => {
            let ids: Vec<&str> = fitting.iter().map(|row| row.question.as_str()).collect();
            Err(Failure::usage(format!("'{text}' could be one of {}", ids.join(", "))).hint("write more of the id"))
        }
    }
}

/// Asks the daemon why a question does not wait: it knows whether it was answered, and by whom.
fn not_waiting(client: &mut Client, id: &str, answer: String) -> Result<Exit, Failure> {
    let answer = linger_protocol::question::Answer {
        question: id.into(),
        answer,
        value: None,
        reason: None,
        // Matches no question, so nothing is answered even if this one waits again.
        digest: Some("none".to_owned()),
        rules: Vec::new(),
        key: None,
    };
    match client.call_raw(&QuestionAnswer(answer))? {
        Err(error) if error.code() == Some(Code::AlreadyAnswered) => Err(answered_before(error.data)),
        Err(error) => {
            let failure = Failure::from(error);
            Err(if failure.hint.is_none() {
                failure.hint("`linger inbox` lists the questions that wait")
            } else {
                failure
            })
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

    #[test]
    fn an_answer_without_an_id_is_for_the_only_question() {
        let rows = rows();
        assert_eq!(
            only(&rows[..1], Some("a")).map(|row| row.question.to_string()).ok(),
            Some("q2tv9abcdef".to_owned())
        );
        assert_eq!(only(&[], None).unwrap_err().exit, Exit::USAGE);
        let several = only(&rows, Some("allow")).unwrap_err();
        assert_eq!(several.hint.as_deref(), Some("`linger answer ID allow` answers one, `linger inbox` shows them"));
    }
}
