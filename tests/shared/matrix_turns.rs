//! What the tests of `matrix_turns` share, whether they need a program or not.

use linger_tests::model::{Format, Reply};

/// How each format's providers refuse a history.
pub(crate) fn refusal(format: Format) -> Reply {
    let said = match format {
        Format::Anthropic => "messages.1.content.0: Invalid `signature` in `thinking` block",
        Format::OpenAi => "messages.1.assistant.reasoning_content: property 'reasoning_content' is unsupported",
        Format::Responses => "The encrypted content for item rs_1 could not be verified.",
        Format::Gemini => "Unable to submit request because Thought signature is not valid.",
        Format::Ollama => "Unexpected role 'user' after role 'tool'",
    };
    Reply::status(400).body(&format.error_body(400, "invalid_request_error", said).to_string())
}
