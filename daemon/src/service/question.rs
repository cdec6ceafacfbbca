//! `question/*` and `permission/*`: listing and answering questions. A permission is a question in other terms.

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::{PermissionId, SessionId};
use linger_protocol::permission::{self, Answered, Decision, Pending};
use linger_protocol::question::{After, AlreadyAnswered, Answer, List, PendingQuestion};

use super::route::Route;
use super::{Caller, Services, config};
use crate::question::is_as_shown;
use crate::session::actor::answered_before;
use crate::session::messages::{Command, KeyedReply, PlaceKind};
use crate::store::idempotency::Key;

/// The longest reason of an answer, in bytes: a few lines for the model.
const MAX_REASON: usize = 16 << 10;

/// The questions that wait in the sessions that the caller may read.
pub async fn list(services: &Services, caller: &Caller, params: List) -> Result<Vec<PendingQuestion>, RpcError> {
    let readable = caller.readable(services).await?;
    let mut pending = services.store.pending(params.session, params.after, readable).await?;
    for question in pending.extract_if(.., |question| !is_as_shown(question)) {
        let text = format!("question {} is not what was asked, as its digest says", question.question);
        let session = question.session.unwrap_or_else(SessionId::daemon);
        services.store.found.session(&session, &text);
    }
    Ok(pending)
}

/// Answers a question; the first answer wins, and a later one fails with the winner's.
pub async fn answer(services: &Services, caller: &Caller, mut params: Answer) -> Result<Answered, RpcError> {
    let key = Key::of("question/answer", params.question.as_str(), params.key.take(), &params)?;
    give(services, caller, params, key).await
}

/// The permissions that wait in the sessions that the caller may read.
pub async fn permissions(
    services: &Services,
    caller: &Caller,
    params: permission::List,
) -> Result<Vec<Pending>, RpcError> {
    let after = params.after.map(|after| After { at: after.at, question: after.permission });
    let questions = list(services, caller, List { session: params.session, after }).await?;
    Ok(questions.into_iter().filter_map(PendingQuestion::into_permission).collect())
}

/// Answers a permission; as [`answer`], in the terms of permissions.
pub async fn decide(
    services: &Services,
    caller: &Caller,
    mut params: permission::Answer,
) -> Result<Answered, RpcError> {
    if params.decision == Decision::Cancelled {
        return Err(RpcError::new(Code::NotAllowed, "'cancelled' is not an answer").hint("cancel the turn instead"));
    }
    let key = Key::of("permission/answer", params.permission.as_str(), params.key.take(), &params)?;
    let permission::Answer { permission, decision, reason, digest, rules, .. } = params;
    let (question, answer) = (permission.clone(), decision.name().to_owned());
    let answer = Answer { question, answer, value: None, reason, digest, rules, key: None };
    give(services, caller, answer, key).await.map_err(|error| of_permission(error, &permission))
}

/// Sends an answer to the session that asks, or to the daemon's own log. The caller must be authorised.
async fn give(services: &Services, caller: &Caller, answer: Answer, key: Option<Key>) -> Result<Answered, RpcError> {
    if answer.reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON) {
        return Err(RpcError::new(Code::TooMuch, format!("a reason may have {MAX_REASON} bytes")));
    }
    let session = match services.env().questions.session(&answer.question) {
        Some(session) => session,
        None => match services.store.question(answer.question.clone()).await? {
            Some(asked) => asked.session,
            None => return Err(answered_before(&services.store, &answer.question).await),
        },
    };
    let by = caller.author();
    if session.is_daemon() {
        // About the configuration and what workspaces want.
        caller.must_be_process(services, "answer a question of the daemon itself")?;
        return config::answer(services, answer, by, key).await;
    }
    let route = Route::to(services, caller, &session, "question/answer", PlaceKind::Change).await?;
    let limit = caller.answer_limit(services);
    let question = answer.question.clone();
    match route.send(|reply| Command::Answer(answer, by, limit, KeyedReply { key, reply })).await {
        Ok(()) => Ok(Answered { outcome: "won".to_owned() }),
        // The session was removed before the answer.
        Err(error) if error.code() == Some(Code::UnknownSession) => {
            Err(answered_before(&services.store, &question).await)
        }
        Err(error) => Err(error),
    }
}

/// An error of an answer, in the terms of permissions; a question of another kind is an unknown permission.
fn of_permission(error: RpcError, id: &PermissionId) -> RpcError {
    let unknown = || {
        RpcError::new(Code::UnknownPermission, format!("unknown permission '{id}'"))
            .hint("`linger inbox` lists those that wait")
    };
    match error.code() {
        Some(Code::UnknownQuestion | Code::UnknownOption) => unknown(),
        Some(Code::AlreadyAnswered) => {
            let given = error.data.and_then(|data| serde_json::from_value::<AlreadyAnswered>(data).ok());
            let decided = given.and_then(|AlreadyAnswered { answer, by, at }| {
                let decision = answer.map_or(Some(Decision::Cancelled), |name| Decision::answer(&name))?;
                serde_json::to_value(permission::AlreadyAnswered { decision, by, at }).ok()
            });
            decided.map_or_else(unknown, |data| RpcError { data: Some(data), code: error.code, message: error.message })
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_came_second_is_told_in_the_words_of_permissions() {
        let told = |answer: Option<&str>| {
            let given = AlreadyAnswered { answer: answer.map(str::to_owned), by: "a".to_owned(), at: 7 };
            let error = RpcError::new(Code::AlreadyAnswered, "already answered");
            let data = serde_json::to_value(given).ok();
            of_permission(RpcError { data, ..error }, &"q1".into())
        };
        let data = |decision| Some(serde_json::json!({ "decision": decision, "by": "a", "at": 7 }));
        assert_eq!(told(Some("allow_always")).data, data("allow_always"));
        assert_eq!(told(None).data, data("cancelled"));
        assert_eq!(told(Some("go_on")).code(), Some(Code::UnknownPermission));
    }
}
