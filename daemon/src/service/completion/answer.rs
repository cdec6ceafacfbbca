//! The last steps of an answer before its caller gets it: it is cut, becomes a call, or is put into the form of a schema. Pure.

use std::collections::BTreeSet;

use linger_protocol::completion::CompletionEvent;
use linger_protocol::id::CallId;
use linger_protocol::message::{ContentBlock, StopReason, Usage};
use serde_json::Value;

use super::forced::ForcedCall;
use super::stop::StopCut;
use crate::provider::models::Prices;
use crate::provider::output_schema::answer_call_to_text;
use crate::provider::{Response, Stop, schema};
use crate::sys::clock;

/// The characters of a call's name that the daemon gives.
const CALL_WORD: usize = 20;

/// The steps that an answer takes before its caller gets it.
#[derive(Default)]
pub(super) struct AnswerForm {
    /// The schema of the answer, and whether the provider wraps answers for it.
    pub(super) schema: Option<(Value, bool)>,
    /// The call that the answer becomes.
    pub(super) forced: Option<ForcedCall>,
    /// Whether only the first call counts.
    pub(super) is_single: bool,
    /// Texts that end it; absent if there are none.
    pub(super) stop: Option<StopCut>,
}

impl AnswerForm {
    /// The end of an answer.
    pub(super) fn completed(&self, mut response: Response, prices: &Prices) -> CompletionEvent {
        if let Some(stop) = &self.stop {
            cut(&mut response, stop);
        }
        if let Some(forced) = &self.forced {
            let texts: Vec<&str> = response.content.iter().filter_map(ContentBlock::as_text).collect();
            if let Some(call) = forced.call(&texts.concat()) {
                response.content.retain(|block| block.as_text().is_none());
                response.content.push(call);
            }
        }
        if let Some((schema, wraps)) = &self.schema {
            answer_call_to_text(&mut response);
            let calls = response.content.iter().any(|block| matches!(block, ContentBlock::ToolUse { .. }));
            // An answer that does not fit is given as it is: the caller has its own way to try again.
            if let Ok(answer) = schema::fit(schema, &response.content, *wraps)
                && !calls
            {
                response.content.retain(|block| block.as_text().is_none());
                response.content.push(ContentBlock::text(answer.to_string()));
            }
        }
        if self.is_single {
            let mut calls = 0;
            response.content.retain(|block| {
                calls += usize::from(matches!(block, ContentBlock::ToolUse { .. }));
                calls <= 1 || !matches!(block, ContentBlock::ToolUse { .. })
            });
        }
        name_calls(&mut response.content);
        let stop_reason = match response.stop {
            Stop::End | Stop::NoCalls | Stop::Paused => StopReason::EndTurn,
            Stop::MaxTokens => StopReason::MaxTokens,
            Stop::Refusal => StopReason::Refusal,
        };
        let usage = response.usage;
        let usage = Usage { cost_micros: usage.cost_micros.or_else(|| prices.cost(&usage)), ..usage };
        CompletionEvent::Completed { content: response.content, stop_reason, usage }
    }
}

/// Ends an answer before the first stop text in it; what came after is gone too.
fn cut(response: &mut Response, stop: &StopCut) {
    let place = |block: &ContentBlock| stop.place(block.as_text()?);
    let Some((n, place)) = response.content.iter().enumerate().find_map(|(n, block)| Some((n, place(block)?))) else {
        return;
    };
    response.content.truncate(n + 1);
    response.stop = Stop::End;
    if let Some(ContentBlock::Text { text }) = response.content.last_mut() {
        text.truncate(place);
    }
    response.content.retain(|block| block.as_text() != Some(""));
}

/// Gives each call the provider's name for it, or a random one.
fn name_calls(content: &mut [ContentBlock]) {
    let mut names = BTreeSet::new();
    for block in content {
        if let ContentBlock::ToolUse { call_id, native, .. } = block {
            let own = native.as_ref().and_then(|native| native.get("id")?.as_str()).filter(|id| !id.is_empty());
            let own = own.filter(|id| names.insert((*id).to_owned()));
            *call_id = own.map_or_else(|| CallId(format!("call_{}", clock::random_word(CALL_WORD))), CallId::from);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str) -> ContentBlock {
        ContentBlock::ToolUse { call_id: "".into(), name: name.to_owned(), input: json!({}), native: None }
    }

    /// The texts and the names of the calls of an answer.
    fn given(form: &AnswerForm, content: Vec<ContentBlock>) -> Vec<String> {
        let response = Response { content, stop: Stop::MaxTokens, ..Response::default() };
        let CompletionEvent::Completed { content, .. } = form.completed(response, &Prices::default()) else {
            panic!("it is not completed")
        };
        let word = |block: &ContentBlock| match block {
            ContentBlock::ToolUse { name, call_id, .. } => {
                assert!(call_id.0.starts_with("call_"));
                format!("{name}()")
            }
            block => block.as_text().unwrap_or_default().to_owned(),
        };
        content.iter().map(word).collect()
    }

    #[test]
    fn an_answer_of_one_call_has_the_first() {
        let content = || vec![ContentBlock::text("a"), call("f"), call("g"), ContentBlock::text("b")];
        assert_eq!(given(&AnswerForm::default(), content()), ["a", "f()", "g()", "b"]);
        let single = AnswerForm { is_single: true, ..AnswerForm::default() };
        assert_eq!(given(&single, content()), ["a", "f()", "b"]);
    }

    #[test]
    fn a_whole_answer_ends_before_a_stop_text() {
        let stop = |text: &str| AnswerForm { stop: Some(StopCut::new(vec![text.to_owned()])), ..AnswerForm::default() };
        let content = || vec![ContentBlock::text("one"), ContentBlock::text("two three"), call("f")];
        assert_eq!(given(&stop(" three"), content()), ["one", "two"]);
        assert_eq!(given(&stop("two"), content()), ["one"]);
        assert_eq!(given(&stop("four"), content()), ["one", "two three", "f()"]);
    }
}
