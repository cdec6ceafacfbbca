//! Questions between daemon and editor: which the editor was asked, and what becomes of its answers.
//!
//! A question that the editor cannot answer stays open for other clients; the user of the prompt that waits for it is told.

use agent_client_protocol_schema::v1::{CancelRequestNotification, Error, ErrorCode};
use linger_protocol::error::Code;
use linger_protocol::event::{FileChange, Location};
use linger_protocol::id::{QuestionId, SessionId};
use linger_protocol::method::{QuestionAnswer, QuestionList};
use linger_protocol::question::{self as pending, PendingQuestion};

use super::question::{self, EditorQuestion, OpenQuestion, Unanswered};
use super::wire::Message;
use super::{Bridge, blob, update};
use crate::error::Failure;
use crate::idempotency::key;

impl Bridge {
    /// Asks the editor a question, once.
    pub(super) fn put(
        &mut self,
        session: &SessionId,
        question: &PendingQuestion,
        at: &[Location],
        changes: &[FileChange],
    ) -> Result<(), Failure> {
        if self.questions.iter().any(|open| open.question == question.question) {
            return Ok(());
        }
        let client = &mut self.client;
        let request = match question::ask(session, question, at, changes, self.forms, &mut |id| blob(client, id)) {
            EditorQuestion::Permission(request) => self.editor.request("session/request_permission", &request)?,
            EditorQuestion::Form(request) => self.editor.request("elicitation/create", &request)?,
            EditorQuestion::Elsewhere(update) => return self.update(session, *update),
        };
        self.questions.push(OpenQuestion::new(request, session.clone(), question));
        Ok(())
    }

    /// Handles the editor's answer to our request.
    pub(super) fn answered(&mut self, message: Message) -> Result<(), Failure> {
        let request = message.id.as_ref().and_then(serde_json::Value::as_u64);
        let Some(at) = self.questions.iter().position(|open| request == Some(open.request)) else { return Ok(()) };
        let open = self.questions.remove(at);
        let (session, question) = (open.session.clone(), open.question.clone());
        let unanswered = match open.answer(message.result, message.error, key()?) {
            Err(unanswered) => unanswered,
            // Another client may have been first, whose answer then counts: its event follows.
            Ok(answer) => match self.client.call_raw(&QuestionAnswer(answer))? {
                Ok(_) => return Ok(()),
                Err(error) if error.code() == Some(Code::AlreadyAnswered) => return Ok(()),
                Err(error) => Unanswered::Failed(error.message.to_string()),
            },
        };
        // A question that was withdrawn with its turn is answered `cancelled` by the editor.
        if !self.is_open(&session, &question)? {
            return Ok(());
        }
        match unanswered {
            Unanswered::Cancelled => {
                let text = format!("the question is still open; answer it with `linger answer {question}`");
                self.update(&session, update::note(&text))
            }
            Unanswered::Failed(why) => self.stuck(&session, &question, &why),
        }
    }

    /// Tells the user that a question cannot be answered in this editor: by ending the prompt that waits for it, which every
    /// editor shows. The turn goes on once another client answers.
    fn stuck(&mut self, session: &SessionId, question: &QuestionId, why: &str) -> Result<(), Failure> {
        let text = format!(
            "this editor's answer to a question cannot be used: {why}; the question is still open, and the turn goes on \
             once it is answered: `linger answer {question}`, or `linger inbox`"
        );
        let Some(opened) = self.sessions.get(session) else { return Ok(()) };
        let running = opened.running.clone().filter(|running| opened.open.iter().any(|(open, _)| open == running));
        match running {
            Some(prompt) => self.settle(session, &prompt, Err(Error::new(ErrorCode::InternalError.into(), text))),
            None => self.update(session, update::note(&text)),
        }
    }

    fn is_open(&mut self, session: &SessionId, question: &QuestionId) -> Result<bool, Failure> {
        let list = QuestionList(pending::List { session: Some(session.clone()), after: None });
        // A session that is gone has no questions.
        Ok(self.ask(&list)?.is_ok_and(|rows| rows.iter().any(|row| row.question == *question)))
    }

    pub(super) fn forget_questions(&mut self, session: &SessionId) -> Result<(), Failure> {
        let (gone, kept): (Vec<OpenQuestion>, Vec<OpenQuestion>) =
            std::mem::take(&mut self.questions).into_iter().partition(|open| open.session == *session);
        self.questions = kept;
        gone.into_iter().try_for_each(|open| self.withdraw(open.request))
    }

    /// Takes a question back that was answered elsewhere.
    pub(super) fn withdraw(&self, request: u64) -> Result<(), Failure> {
        let id = i64::try_from(request).unwrap_or_default();
        self.editor.notify("$/cancel_request", &CancelRequestNotification::new(id))
    }
}
