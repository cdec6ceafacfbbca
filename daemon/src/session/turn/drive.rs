//! The loop of a turn: open calls, then step after step, and the ways in which it ends.

use std::collections::HashMap;
use std::sync::Arc;

use linger_protocol::event::{Asks, EventBody, Level, NoticeCode};
use linger_protocol::id::{CallId, MessageId};
use linger_protocol::message::{AnswerEnd, ContentBlock, Role, StopReason, text_of};

use super::check::{self, CheckResult};
use super::outage::Outage;
use super::output_schema::{self, Fit};
use super::request::ModelResponse;
use super::step::Step;
use super::{Opening, Purpose, Thought, Turn, TurnEnded};
use crate::fault;
use crate::provider::written_call::written_call;
use crate::provider::{Failure, FailureClass, Message, Response, Stop};
use crate::session::calls;
use crate::session::calls::StartedCall;
use crate::session::calls::checkpoints;
use crate::session::context;
use crate::session::delegate::Delegation;
use crate::session::messages::{CompactionRequest, NextStep, TurnEnding, TurnMessage};
use crate::session::state::Effort;
use crate::session::state::undo::OpenCheckpoint;
use crate::sys::clock;
use crate::tool::set::ToolSet;

/// The hint when a turn has reached one of its limits.
const GO_ON: &str = "prompt again to continue";

/// The hint when a required server is missing.
const NO_SERVER: &str = "`linger mcp logs` shows what it wrote; then prompt again";

/// The hint when a session's agent is gone.
const NO_AGENT: &str = "`linger agents list` shows which there are, `linger trust` what changed; then prompt again";

/// Why a turn ends whose last answer is not whole.
const CUT: &str = "the answer was cut at the model's token limit";

/// How often an answer that is cut at the token limit is continued; one that never ends should not cost without end.
const MAX_CONTINUED: u32 = 3;

/// The message to a model whose answer was cut.
const CONTINUE: &str = "Your answer was cut at the token limit. Continue it exactly where it stopped, without an introduction and \
                        without repeating anything.";

/// Why a turn ends whose answers are none, and what to do.
const EMPTY: &str = "the model's answer is empty";
const CALL_AS_TEXT: &str = "the model wrote a tool call as text, which nothing runs";
const NO_ANSWER: &str = "prompt again, or choose another model; a server of your own may need an option for tools (vLLM: \
                         --enable-auto-tool-choice and --tool-call-parser, llama.cpp: --jinja)";

/// The messages to a model with such an answer.
const ANSWER_AGAIN: &str =
    "Your answer was empty. If there is more to do, call a tool; otherwise give your answer as text.";
const CALL_AGAIN: &str = "Nothing was run: your answer has a tool call in its text, or announces one and has none. Call the tool \
                          by the interface for tools, or give your answer as text.";

impl Turn {
    pub(super) async fn drive(&mut self, mut opening: Box<Opening>) -> Result<(), TurnEnded> {
        let files = self.read_files();
        let context = match self.history(&mut opening).await? {
            Ok(context) => context,
            Err(error) => {
                // Its prompt, and what it has begun or asked for, is not given up.
                self.emit.tell(TurnMessage::Unreadable(format!("cannot read the history: {error}")))?;
                return Ok(());
            }
        };
        fault::point("turn.context");
        // Notes that were written since a session began count after its next compaction.
        let is_begun = context.messages.iter().any(|message| message.role == Role::Assistant);
        let system = match self.system(files.await.unwrap_or_default(), is_begun)? {
            Ok(system) => system,
            Err(why) => return self.end(StopReason::Error, &why, NO_AGENT).await.map(drop),
        };
        self.tools = self.tools_now();
        let mut step = Step::new(system, self.tools.clone(), context);
        if let Some(OpenCheckpoint { before, at, .. }) = opening.checkpoint.take() {
            let time = checkpoints::CallTime::cut_off(at);
            // What the call did that was cut off, before anything else does something.
            let after =
                Box::pin(checkpoints::after(&self.services.calls.checkpoints, &self.workspace, before, time)).await;
            self.emit.send(vec![EventBody::Checkpoint(after)], false, None)?;
        }
        if Box::pin(self.finish_last_step(&mut step, opening)).await? {
            return Ok(());
        }
        loop {
            let next = self.emit.boundary(None).await?;
            let asked = self.take(next, &mut step).await?;
            if let Err(why) = self.servers().await? {
                return self.end(StopReason::Error, &why, NO_SERVER).await.map(drop);
            }
            self.tools = self.tools_now();
            step.tools = self.tools.clone();
            let failed = match asked {
                Some(asked) => Box::pin(self.compact_as_asked(asked, &mut step)).await?,
                None => None,
            };
            if self.purpose == Purpose::Compact {
                let next = match failed {
                    Some((detail, hint)) => self.end(StopReason::Error, &detail, hint).await?,
                    None => self.end(StopReason::EndTurn, "", "").await?,
                };
                if next.prompts.is_empty() {
                    return Ok(());
                }
                self.take(next, &mut step).await?;
                continue;
            }
            let own = [self.max_steps, self.role_steps].into_iter().flatten().min();
            let limit = own.unwrap_or(u32::MAX).min(self.services.config.max_steps());
            if self.steps >= limit {
                let steps = if self.steps == 1 { "1 step".to_owned() } else { format!("{} steps", self.steps) };
                let detail = format!("the turn took {steps}, max_steps is {limit}");
                return self.end(StopReason::MaxSteps, &detail, GO_ON).await.map(drop);
            }
            Box::pin(self.run_commands(&mut step)).await?;
            self.say_schema(&mut step).await?;
            self.say_go_on(&mut step).await?;
            let answer = match self.step(&mut step).await? {
                Some(Ok(answer)) => answer,
                Some(Err(failure)) => return self.failed(&failure).await.map(drop),
                None => continue,
            };
            let stop = answer.response.stop;
            self.answered(&mut step, answer).await?;
            let calls = context::open_calls(&step.context.messages);
            if calls.is_empty() {
                if Box::pin(self.answer_over(stop, &mut step)).await? {
                    return Ok(());
                }
            } else {
                self.nudged = false;
                let (results, begun, cut) = (HashMap::new(), HashMap::new(), stop == Stop::MaxTokens);
                Box::pin(self.run_calls(&mut step, calls, results, &begun, cut)).await?;
            }
        }
    }

    /// Waits for the MCP servers that a step needs; an error if one that is required cannot be started.
    async fn servers(&self) -> Result<Result<(), String>, TurnEnded> {
        // Those of the workspace's files may be others since the last step.
        if let Some(news) = self.services.policy.look(&self.workspace, &self.session).await {
            self.emit.notice(Level::Warning, NoticeCode::ConfigWaits, news)?;
        }
        self.services.toolbox.read_tools(&self.workspace).await;
        self.services.toolbox.configure_workspace(self.workspace.rules_root());
        match self.services.toolbox.servers.ready(&self.workspace, self.session.as_str()).await {
            Ok(notices) => {
                for text in notices {
                    self.emit.notice(Level::Warning, NoticeCode::ServerFailed, text)?;
                }
                Ok(Ok(()))
            }
            Err(why) => Ok(Err(why)),
        }
    }

    /// Does what is left of the step that was under way when the turn's task went; whether the turn
    /// ends with that.
    async fn finish_last_step(&mut self, step: &mut Step, opening: Box<Opening>) -> Result<bool, TurnEnded> {
        let Opening { known, begun, stop, .. } = *opening;
        let open = context::open_calls(&step.context.messages);
        if !open.is_empty() {
            let mut results = std::mem::take(&mut step.context.results);
            context::call_ids(&open).filter(|call| !known.contains(call)).for_each(|call| {
                // It may have run.
                results.entry(call.clone()).or_insert_with(|| context::lost_result(call));
            });
            self.run_calls(step, open, results, &begun, stop == Stop::MaxTokens).await?;
        }
        let is_answer = step.context.messages.last().is_some_and(|last| last.role == Role::Assistant);
        // If it was stopped between its answer and its end, only the end is missing.
        Ok(self.purpose == Purpose::Answer && is_answer && self.answer_over(stop, step).await?)
    }

    /// An answer without calls ends the turn, unless a prompt steers, it does not fit the schema, or its check fails;
    /// whether it did.
    async fn answer_over(&mut self, stop: Stop, step: &mut Step) -> Result<bool, TurnEnded> {
        let fault = if matches!(stop, Stop::End | Stop::NoCalls) { self.fault_of_answer(stop, step) } else { None };
        if let Some((fault, asked)) = fault.filter(|_| !self.nudged) {
            tracing::warn!(target: "turn", session = %self.session, fault, "asked once more");
            self.nudged = true;
            self.say(Asks::GoOn, asked.to_owned(), step).await?;
            return Ok(false);
        }
        let next = match stop {
            Stop::End | Stop::NoCalls if fault.is_some() => {
                let fault = fault.map(|(fault, _)| fault).unwrap_or_default();
                self.end(StopReason::Error, fault, NO_ANSWER).await?
            }
            Stop::End | Stop::NoCalls => match self.fits(step).await? {
                Fit::Yes(answer) => match self.check(step).await? {
                    CheckResult::Passed => {
                        self.emit
                            .boundary(Some(TurnEnding { answer, ..TurnEnding::plain(StopReason::EndTurn) }))
                            .await?
                    }
                    CheckResult::Again => return Ok(false),
                    CheckResult::Ends(detail) => self.end(StopReason::Error, &detail, check::HINT).await?,
                },
                Fit::Again => return Ok(false),
                Fit::Never(fault) => {
                    let detail = format!("the answer does not fit the schema: {fault}");
                    self.end(StopReason::Error, &detail, output_schema::HINT).await?
                }
            },
            Stop::MaxTokens if self.continues(step) => {
                self.continued += 1;
                self.say(Asks::GoOn, CONTINUE.to_owned(), step).await?;
                return Ok(false);
            }
            Stop::MaxTokens => self.end(StopReason::MaxTokens, CUT, GO_ON).await?,
            // The next step goes on with it.
            Stop::Paused => return Ok(false),
            Stop::Refusal => self.end(StopReason::Refusal, "the model refused", "").await?,
        };
        if next.prompts.is_empty() {
            return Ok(true);
        }
        self.take(next, step).await?;
        Ok(false)
    }

    /// Why an answer without calls is none, and what the model is asked then: it says nothing, or has a call in it that nothing
    /// runs. An answer that has to fit a schema is judged by that.
    fn fault_of_answer(&self, stop: Stop, step: &Step) -> Option<(&'static str, &'static str)> {
        let last = step.context.messages.last().filter(|_| self.output_schema.is_none())?;
        let text = text_of(&last.content);
        let thought = last.content.iter().filter_map(|block| match block {
            ContentBlock::Thinking { text, .. } => Some(text.as_str()),
            _ => None,
        });
        let written = if text.trim().is_empty() { thought.collect::<Vec<_>>().join("\n") } else { text.clone() };
        let names: Vec<&str> = step.tools.iter().map(|tool| tool.name()).collect();
        let is_nothing = |block: &ContentBlock| match block {
            ContentBlock::Text { text } => text.trim().is_empty(),
            ContentBlock::Thinking { .. } | ContentBlock::Opaque { .. } => true,
            _ => false,
        };
        if written_call(&written, &names).is_some() || stop == Stop::NoCalls {
            Some((CALL_AS_TEXT, CALL_AGAIN))
        } else if last.content.iter().all(is_nothing) {
            Some((EMPTY, ANSWER_AGAIN))
        } else {
            None
        }
    }

    /// Whether the model is asked to continue its answer: not one of thinking alone, which would be cut again, nor one that a
    /// provider holds to a schema, which would begin again.
    fn continues(&self, step: &Step) -> bool {
        let last = step.context.messages.last();
        let has_text = last.is_some_and(|last| !text_of(&last.content).trim().is_empty());
        has_text && self.output_schema.is_none() && self.continued < MAX_CONTINUED
    }

    /// Takes what the actor gives for the next step; prompts are messages of the log already. Gives
    /// the compaction that is asked for.
    async fn take(&mut self, next: NextStep, step: &mut Step) -> Result<Option<CompactionRequest>, TurnEnded> {
        if next.model != self.model {
            (self.thought, self.outage) = (Thought::AsSet, Outage::default());
        }
        (self.model, self.setup) = (next.model, next.setup);
        (self.output_schema, self.thinking, self.policy) = (next.output_schema, next.thinking, next.outage);
        (self.max_steps, self.only) = (next.max_steps, next.tools);
        let new = !next.prompts.is_empty() || next.news.is_some();
        for (id, content) in next.prompts {
            let opens = std::mem::replace(&mut self.purpose, Purpose::Answer) == Purpose::Compact;
            (self.effort, self.continued, self.nudged) = (Effort::default(), 0, false);
            step.context.push(id, user(content), opens);
        }
        if let Some((id, content)) = next.news {
            step.context.push(id, user(content), false);
        }
        if new {
            // What a model has seen is in the log: a turn that is resumed after a crash says the same again.
            self.emit.committed().await?;
        }
        Ok(next.compact)
    }

    /// The hint about a failure.
    fn hint(&self, failure: &Failure) -> String {
        let catalogue = self.services.providers.catalogue().ok().filter(|_| failure.class == FailureClass::NotFound);
        let near = catalogue.and_then(|catalogue| catalogue.near_model(&self.model));
        near.map_or_else(
            || failure.class.hint().to_owned(),
            |near| format!("did you mean {near}? `linger models` lists more"),
        )
    }

    async fn end(&self, reason: StopReason, detail: &str, hint: &str) -> Result<NextStep, TurnEnded> {
        self.emit.boundary(Some(ending(reason, detail, hint))).await
    }

    /// Ends the turn because there is no answer.
    async fn failed(&self, failure: &Failure) -> Result<NextStep, TurnEnded> {
        let ending = ending(StopReason::Error, &failure.message, &self.hint(failure));
        let wait = failure.retry_after.filter(|wait| !wait.is_zero());
        let until_at =
            wait.map(|wait| clock::now().saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)));
        self.emit.boundary(Some(TurnEnding { until_at, ..ending })).await
    }

    /// Writes the answer down.
    async fn answered(&mut self, step: &mut Step, answer: ModelResponse) -> Result<(), TurnEnded> {
        fault::point("response.done");
        let ModelResponse { response: Response { content, stop, .. }, usage, times } = answer;
        let end = match stop {
            Stop::MaxTokens => AnswerEnd::Cut,
            Stop::Paused => AnswerEnd::Paused,
            Stop::End | Stop::NoCalls | Stop::Refusal => AnswerEnd::Whole,
        };
        let model = self.model.clone();
        let body = EventBody::assistant_message(MessageId::default(), content, model.clone(), usage, end);
        let (id, content) = self.emit.message(body.took(times)).await?;
        self.steps += 1;
        self.effort = Effort::default();
        if end != AnswerEnd::Cut {
            self.continued = 0;
        }
        step.context.push(id, Message { role: Role::Assistant, content, origin: Some(model) }, false);
        if let Some(usage) = usage {
            step.context.measure(usage);
        }
        Ok(())
    }

    /// The tools that the session has at the moment.
    pub(super) fn tools_now(&self) -> Arc<ToolSet> {
        let offered = self.services.toolbox.offered(self.skills.is_some(), self.depth);
        self.services.toolbox.tools_of(
            &self.model,
            self.workspace.rules_root(),
            &self.session,
            self.only.as_deref(),
            offered,
        )
    }

    /// A runner for the calls of a step.
    pub(super) fn runner(&self) -> calls::Runner {
        calls::Runner {
            services: self.services.calls.clone(),
            tools: self.tools.clone(),
            workspace: self.workspace.clone(),
            emit: self.emit.clone(),
            jobs: self.jobs.clone(),
            delegation: Delegation::of(&self.services, &self.host, &self.emit, &self.workspace, &self.session),
            session: self.session.clone(),
            size: Arc::default(),
            warned_no_checkpoints: self.warned_no_checkpoints.clone(),
            is_moved: false,
        }
    }

    /// Runs the calls of a step but for those that have `results`, and adds the message with all their
    /// results, in the order of the calls.
    async fn run_calls(
        &mut self,
        step: &mut Step,
        calls: Vec<ContentBlock>,
        results: HashMap<CallId, ContentBlock>,
        begun: &HashMap<CallId, StartedCall>,
        cut: bool,
    ) -> Result<(), TurnEnded> {
        let content = self.runner().run(calls, results, begun, cut).await?;
        let body = EventBody::user_message(MessageId::default(), content, None, None);
        // The next request is not paid for unless this step is written down.
        let (id, content) = self.emit.committed_message(body).await?;
        step.context.push(id, user(content), false);
        Ok(())
    }
}

/// A message in the user's place.
pub(super) fn user(content: Vec<ContentBlock>) -> Message {
    Message { role: Role::User, content, origin: None }
}

fn ending(reason: StopReason, detail: &str, hint: &str) -> TurnEnding {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    TurnEnding { detail: some(detail), hint: some(hint), ..TurnEnding::plain(reason) }
}
