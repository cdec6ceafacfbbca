//! Questions that are no permissions: what the scripted model asks, and how a client answers.
//!
//! A prompt whose first word is `ask` is answered with calls of `ask_user`, one with options and one that wants a text; `elicit`
//! calls a tool of an MCP server that asks; `circle` repeats a call until it is asked whether it may go on. A session with [`BUDGET`] is asked about that every few steps.

use serde_json::{Value, json};

use crate::check::{Seen, Transcript};
use crate::model::{Recorded, Reply};

/// Tokens after which a session is asked whether it may go on; an answer of the scripted model has 15.
pub(super) const BUDGET: u64 = 150;

/// How often a model in circles repeats a call if nothing stops it: it is asked after three times.
const CIRCLES: usize = 4;

/// What a model says to a prompt that makes it ask; nothing for any other prompt.
pub(super) fn asks(request: &Recorded) -> Option<Reply> {
    let words = request.last_words();
    let steps = steps(&request.json);
    match words.split(' ').next().unwrap_or_default() {
        "ask" if steps == 0 => {
            let options = json!({ "question": format!("{words}: which?"), "options": ["left", "right"] });
            let written = json!({ "question": format!("{words}: what?") });
            Some(Reply::tool("ask_user", options).and_tool("ask_user", written))
        }
        "elicit" if steps == 0 => Some(Reply::tool("mcp__s__ask", json!({ "text": words }))),
        "circle" if steps < CIRCLES => Some(Reply::tool("read", json!({ "path": "notes.txt" }))),
        "ask" | "circle" | "elicit" => Some(Reply::text("so be it")),
        _ => None,
    }
}

/// The answers of the model since the user's last words.
pub(super) fn steps(body: &Value) -> usize {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let since = messages.iter().rev().take_while(|message| message["role"] != "user");
    since.filter(|message| message["role"] == "assistant").count()
}

/// Whether it is the form of an MCP server.
pub(super) fn is_elicited(asked: &Value) -> bool {
    asked["schema"]["properties"]["name"].is_object()
}

/// A question that has no answer yet.
pub(super) struct Open {
    question: String,
    asked: Value,
}

/// The questions that a client has seen asked and not resolved.
pub(super) fn open_questions(seen: &Transcript) -> Vec<Open> {
    let done: Vec<&str> = seen.of("question_resolved").map(|seen| seen.str("question")).collect();
    let open = seen.of("question_asked").filter(|asked| !done.contains(&asked.str("question")));
    open.map(|asked: &Seen| Open { question: asked.str("question").to_owned(), asked: asked.event["asked"].clone() })
        .collect()
}

impl Open {
    pub(super) fn id(&self) -> &str {
        &self.question
    }

    /// The parameters of an answer by `name`: the first option if it `likes`, the last one if not.
    pub(super) fn answer(&self, likes: bool, name: &str) -> Value {
        let Self { question, asked } = self;
        let options = asked["options"].as_array().map(Vec::as_slice).unwrap_or_default();
        let option = if likes { options.first() } else { options.last() };
        let option = option.map(|option| option["name"].clone()).unwrap_or_default();
        let key = format!("a-{name}-{question}");
        let mut answer = json!({ "question": question, "answer": option, "digest": asked["digest"], "key": key });
        if asked["kind"] == "form" && option == "accept" {
            // The form of `ask_user` has one field, that of the scripted server another.
            let fields = asked["schema"]["properties"].as_object().into_iter().flatten();
            answer["value"] = fields.map(|(field, _)| (field.clone(), json!(format!("{name} says so")))).collect();
        }
        answer
    }
}
