//! The answer to a request: pieces of a completion without a session, or of a turn in one ([`super::turn`]).
//!
//! A task of its own reads the daemon. When its receiver is dropped, as a client hangs up, it cancels what was begun for that
//! request alone; the turn of a bound session goes on.

use std::time::Duration;

use hyper::StatusCode;
use linger_protocol::completion::{self, CompletionEvent};
use linger_protocol::error::Code;
use linger_protocol::message::{ContentBlock, StopReason, text_of};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::asked::{ApiRequest, Target};
use super::options::RequestOptions;
use super::piece::{AnswerPiece, AnswerStream, Finished, WAITING, lost};
use super::{names, turn};
use crate::face::gateway::client::Client;
use crate::face::gateway::reply::Failure;
use crate::face::gateway::wire::Trouble;
use crate::sys::task;

/// Begins to answer.
pub(super) async fn begin(
    mut client: Client,
    options: RequestOptions,
    mut asked: ApiRequest,
) -> Result<AnswerStream, Failure> {
    if options.session.is_none() {
        asked.model = names::resolved(&mut client, &asked.model).await?;
    }
    match asked.target(options.session.clone())? {
        Target::Plain => complete(client, asked).await,
        target => turn::prompt(client, &options, target, asked).await,
    }
}

async fn complete(mut client: Client, asked: ApiRequest) -> Result<AnswerStream, Failure> {
    let start = completion::Start {
        model: Some(asked.model),
        system: asked.system.join("\n\n"),
        messages: asked.messages,
        tools: asked.tools,
        schema: asked.schema,
        max_tokens: asked.max_tokens,
        effort: asked.effort,
        responses: asked.responses,
        ..asked.options
    };
    let started: completion::Started = match (client.wire.get("completion/start", start).await, asked.unless_native) {
        // Only a provider of the caller's own format could have taken it.
        (Err(Trouble::Refused(error)), Some(failure)) if error.code() == Some(Code::BadPrompt) => return Err(failure),
        (started, _) => started?,
    };
    let ignored = if started.native { Vec::new() } else { [asked.ignored, started.ignored].concat() };
    let (sender, pieces) = mpsc::channel(WAITING);
    let wants_object = asked.wants_object && !started.native;
    task::spawn(async move {
        loop {
            let notice = tokio::select! {
                notice = client.wire.next() => notice,
                // The end of the connection ends the completion.
                () = sender.closed() => return,
            };
            let event = notice.and_then(|notice| serde_json::from_str::<completion::Notification>(notice.get()).ok());
            let piece = event.map_or_else(|| AnswerPiece::Failed(lost()), |notice| piece_of(notice.event));
            let piece = match piece {
                AnswerPiece::Finished(finished) if wants_object && !is_object(&finished) => {
                    AnswerPiece::Failed(no_json())
                }
                piece => piece,
            };
            let is_last = matches!(piece, AnswerPiece::Finished(_) | AnswerPiece::Failed(_));
            if sender.send(piece).await.is_err() || is_last {
                return;
            }
        }
    });
    Ok(AnswerStream { pieces, model: started.model, session: None, ignored, is_native: started.native })
}

fn piece_of(event: CompletionEvent) -> AnswerPiece {
    match event {
        CompletionEvent::Text { text, .. } => AnswerPiece::Text(text),
        CompletionEvent::Thinking { text, .. } => AnswerPiece::Thinking(text),
        CompletionEvent::Native { data } => AnswerPiece::Native(data),
        CompletionEvent::Completed { content, stop_reason, usage } => {
            AnswerPiece::Finished(Finished { content, answer: None, reason: stop_reason, usage })
        }
        CompletionEvent::Failed { message, hint, status, code, retry_after_ms } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
            let failure = Failure::new(status, &code, message).hint(hint);
            AnswerPiece::Failed(Failure { retry_after: retry_after_ms.map(Duration::from_millis), ..failure })
        }
    }
}

/// Whether an answer is a JSON object, or is none for a reason that the caller is told.
fn is_object(finished: &Finished) -> bool {
    let has_calls = finished.content.iter().any(|block| matches!(block, ContentBlock::ToolUse { .. }));
    let is_whole = finished.reason == StopReason::EndTurn && !has_calls;
    !is_whole || serde_json::from_str::<Map<String, Value>>(&text_of(&finished.content)).is_ok()
}

fn no_json() -> Failure {
    let failure = Failure::new(StatusCode::BAD_GATEWAY, "no_json", "the model did not answer with a JSON object");
    failure.hint("ask again, say in the prompt that it is JSON that you want, or choose a model that can be held to it")
}
