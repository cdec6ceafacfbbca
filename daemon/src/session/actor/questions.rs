//! Questions of a session: asking, waiting, and the one answer that wins. Permissions are questions of calls.
//!
//! A question with the same content is the same question: a turn that resumes after a restart finds the answer given in the
//! meantime, or waits again.

use linger_protocol::question::{AlreadyAnswered, Answer, Blocks, Question};

use super::*;
use crate::question;
use crate::session::state::{QuestionState, Resolution, Turn};
use crate::store::Store;

/// The length of a question's random id, in letters of five bits. A collision fails a write; among a million ids in one database
/// its probability is one in two thousand.
const RANDOM: usize = 10;

impl Actor {
    pub(super) async fn answer(&mut self, answer: Answer, by: String, asked: KeyedReply) {
        let Some(KeyedReply { key, reply }) = self.first_time(asked).await else { return };
        let Some(asked) = self.state.question(&answer.question).cloned() else {
            // The question is closed; its answer is in the store, or queued there.
            if let Err(error) = self.barrier().await {
                return respond(reply, Err(error.into()));
            }
            let error = answered_before(&self.env.store, &answer.question).await;
            return respond(reply, Err(error));
        };
        if let Some(given) = asked.answer.as_ref().filter(|_| !fault::bug("I9")) {
            let error = already_answered(given.answer.as_deref(), &given.by, given.at);
            // Reply after the commit: a crash could undo the earlier answer, and another would win.
            let written = self.flush();
            tokio::spawn(async move {
                let written = written.await.unwrap_or_else(|_| Err(StoreError("the store has ended".into())));
                respond(reply, Err(written.map_or_else(RpcError::from, |()| error)));
            });
            return;
        }
        if let Err(error) = self.may_answer(&asked, &answer) {
            return respond(reply, Err(error));
        }
        fault::point("actor.answered");
        let outcome = self.remember(key, &());
        let grant = asked.grant().filter(|_| answer.answer == Decision::AllowAlways.name()).map(str::to_owned);
        let committed = self.resolve(&asked, Some(answer.answer), by, answer.reason, outcome);
        let tools = self.env.tools.current();
        let (session, host, policy) = (self.id.clone(), self.host.clone(), self.env.policy.clone());
        let (root, cwd) = (self.workspace.root.clone(), self.state.cwd.clone());
        tokio::spawn(async move {
            let result = committed.await.unwrap_or_else(|_| Err(StoreError("the store has ended".into())));
            if let Some(grant) = grant.filter(|_| result.is_ok()) {
                // A request after the answer finds the rule in force. If writing fails, the rule holds for the session only.
                let failed = move |text| host.warn(&session, NoticeCode::RuleNotStored, text);
                policy.grant_always(&root, grant_everywhere(&grant, &cwd, tools.names()), failed).await;
            }
            respond(reply, result.map_err(RpcError::from));
        });
        self.review();
        // An answer to a question that blocks an offered turn resumes it; without its model it stays offered.
        let holds_up = self.state.turn.as_ref().is_some_and(|turn| turn.questions.iter().any(|it| it.id == asked.id));
        if holds_up && matches!(self.phase, Phase::Idle) && self.env.providers.usable(&self.state.model).is_ok() {
            drop(self.resume_interrupted(Vec::new()));
        }
    }

    /// Checks that the answer fits the question.
    fn may_answer(&self, asked: &QuestionState, answer: &Answer) -> Result<(), RpcError> {
        let noun = if asked.grant().is_some() { "permission" } else { "question" };
        if answer.digest.as_ref().is_some_and(|digest| *digest != asked.digest) {
            return Err(RpcError::new(Code::WrongDigest, format!("{noun} {} is for {}", asked.id, asked.digest))
                .hint(format!("look at it again with {noun}/list")));
        }
        let names = asked.names();
        if !names.contains(&answer.answer.as_str()) {
            let text = format!("'{}' is not an answer to {noun} {}", answer.answer.escape_default(), asked.id);
            return Err(RpcError::new(Code::UnknownOption, text).hint(format!("use one of {}", names.join(", "))));
        }
        let lasting = [Decision::AllowSession, Decision::AllowAlways].map(Decision::name);
        let grant = asked.grant().filter(|_| lasting.contains(&answer.answer.as_str()));
        let has_room = |grant: &str| self.state.grants.len() < MAX_GRANTS && grant.len() <= MAX_GRANT;
        if grant.is_some_and(|grant| !self.state.grants.iter().any(|it| it == grant) && !has_room(grant)) {
            let limit = format!("a session may have {MAX_GRANTS} allowed rules of {MAX_GRANT} bytes each");
            return Err(RpcError::new(Code::TooMuch, limit).hint("allow it once"));
        }
        Ok(())
    }

    /// Records an answer and releases what waits for it. Without an `answer` the question is withdrawn.
    fn resolve(
        &mut self,
        asked: &QuestionState,
        answer: Option<String>,
        by: String,
        reason: Option<String>,
        outcome: Option<Fold>,
    ) -> oneshot::Receiver<Result<(), StoreError>> {
        let resolved = asked.resolved(answer.clone(), by.clone(), reason.clone());
        let of_turn = !self.state.questions.iter().any(|it| it.id == asked.id);
        let draft = if of_turn { self.in_turn(resolved) } else { Draft::new(resolved) };
        let (done, committed) = oneshot::channel();
        self.append(vec![draft], outcome.into_iter().collect(), true, Some(done));
        if let Phase::Running(running) = &mut self.phase
            && let Some(request) = running.waiting.remove(&asked.id)
        {
            fault::point("actor.permitted");
            let resolution = Resolution { answer, by, at: 0, reason };
            // The digest that was shown: the call compares it with its own. The call may be cancelled by now.
            let _gone = request.reply.send(permitted(&resolution, &asked.digest));
        }
        self.release();
        committed
    }

    /// Decides a permission for the daemon's own reasons.
    fn decide(&mut self, id: &QuestionId, decision: Decision, by: &str, reason: Option<String>) {
        if let Some(asked) = self.state.question(id).cloned() {
            drop(self.resolve(&asked, Some(decision.name().to_owned()), by.to_owned(), reason, None));
        }
    }

    /// Releases the held boundary of a turn, if no question blocks it any more.
    fn release(&mut self) {
        if self.state.turn.as_ref().is_some_and(Turn::is_held) {
            return;
        }
        if let Phase::Running(running) = &mut self.phase
            && let Some((ending, reply)) = running.held.take()
        {
            self.boundary(ending, reply);
        }
    }

    /// Holds back the turn's next step while a question blocks it; otherwise replies with the next step.
    pub(super) fn boundary_or_hold(&mut self, ending: Option<Ending>, reply: oneshot::Sender<NextStep>) {
        if let Some((text, options, blocks)) = fault::choice("session") {
            self.ask_question(question::choice(text, options, blocks, None), oneshot::channel().0);
        }
        let is_held = self.state.turn.as_ref().is_some_and(Turn::is_held);
        match &mut self.phase {
            Phase::Running(running) if is_held => running.held = Some((ending, reply)),
            _ => self.boundary(ending, reply),
        }
    }

    /// Asks a question that is not a permission; replies when it is answered or withdrawn.
    pub(super) fn ask_question(&mut self, asked: Question, reply: Reply<Resolution>) {
        let same = |it: &&QuestionState| it.grant().is_none() && it.digest == asked.digest && it.call == asked.call;
        if let Some(earlier) = self.state.questions().find(same) {
            return match earlier.answer.clone() {
                // The answer may not be on disk yet.
                Some(resolution) => respond_when(reply, self.flush(), resolution),
                None => self.askers.entry(earlier.id.clone()).or_default().push(reply),
            };
        }
        if let Err(error) = self.may_ask(&asked) {
            return respond(reply, Err(error));
        }
        let question = QuestionId(format!("q{}", clock::random_word(RANDOM)));
        tracing::info!(target: "question", session = %self.id, %question, text = asked.text, "asked");
        let of_turn = asked.blocks != Blocks::Nothing;
        let body = EventBody::QuestionAsked { question: question.clone(), asked };
        let draft = if of_turn { self.in_turn(body) } else { Draft::new(body) };
        self.append(vec![draft], Vec::new(), true, None);
        self.askers.entry(question).or_default().push(reply);
    }

    /// Checks that the question blocks something that exists, and the bound on open questions.
    fn may_ask(&self, asked: &Question) -> Result<(), RpcError> {
        question::check(asked)?;
        if self.state.open_questions().count() >= question::MAX_OPEN {
            let limit = format!("session {} already has {} open questions", self.id, question::MAX_OPEN);
            return Err(RpcError::new(Code::TooMuch, limit).hint("answer some"));
        }
        let turn = self.state.turn.as_ref();
        let open = |call: &CallId| turn.is_some_and(|turn| turn.calls.iter().any(|it| it.id == *call && !it.finished));
        let is_there = match asked.blocks {
            Blocks::Nothing => asked.call.is_none(),
            Blocks::Turn => asked.call.is_none() && turn.is_some(),
            Blocks::Call => asked.call.as_ref().is_some_and(open),
        };
        if !is_there {
            let text = format!("session {} has no running call or turn for the question to block", self.id);
            return Err(RpcError::new(Code::Idle, text));
        }
        Ok(())
    }

    /// The reply channels of a question's askers, with the resolution in `event`.
    pub(super) fn resolution(
        &mut self,
        question: &QuestionId,
        event: &Event,
    ) -> Option<(Vec<Reply<Resolution>>, Resolution)> {
        let askers = self.askers.remove(question)?;
        let EventBody::QuestionResolved { answer, by, reason, .. } = &event.body else { return None };
        let (answer, by, reason) = (answer.clone(), by.clone(), reason.clone());
        Some((askers, Resolution { answer, by, at: event.at, reason }))
    }

    /// Events that must precede `body`: questions of a call that ends are withdrawn.
    pub(super) fn withdrawn_before(&self, body: &EventBody) -> Vec<EventBody> {
        match (body, &self.state.turn) {
            (EventBody::ToolFinished { call_id, .. }, Some(turn)) => {
                recovery::withdrawn(turn, call_id, "the call has ended")
            }
            _ => Vec::new(),
        }
    }

    /// Checks pending permissions again, after mode or rules have changed.
    pub(super) fn review(&mut self) {
        let Phase::Running(running) = &self.phase else { return };
        let again: Vec<(QuestionId, Verdict)> =
            running.waiting.iter().map(|(id, request)| (id.clone(), self.verdict(request))).collect();
        for (id, verdict) in again {
            match verdict {
                Verdict::Allow { by } => self.decide(&id, Decision::AllowOnce, &by, None),
                Verdict::Deny { reason } => self.decide(&id, Decision::RejectOnce, "the rules", Some(reason)),
                Verdict::Ask { .. } => {}
            }
        }
    }

    fn verdict(&self, request: &PermissionRequest) -> Verdict {
        let policy = (self.state.mode, self.state.grants.as_slice());
        self.env.policy.decide(policy, &request.info(), &request.resolved, &self.workspace)
    }

    pub(super) fn request_permission(&mut self, request: PermissionRequest) {
        let earlier = self.state.turn.as_ref().and_then(|turn| turn.permission(&request.call_id)).cloned();
        let verdict = match earlier {
            // Asked before a restart; the digest is the one that was shown.
            Some(asked) => match asked.answer {
                Some(_) if elsewhere(asked.grant(), &request) => PermissionAnswer::No(ELSEWHERE.to_owned()),
                Some(given) => permitted(&given, &asked.digest),
                None if elsewhere(asked.grant(), &request) => {
                    self.wait_for(asked.id.clone(), request);
                    return self.decide(&asked.id, Decision::RejectOnce, "the daemon", Some(ELSEWHERE.to_owned()));
                }
                None => {
                    self.env.questions.add(&asked.id, &self.id);
                    self.wait_for(asked.id, request);
                    // Mode and rules may have changed since.
                    return self.review();
                }
            },
            None => match self.verdict(&request) {
                Verdict::Allow { .. } => PermissionAnswer::ForNow(request.digest.clone()),
                Verdict::Deny { reason } => PermissionAnswer::No(reason),
                Verdict::Ask { rule } => return self.ask(request, rule),
            },
        };
        // The call may be cancelled by now.
        let _gone = request.reply.send(verdict);
    }

    pub(super) fn ask(&mut self, mut request: PermissionRequest, rule: Option<String>) {
        // Show the file that the call reaches, not only its name.
        if let Some(path) = request.effects.access.path()
            && let Some(real) = request.resolved.target().filter(|real| *real != path)
        {
            request.action = format!("{} (which is {})", request.action, real.display());
        }
        let id = QuestionId(format!("q{}", clock::random_word(RANDOM)));
        let grant = crate::permission::grant_for(&request.info(), &request.resolved);
        let requested = EventBody::PermissionRequested {
            permission: id.clone(),
            call_id: request.call_id.clone(),
            tool: request.tool.clone(),
            action: request.action.clone(),
            input: Value::clone(&request.input),
            cwd: self.state.cwd.clone(),
            digest: request.digest.clone(),
            rule,
            grant,
            options: Decision::ANSWERS.to_vec(),
        };
        tracing::info!(target: "permission", session = %self.id, permission = %id, action = %request.action, "asked");
        let draft = self.in_turn(requested);
        self.append(vec![draft], Vec::new(), true, None);
        self.wait_for(id, request);
    }

    pub(super) fn wait_for(&mut self, id: QuestionId, request: PermissionRequest) {
        if let Phase::Running(running) = &mut self.phase {
            running.waiting.insert(id, request);
        }
    }
}

fn permitted(given: &Resolution, digest: &str) -> PermissionAnswer {
    if given.answer.as_deref().and_then(Decision::answer).is_some_and(Decision::allows) {
        return PermissionAnswer::Yes(digest.to_owned());
    }
    let by = &given.by;
    PermissionAnswer::No(match &given.reason {
        Some(reason) => format!("denied by {by}: {reason}"),
        None => format!("denied by {by}"),
    })
}

/// Why a call from before a restart does not run.
const ELSEWHERE: &str = "the path leads to another file than the one that was shown";

/// Whether the call would reach another file than the one that was shown.
fn elsewhere(grant: Option<&str>, request: &PermissionRequest) -> bool {
    request.resolved.target().is_some()
        && crate::permission::grant_for(&request.info(), &request.resolved) != grant.unwrap_or_default()
}

/// The error for an answer to a closed or unknown question.
pub async fn answered_before(store: &Store, id: &QuestionId) -> RpcError {
    match store.question(id.clone()).await {
        Ok(Some(answered)) => match answered.answer {
            Some((answer, by, at)) => already_answered(answer.as_deref(), &by, at),
            None => {
                RpcError::new(Code::Internal, format!("question {id} is pending, but its session does not know it"))
            }
        },
        Ok(None) => RpcError::new(Code::UnknownQuestion, format!("unknown question '{id}'"))
            .hint("`linger inbox` or question/list shows pending ones"),
        Err(error) => error.into(),
    }
}

/// The error for a second answer; without an `answer` the question was withdrawn.
fn already_answered(answer: Option<&str>, by: &str, at: u64) -> RpcError {
    let given = AlreadyAnswered { answer: answer.map(str::to_owned), by: by.to_owned(), at };
    RpcError { data: serde_json::to_value(given).ok(), ..RpcError::new(Code::AlreadyAnswered, "already answered") }
}
