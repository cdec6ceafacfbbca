//! `ask_user`: asks a person, who chooses one of several answers or writes one.
//!
//! The question waits like a permission: it survives restarts, and is answered from any client.

use linger_protocol::event::ToolKind;
use linger_protocol::question::QuestionOption;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::Effects;
use super::invalid::Invalid;
use super::types::{Ask, BoxFuture, Call, Choice, Chosen, Context, Tool, ToolOutput, Wants};
use super::workspace::Workspace;
use super::{args, text};

/// The longest question, in bytes: a screen of text.
const MAX_QUESTION: usize = 4 << 10;

/// The most options: each has a key at the terminal.
const MAX_OPTIONS: usize = 9;

/// The longest option, in bytes: a line of a terminal.
const MAX_OPTION: usize = 200;

/// The longest answer, in characters: some pages.
const MAX_ANSWER: usize = 16 << 10;

/// The field of the form that has a written answer.
const ANSWER: &str = "answer";

pub(super) struct AskUser;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    question: String,
    /// answers to choose from; without them the user writes one
    options: Option<Vec<String>>,
}

impl Tool for AskUser {
    fn name(&self) -> &str {
        "ask_user"
    }

    fn description(&self) -> &str {
        include_str!("ask_user.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn changes(&self) -> bool {
        false
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Think
    }

    fn prepare(&self, input: &Value, _: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { question, options } = args::parse(input)?;
        let question = question.trim().to_owned();
        if question.is_empty() || question.len() > MAX_QUESTION {
            return Err(Invalid(format!("`question` must have from 1 to {MAX_QUESTION} bytes")));
        }
        let Some(options) = options.filter(|options| !options.is_empty()) else {
            return Ok(Box::new(PreparedQuestion { question, options: Vec::new() }));
        };
        let options: Vec<String> = options.iter().map(|option| option.trim().to_owned()).collect();
        if !(2..=MAX_OPTIONS).contains(&options.len()) {
            return Err(Invalid(format!("`options` must be from 2 to {MAX_OPTIONS}, or none")));
        }
        let fits = |option: &String| !option.is_empty() && option.len() <= MAX_OPTION && !option.contains('\n');
        if let Some(option) = options.iter().find(|option| !fits(option)) {
            let shown = text::one_line(text::head(option, 40));
            return Err(Invalid(format!("`options`: '{shown}' must be one line of 1 to {MAX_OPTION} bytes")));
        }
        if let Some(twice) =
            options.iter().enumerate().find(|(at, option)| options.iter().take(*at).any(|it| it == *option))
        {
            return Err(Invalid(format!("`options`: '{}' stands there twice", text::one_line(twice.1))));
        }
        Ok(Box::new(PreparedQuestion { question, options }))
    }
}

struct PreparedQuestion {
    question: String,
    /// Empty if the user writes the answer.
    options: Vec<String>,
}

impl Call for PreparedQuestion {
    fn action(&self) -> String {
        self.question.clone()
    }

    fn effects(&self) -> Effects {
        Effects::nothing()
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(async move { self.ask(&context.ask).await.unwrap_or_else(|refused| ToolOutput::error(refused.0)) })
    }
}

impl PreparedQuestion {
    async fn ask(&self, ask: &Ask) -> Result<ToolOutput, Invalid> {
        let Chosen { answer, value } = ask(Choice { text: self.question.clone(), wants: self.wants() }).await?;
        if !self.options.is_empty() {
            return Ok(ToolOutput::text(answer));
        }
        let written = value.as_ref().and_then(|value| value.get(ANSWER)).and_then(Value::as_str);
        Ok(ToolOutput::text(written.unwrap_or("[the user gives no answer]")))
    }

    fn wants(&self) -> Wants {
        if self.options.is_empty() {
            let answer = json!({ "type": "string", "title": "Answer", "minLength": 1, "maxLength": MAX_ANSWER });
            return Wants::Fields(json!({ "type": "object", "properties": { ANSWER: answer }, "required": [ANSWER] }));
        }
        Wants::Option(self.options.iter().map(|option| QuestionOption::new(option, option)).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::mpsc;

    use super::*;
    use crate::tool::tests::{test_context, test_workspace};

    /// The result of a call whose question gets this answer.
    async fn answered(input: Value, expect: Choice, chosen: Chosen) -> ToolOutput {
        let (_dir, workspace) = test_workspace();
        let call = AskUser.prepare(&input, &workspace).unwrap();
        let ask: Ask = Arc::new(move |asked| {
            assert_eq!(asked, expect);
            Box::pin(std::future::ready(Ok(chosen.clone())))
        });
        call.run(Context { ask, ..test_context(&workspace, mpsc::channel(1).0) }).await
    }

    #[tokio::test]
    async fn the_option_that_is_chosen_is_the_result() {
        let options = ["sqlite", "postgres"].map(|name| QuestionOption::new(name, name)).to_vec();
        let expect = Choice { text: "which one?".to_owned(), wants: Wants::Option(options) };
        let input = json!({ "question": "which one?\n", "options": ["sqlite", " postgres"] });
        let chosen = Chosen { answer: "postgres".to_owned(), value: None };
        assert_eq!(answered(input, expect, chosen).await, ToolOutput::text("postgres"));
    }

    #[tokio::test]
    async fn an_answer_is_written_where_there_are_no_options() {
        let field = json!({ "type": "string", "title": "Answer", "minLength": 1, "maxLength": MAX_ANSWER });
        let schema = json!({ "type": "object", "properties": { "answer": field }, "required": ["answer"] });
        let expect = || Choice { text: "name?".to_owned(), wants: Wants::Fields(schema.clone()) };
        let chosen = Chosen { answer: "accept".to_owned(), value: Some(json!({ "answer": "linger" })) };
        let input = || json!({ "question": "name?" });
        assert_eq!(answered(input(), expect(), chosen).await, ToolOutput::text("linger"));
        let declined = Chosen { answer: "decline".to_owned(), value: None };
        assert_eq!(answered(input(), expect(), declined).await, ToolOutput::text("[the user gives no answer]"));
    }

    #[test]
    fn what_cannot_be_asked_is_refused_in_words() {
        let (_dir, workspace) = test_workspace();
        let check = |input: Value, expect: &str| {
            assert_eq!(AskUser.prepare(&input, &workspace).err().unwrap().0, expect);
        };
        check(json!({ "question": " " }), "`question` must have from 1 to 4096 bytes");
        check(json!({ "question": "x", "options": ["a"] }), "`options` must be from 2 to 9, or none");
        check(json!({ "question": "x", "options": ["a", "a "] }), "`options`: 'a' stands there twice");
        check(
            json!({ "question": "x", "options": ["a", "b\nc"] }),
            "`options`: 'b\\nc' must be one line of 1 to 200 bytes",
        );
    }
}
