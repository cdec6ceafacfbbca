//! The methods whose answer is followed by notifications: a session's events, those of all sessions, a completion's pieces.
//!
//! The forwarder of a stream starts once the answer has been sent, so that nothing of it comes first.

use std::sync::Arc;

use linger_protocol::{RpcError, completion, events, session};
use serde::Serialize;

use super::conn::{Attached, Conn};
use super::forward::{EventSource, forward};
use super::request::{Answer, MethodCall, payload};
use crate::service::{self, Services};
use crate::sys::task;

/// `session/attach`.
pub(super) async fn attach(request: MethodCall) -> Answer {
    let params: session::Attach = request.read()?;
    let to = Attached::Session(params.session.clone());
    let attached = service::session::attach(&request.services, request.conn.caller(), params);
    attach_and_forward(&request, to, attached).await
}

/// `events/subscribe`.
pub(super) async fn subscribe(request: MethodCall) -> Answer {
    let params: events::Subscribe = request.read()?;
    let subscribed = service::events::subscribe(&request.services, request.conn.caller(), params);
    attach_and_forward(&request, Attached::All, subscribed).await
}

/// `completion/start`.
pub(super) async fn complete(request: MethodCall) -> Answer {
    let params: completion::Start = request.read()?;
    let (conn, services) = (&request.conn, &request.services);
    let number = conn.next_completion();
    let (started, completion) = service::completion::start(services, conn.caller(), number, params).await?;
    let to = Attached::Completion(started.completion.clone());
    let generation = conn.begin_attach(&to)?;
    answer_and_forward(services, conn, to, generation, &started, completion)
}

/// Takes the place of `to` in the connection, asks for the stream, and forwards it after the answer; a refusal leaves the place as it
/// was.
async fn attach_and_forward<R: Serialize, S: EventSource + 'static>(
    request: &MethodCall,
    to: Attached,
    stream: impl Future<Output = Result<(R, S), RpcError>>,
) -> Answer {
    let conn = &request.conn;
    let generation = conn.begin_attach(&to)?;
    match stream.await {
        Ok((started, source)) => answer_and_forward(&request.services, conn, to, generation, &started, source),
        Err(error) => {
            conn.forget_attach(&to, generation);
            Err(error.into())
        }
    }
}

/// The answer, after which `source` is forwarded.
fn answer_and_forward<S: EventSource + 'static>(
    services: &Arc<Services>,
    conn: &Arc<Conn>,
    to: Attached,
    generation: u64,
    started: &impl Serialize,
    source: S,
) -> Answer {
    let (payload, answered) = payload(started)?.notify_on_completion();
    let (outbox, may) = (conn.outbox.clone(), conn.may_send(services));
    conn.end_attach(&to, generation, || {
        let forwarder = task::spawn(async move {
            if answered.await.is_ok() {
                forward(source, outbox, may).await;
            }
        });
        forwarder.abort_handle()
    });
    Ok(payload)
}
