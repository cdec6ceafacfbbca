//! Questions of a session: asking, waiting, and the one answer that wins. Permissions are questions of calls.
//!
//! A question with the same content is the same question: a turn that resumes after a restart finds the answer given in the
//! meantime, or waits again.

use linger_protocol::event::{PermissionRequested, Process, QuestionResolved, ToolFinished};
use linger_protocol::question::{AlreadyAnswered, Answer, Blocks, Position, Question, QuestionOption, Subject};

use super::lasting::{in_words, rules_for_always};
use super::*;
use crate::config::{Confirmed, UnknownPrice};
use crate::question;
use crate::question::permission::{CallInfo, grants_for};
use crate::session::state::{GO_ON, QuestionState, Resolution, STOP, Turn};
use crate::store::Store;
use crate::sys::task;
use crate::tool::Access;

/// The length of a question's random id, in letters of five bits. A collision fails a write; among a million ids in one database
/// its probability is one in two thousand.
const RANDOM: usize = 10;

/// A call that a user has to be asked about.
struct DueQuestion {
    request: PermissionRequest,
    /// The rule that asks; absent when the mode does.
    rule: Option<String>,
    /// Why the mode asks about what it lets run elsewhere.
    why: Option<String>,
}

/// Reply channels of questions that are not permissions; after a restart only of those asked again.
#[derive(Default)]
pub(super) struct Askers(HashMap<QuestionId, Vec<Reply<Resolution>>>);

impl Askers {
    /// Whether nothing waits for an answer.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets those whose questions were never stored.
    pub(super) fn keep_only(&mut self, state: &State) {
        self.0.retain(|question, _| state.question(question).is_some());
    }

    fn add(&mut self, question: QuestionId, reply: Reply<Resolution>) {
        self.0.entry(question).or_default().push(reply);
    }
}

impl Actor {
    pub(super) async fn answer(&mut self, answer: Answer, by: Author, limit: AnswerLimit, asked: KeyedReply) {
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
            task::spawn(async move {
                let written = settled(written).await;
                respond(reply, Err(written.map_or_else(RpcError::from, |()| error)));
            });
            return;
        }
        if let Err(error) = self.may_answer(&asked, &answer).and_then(|()| self.check_limit(limit, &asked, &answer)) {
            return respond(reply, Err(error));
        }
        if let Err(error) = self.check_shown(&asked).await {
            return respond(reply, Err(error));
        }
        if asked.about == Some(Subject::Plan) {
            return self.answer_plan(&asked, answer, by, KeyedReply { key, reply }).await;
        }
        let word = match self.word(&asked, &answer) {
            Ok(word) => word,
            Err(error) => return respond(reply, Err(error)),
        };
        fault::point("actor.answered");
        if let Some(content) = word {
            self.steer(content, &by);
        }
        let outcome = self.remember(key, &());
        let mut answer = answer;
        self.refuse_line(&asked, &mut answer);
        let lasting = rules_for_always(&asked, &answer);
        let Answer { answer, value, reason, rules, .. } = answer;
        let Author { name, process } = by;
        let given = Resolution { answer: Some(answer), value, by: name, at: 0, reason, rules };
        let committed = self.resolve(&asked, given, process, outcome);
        let tools = self.env.toolbox.servers.tools_in(self.workspace.rules_root(), self.id.as_str()).current();
        let (session, host, policy) = (self.id.clone(), self.host.clone(), self.env.policy.clone());
        let (root, cwd) = (self.workspace.rules_root().to_path_buf(), self.state.identity.cwd.clone());
        task::spawn(async move {
            let result = settled(committed).await;
            if let Some((refuses, rules)) = lasting.filter(|_| result.is_ok()) {
                // A request after the answer finds the rules in force. If writing fails, they hold for the session only.
                let failed = move |text| host.warn(&session, NoticeCode::RuleNotStored, text);
                let rules = rules.iter().map(|rule| grant_everywhere(rule, &cwd, tools.names())).collect();
                policy.keep_always(&root, refuses, rules, failed).await;
            }
            respond(reply, result.map_err(RpcError::from));
        });
        self.review();
        // An answer to a question that blocks an offered turn resumes it; without its model it stays offered.
        let holds_up = self.state.turn.as_ref().is_some_and(|turn| turn.questions.iter().any(|it| it.id == asked.id));
        if holds_up
            && matches!(self.phase, Phase::Idle)
            && self.env.providers.usable(&self.state.settings.model).is_ok()
        {
            drop(self.resume_interrupted(Vec::new()));
        }
    }

    /// Checks that lists show the call that a permission is for: the database may have been changed by another process.
    async fn check_shown(&self, asked: &QuestionState) -> Result<(), RpcError> {
        if asked.grant().is_none() {
            return Ok(());
        }
        let shown = self.env.store.asked(asked.id.clone()).await?;
        if shown.is_none_or(|shown| shown.asked.digest == asked.digest && question::is_as_shown(&shown)) {
            return Ok(());
        }
        let text = format!("permission {} is stored as something else than what would run", asked.id);
        Err(RpcError::new(Code::WrongDigest, text).hint("cancel the turn"))
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
        if let Err(why) = question::check_value(asked.schema.as_ref(), &answer.answer, answer.value.as_ref()) {
            let hint = format!("`linger inbox --json` (question/list) shows the schema of {}", asked.id);
            return Err(RpcError::new(Code::BadValue, format!("question {}: {why}", asked.id)).hint(hint));
        }
        self.check_rules(asked, answer)
    }

    /// The words for the model that come with the answer to go on.
    fn word(&self, asked: &QuestionState, answer: &Answer) -> Result<Option<Vec<ContentBlock>>, RpcError> {
        let is_word = matches!(asked.about, Some(Subject::Circles | Subject::Budget)) && answer.answer == GO_ON;
        let word = answer.reason.as_ref().filter(|word| is_word && !word.trim().is_empty());
        let Some(word) = word else { return Ok(None) };
        let content = vec![ContentBlock::text(word.clone())];
        self.may_wait(&content)?;
        Ok(Some(content))
    }

    /// A prompt for the next step of the turn answers the question whether its calls may go on repeating themselves.
    pub(super) fn answer_circles(&mut self, by: &Author) {
        let asked = self.state.open_questions().find(|asked| asked.about == Some(Subject::Circles)).cloned();
        if let Some(asked) = asked {
            let Author { name: by, process } = by.clone();
            let (answer, reason) = (Some(GO_ON.to_owned()), None);
            drop(self.resolve(&asked, Resolution { answer, by, reason, ..Resolution::default() }, process, None));
        }
    }

    /// Records an answer and releases what waits for it. Without an `answer` the question is withdrawn.
    pub(super) fn resolve(
        &mut self,
        asked: &QuestionState,
        given: Resolution,
        process: Option<Process>,
        outcome: Option<Fold>,
    ) -> Committed {
        let resolved = asked.resolved(given.clone(), process);
        let of_turn = !self.state.questions.free.iter().any(|it| it.id == asked.id);
        let draft = if of_turn { self.in_turn(resolved) } else { Draft::new(resolved) };
        let committed = self.append_synced(vec![draft], outcome);
        if let Some(request) = self.running_mut().and_then(|running| running.take_request(&asked.id)) {
            fault::point("actor.permitted");
            // The digest that was shown: the call compares it with its own. The call may be cancelled by now.
            let _gone = request.reply.send(permitted(&given, &asked.digest));
        }
        self.release();
        committed
    }

    /// Decides a permission for the daemon's own reasons.
    fn decide(&mut self, id: &QuestionId, decision: Decision, by: &str, reason: Option<String>) {
        if let Some(asked) = self.state.question(id).cloned() {
            let (answer, by) = (Some(decision.name().to_owned()), by.to_owned());
            drop(self.resolve(&asked, Resolution { answer, by, reason, ..Resolution::default() }, None, None));
        }
    }

    /// Releases the held boundary of a turn, if no question blocks it any more.
    fn release(&mut self) {
        if self.state.turn.as_ref().is_some_and(Turn::is_held) {
            return;
        }
        if let Some((ending, reply)) = self.running_mut().and_then(RunningTurn::take_held) {
            // There may be something else to ask.
            self.hold_or_continue(ending, reply);
        }
    }

    /// Holds back the turn's next step while a question blocks it; otherwise replies with the next step.
    pub(super) fn boundary_or_hold(&mut self, ending: Option<TurnEnding>, reply: oneshot::Sender<NextStep>) {
        if let Some((text, options, blocks)) = fault::choice("session") {
            self.ask_question(question::choice(text, options, blocks, None), oneshot::channel().0);
        }
        self.hold_or_continue(ending, reply);
    }

    /// Asks what the daemon has to ask before the next step, and holds that back while a question blocks it.
    fn hold_or_continue(&mut self, ending: Option<TurnEnding>, reply: oneshot::Sender<NextStep>) {
        // A turn whose steps are used up ends anyway.
        let most = self.state.max_steps(self.env.config.max_steps());
        let may_go_on = self.state.turn.as_ref().is_some_and(|turn| turn.steps < most);
        if ending.is_none()
            && may_go_on
            && self.out_of_budget().is_none()
            && let Some(asked) = self.question_due()
        {
            self.record_question(asked);
        }
        if let (None, true, Some(ending)) = (&ending, may_go_on, self.out_of_budget()) {
            // Without a reply the turn's task ends.
            let open = self.close("the budget is spent");
            self.append(open, Vec::new(), false, None);
            return self.finish_turn(ending, Vec::new());
        }
        let is_held = self.state.turn.as_ref().is_some_and(Turn::is_held);
        match self.running_mut().filter(|_| is_held) {
            Some(running) => running.hold(ending, reply),
            None => self.boundary(ending, reply),
        }
    }

    /// Asks a question that is not a permission; replies when it is answered or withdrawn.
    pub(super) fn ask_question(&mut self, asked: Question, reply: Reply<Resolution>) {
        let same = |it: &&QuestionState| it.grant().is_none() && it.digest == asked.digest && it.call == asked.call;
        if let Some(earlier) = self.state.questions().find(same) {
            return match earlier.answer.clone() {
                // The answer may not be on disk yet.
                Some(resolution) => respond_when(reply, self.flush(), resolution),
                None => self.askers.add(earlier.id.clone(), reply),
            };
        }
        if let Err(error) = self.may_ask(&asked) {
            return respond(reply, Err(error));
        }
        let question = self.record_question(asked);
        self.askers.add(question, reply);
    }

    /// The question that the daemon asks before the next step of a turn, if it has not asked it.
    fn question_due(&self) -> Option<Question> {
        let turn = self.state.turn.as_ref()?;
        if turn.ended_by_answer().is_some() || turn.waiting().any(|asked| asked.about.is_some()) {
            return None;
        }
        let circles = || Some((turn.circles.found()?.question(), Subject::Circles, "Go on"));
        let spent = || {
            let asked = self.state.progress.budget.question(&self.state.progress.usage, self.is_unpriced())?;
            Some((asked, Subject::Budget, "Go on, with as much again"))
        };
        let (text, about, go_on) = circles().or_else(spent)?;
        let options = vec![QuestionOption::new(GO_ON, go_on), QuestionOption::new(STOP, "End the turn")];
        Some(Question { about: Some(about), ..question::choice(text, options, Blocks::Turn, None) })
    }

    /// Whether what the session has used costs more than is known, and that counts as too much: what was cut is not meant, but a
    /// model without a price, or a tool's.
    fn is_unpriced(&self) -> bool {
        let usage = &self.state.progress.usage;
        let has_price = || {
            self.env
                .providers
                .model(Some(&self.state.settings.model))
                .is_ok_and(|it| it.facts.prices.cost(usage).is_some())
        };
        self.env.config.unknown_price() == UnknownPrice::Exceeds
            && (self.state.progress.unpriced || usage.costs_more() && !has_price())
    }

    /// Withdraws the question about a budget that is not spent any more, because it is another one.
    pub(super) fn review_budget(&mut self) {
        let asked = self.state.open_questions().find(|asked| asked.about == Some(Subject::Budget)).cloned();
        let spent = self.state.progress.budget.question(&self.state.progress.usage, self.is_unpriced());
        if let (Some(asked), None) = (asked, spent) {
            let by = "the budget is another one".to_owned();
            drop(self.resolve(&asked, Resolution { by, ..Resolution::default() }, None, None));
        }
    }

    fn record_question(&mut self, asked: Question) -> QuestionId {
        let question = new_id();
        tracing::info!(target: "question", session = %self.id, %question, text = asked.text, "asked");
        let of_turn = asked.blocks != Blocks::Nothing;
        if of_turn {
            self.start_question_hooks(&question, &asked.text, None);
        }
        let body = EventBody::QuestionAsked { question: question.clone(), asked };
        let draft = if of_turn { self.in_turn(body) } else { Draft::new(body) };
        self.append(vec![draft], Vec::new(), true, None);
        question
    }

    /// Asks the daemon's own question about `about`, unless the same one is open already; withdraws those that are stale.
    pub(super) fn ask_about(
        &mut self,
        about: Subject,
        stale: &Stale,
        asked: Option<Question>,
        reply: Reply<Option<QuestionId>>,
    ) {
        let is_stale = |it: &QuestionState| match stale {
            Stale::All => true,
            Stale::One(question) => it.id == *question,
            Stale::Nothing => asked.as_ref().is_some_and(|asked| asked.digest == it.digest),
        };
        let is_about = |it: &&QuestionState| it.about == Some(about) && is_stale(it);
        let (same, stale): (Vec<_>, Vec<_>) = self
            .state
            .open_questions()
            .filter(is_about)
            .cloned()
            .partition(|it| asked.as_ref().is_some_and(|asked| asked.digest == it.digest));
        for question in stale {
            let by = "what it is about has changed".to_owned();
            drop(self.resolve(&question, Resolution { by, ..Resolution::default() }, None, None));
        }
        let question = match (same.first(), asked) {
            (Some(same), _) => Some(same.id.clone()),
            (None, None) => None,
            (None, Some(asked)) => match self.may_ask(&asked) {
                Ok(()) => Some(self.record_question(asked)),
                Err(error) => return respond(reply, Err(error)),
            },
        };
        respond_when(reply, self.flush(), question);
    }

    /// Stores what of the configuration is confirmed.
    pub(super) fn config_confirmed(&mut self, confirmed: Confirmed, reply: Reply<()>) {
        let Confirmed { settings, changes, by, workspace } = confirmed;
        let by = Some(by).filter(|by| !by.is_empty());
        let body = EventBody::ConfigConfirmed { settings, changes, by, workspace };
        let committed = self.append_synced(vec![Draft::new(body)], None);
        respond_when(reply, committed, ());
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
        let askers = self.askers.0.remove(question)?;
        let EventBody::QuestionResolved(QuestionResolved { answer, value, by, reason, .. }) = &event.body else {
            return None;
        };
        let (answer, value, by, reason) = (answer.clone(), value.clone(), by.clone(), reason.clone());
        Some((askers, Resolution { answer, value, by, at: event.at, reason, rules: Vec::new() }))
    }

    /// Events that must precede `body`: questions of a call that ends are withdrawn.
    pub(super) fn withdrawn_before(&self, body: &EventBody) -> Vec<EventBody> {
        match (body, &*self.state.turn) {
            (EventBody::ToolFinished(ToolFinished { call_id, .. }), Some(turn)) => {
                recovery::withdrawn(turn, call_id, "the call has ended")
            }
            _ => Vec::new(),
        }
    }

    /// Checks pending permissions again, after mode, rules or added directories have changed.
    pub(super) fn review(&mut self) {
        let workspace = self.workspace.clone();
        let Some(running) = self.running_mut() else { return };
        running.set_added(&workspace);
        let requests = self.running().into_iter().flat_map(RunningTurn::requests);
        let again: Vec<(QuestionId, Verdict)> =
            requests.map(|(id, request)| (id.clone(), self.verdict(request))).collect();
        for (id, verdict) in again {
            match verdict {
                Verdict::Allow { by } => self.decide(&id, Decision::AllowOnce, &by, None),
                Verdict::Deny { reason, .. } => self.decide(&id, Decision::RejectOnce, "the rules", Some(reason)),
                Verdict::Ask { .. } => {}
            }
        }
    }

    fn verdict(&self, request: &PermissionRequest) -> Verdict {
        self.verdict_on(&request.info(), request)
    }

    /// The decision on `info`, which touches what `request` does.
    pub(super) fn verdict_on(&self, info: &CallInfo<'_>, request: &PermissionRequest) -> Verdict {
        let policy = self.state.settings.settled();
        let workspace = request.moved.as_ref().unwrap_or(&self.workspace);
        let verdict = self.env.policy.decide(policy, info, &request.resolved, workspace);
        match self.limit(info, request).filter(|_| !matches!(verdict, Verdict::Deny { .. })) {
            Some(reason) => Verdict::Deny { rule: None, reason },
            None => verdict,
        }
    }

    /// Why a call would change nothing, if the model may read all files that it touches: a refusal tells what is in them. It tells
    /// nothing of a host, which is not asked.
    fn refusal(&self, request: &PermissionRequest) -> Option<String> {
        let refusal = request.preview.refusal.clone()?;
        let read = |access: &Access| match access {
            Access::Network(_) => Some(Access::Nothing),
            other => other.path().map(|path| Access::Read(path.to_path_buf())),
        };
        let access = Access::Several(request.effects.access.each().iter().map(read).collect::<Option<_>>()?);
        let verdict = self.verdict_on(&CallInfo { tool: "read", changes: false, access }, request);
        matches!(verdict, Verdict::Allow { .. }).then_some(refusal)
    }

    /// Why the skills that the turn has read leave a call of the model out.
    fn limit(&self, info: &CallInfo<'_>, request: &PermissionRequest) -> Option<String> {
        let turn = self.state.turn.as_ref()?;
        if turn.calls.iter().any(|call| call.is_check && call.id == request.call_id) {
            return None;
        }
        self.env.policy.limit(&turn.demands.limits, info, &request.resolved)
    }

    /// Decides on the calls of one answer, and asks together about those that need a user.
    pub(super) fn request_permissions(&mut self, requests: Vec<PermissionRequest>) {
        let due = requests.into_iter().filter_map(|request| self.request_permission(request)).collect();
        self.ask(due);
    }

    /// Decides on a call; gives it back if a user has to be asked.
    fn request_permission(&mut self, request: PermissionRequest) -> Option<DueQuestion> {
        let earlier = self.state.turn.as_ref().and_then(|turn| turn.permission(&request.call_id)).cloned();
        // Asked about something else, as in a state that was made up, or about a server's tool that has changed since:
        // withdrawn, and asked anew.
        let is_same = |asked: &QuestionState| asked.digest == request.digest && !is_changed(asked.grant(), &request);
        let (earlier, other): (Vec<_>, Vec<_>) = earlier.into_iter().partition(is_same);
        let earlier = earlier.into_iter().next();
        for asked in other.iter().filter(|asked| asked.answer.is_none()) {
            let by = "the call differs".to_owned();
            drop(self.resolve(asked, Resolution { by, ..Resolution::default() }, None, None));
        }
        let verdict = match earlier {
            // Asked before a restart; the digest is the one that was shown.
            Some(asked) => match asked.answer {
                Some(_) if is_moved(asked.grant(), &request) => PermissionAnswer::No(ELSEWHERE.to_owned()),
                Some(given) => permitted(&given, &asked.digest),
                None if is_moved(asked.grant(), &request) => {
                    self.wait_for(asked.id.clone(), request);
                    self.decide(&asked.id, Decision::RejectOnce, "the daemon", Some(ELSEWHERE.to_owned()));
                    return None;
                }
                None => {
                    self.env.questions.add(&asked.id, &self.id);
                    self.wait_for(asked.id, request);
                    // Mode and rules may have changed since.
                    self.review();
                    return None;
                }
            },
            None => match self.verdict(&request) {
                Verdict::Allow { by } => {
                    tracing::info!(target: "permission", session = %self.id, action = %request.action, by, "allowed");
                    PermissionAnswer::ForNow(request.digest.clone())
                }
                Verdict::Deny { reason, .. } => {
                    tracing::info!(target: "permission", session = %self.id, action = %request.action, reason, "denied");
                    PermissionAnswer::No(reason)
                }
                Verdict::Ask { rule, why } => match self.refusal(&request) {
                    Some(refusal) => PermissionAnswer::Futile(refusal),
                    None => return Some(DueQuestion { request, rule, why }),
                },
            },
        };
        // The call may be cancelled by now.
        let _gone = request.reply.send(verdict);
        None
    }

    /// Asks a user about these calls of one answer; each question says which of how many it is.
    fn ask(&mut self, due: Vec<DueQuestion>) {
        let of = due.len() as u32;
        // Lists order questions of the same millisecond by their ids.
        let mut ids: Vec<QuestionId> = due.iter().map(|_| new_id()).collect();
        ids.sort_unstable();
        let first = ids.first().cloned().unwrap_or_default();
        let (mut drafts, mut asked) = (Vec::new(), Vec::new());
        for (number, (id, due)) in (1..).zip(ids.into_iter().zip(due)) {
            let DueQuestion { mut request, rule, why } = due;
            // Show the files that the call reaches, not only their names.
            request.action += &request.resolved.targets(&request.effects.access).said();
            tracing::info!(target: "permission", session = %self.id, permission = %id, action = %request.action, "asked");
            let position = (of > 1).then(|| Position { number, of, first: first.clone() });
            let requested = PermissionRequested { rule, why, position, ..self.requested(&id, &request) };
            let blobs = request.preview.blobs.clone();
            drafts.push(Draft { blobs, ..self.in_turn(EventBody::PermissionRequested(requested)) });
            asked.push((id, request));
        }
        if drafts.is_empty() {
            return;
        }
        self.append(drafts, Vec::new(), true, None);
        for (id, request) in asked {
            self.start_question_hooks(&id, &request.action, Some((&request.tool, &request.input)));
            self.wait_for(id, request);
        }
    }

    /// The question about a call, without the reason why it asks.
    fn requested(&self, id: &QuestionId, request: &PermissionRequest) -> PermissionRequested {
        let grants = self.offered_rules(request);
        let grant = in_words(&grants);
        let grants = if grants.len() > 1 { grants } else { Vec::new() };
        let until = self.state.turn.as_ref().and_then(|turn| turn.demands.until.as_ref());
        let is_check = until.is_some_and(|until| until.call.as_ref() == Some(&request.call_id));
        PermissionRequested {
            permission: id.clone(),
            call_id: request.call_id.clone(),
            tool: request.tool.clone(),
            action: request.action.clone(),
            input: Value::clone(&request.input),
            cwd: request.moved.as_ref().map_or_else(|| self.state.identity.cwd.clone(), |moved| moved.cwd.clone()),
            digest: request.digest.clone(),
            rule: None,
            why: None,
            position: None,
            grant,
            grants,
            options: Decision::ANSWERS.to_vec(),
            locations: request.preview.locations.clone(),
            changes: request.preview.changes.clone(),
            about: is_check.then_some(Subject::Check),
        }
    }

    pub(super) fn wait_for(&mut self, id: QuestionId, request: PermissionRequest) {
        if let Some(running) = self.running_mut() {
            running.wait_for(id, request);
        }
    }
}

/// The id of a new question.
pub(super) fn new_id() -> QuestionId {
    QuestionId(format!("q{}", clock::random_word(RANDOM)))
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

/// Whether the tool of a server says otherwise what it does than when it was asked about.
fn is_changed(grant: Option<&str>, request: &PermissionRequest) -> bool {
    matches!(request.effects.access, Access::Other { .. })
        && in_words(&grants_for(&request.info(), &request.resolved)) != grant.unwrap_or_default()
}

/// Whether the call would reach another file than the one that was shown.
fn is_moved(grant: Option<&str>, request: &PermissionRequest) -> bool {
    request.resolved.target().is_some()
        && in_words(&grants_for(&request.info(), &request.resolved)) != grant.unwrap_or_default()
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
            .hint("`linger inbox` lists those that wait"),
        Err(error) => error.into(),
    }
}

/// The error for a second answer; without an `answer` the question was withdrawn.
fn already_answered(answer: Option<&str>, by: &str, at: u64) -> RpcError {
    let given = AlreadyAnswered { answer: answer.map(str::to_owned), by: by.to_owned(), at };
    RpcError { data: serde_json::to_value(given).ok(), ..RpcError::new(Code::AlreadyAnswered, "already answered") }
}
