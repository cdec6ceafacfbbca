//! Room in the context: a turn asks for a summary, or leaves out older output, and continues with the rest.
//!
//! [`compaction`] decides; here the model is asked, and events are written. Each event is committed before the next request is
//! sent, because it explains why that request differs from the one before.

use linger_protocol::event::{
    Compacted, CompactionFailed, CompactionStarted, EventBody, Level, Notice, Trigger, Trimmed,
};
use linger_protocol::id::{MessageId, PromptId};
use linger_protocol::message::{ContentBlock, Usage};

use super::drive::user;
use super::request::{ModelRequest, ModelResponse, Refused, RequestEnd, RequestOutcome, sum};
use super::step::Step;
use super::{Purpose, Turn, TurnEnded};
use crate::fault;
use crate::provider::tools::ToolSpecs;
use crate::provider::{Encoding, Failure, FailureClass, Message};
use crate::session::context::compaction::{self, Need};
use crate::session::context::{self, Context, estimate};
use crate::session::messages::CompactionRequest;

/// The part of the window that the transcript for a summary may take, in percent: the answer needs the rest.
const TRANSCRIPT: u64 = 70;

/// The same where the provider has refused what should have fitted: of what was refused, if that is less.
const TRANSCRIPT_REFUSED: u64 = 45;

/// Why there is no summary when the model was changed while its key was waited for.
const OTHER_MODEL: &str = "another model was chosen meanwhile";

/// The part of the room that is kept of text that is cut off, in percent.
const KEPT_OF_CUT: u64 = 12;

/// The beginning of what stands for text that was cut off.
const CUT_OFF: &str = "[No summary could be written. The older messages were cut by the program; this is what is left of them, with gaps.]";

/// The hint when a requested compaction fails.
const HINT: &str = "ask again in a while, choose another model with /model, or start a new session";

/// A compaction that is to be made.
struct CompactionPlan {
    trigger: Trigger,
    focus: String,
    /// How many of the first messages are to be replaced.
    cut: usize,
    /// About how many tokens the context has.
    tokens: u64,
    /// The same by size alone, including the prefix.
    estimated: u64,
}

/// Why there is no summary.
struct NoSummary {
    reason: String,
    /// The provider could not be asked at all.
    unreached: bool,
    usage: Option<Usage>,
}

impl Turn {
    /// Whether the next request needs room that is not there.
    pub(super) fn need(&self, step: &Step) -> Need {
        let (at, floor) = (self.services.config.compact_at(), step.context.floor(&self.model));
        let is_full = |window| compaction::is_full(step.tokens(), floor, window, at);
        // Where there is nothing old, the provider may say whether it is too long.
        let full = self.window().is_some_and(is_full) && self.cut(Trigger::Full, step).is_some();
        if full { Need::Full } else { Need::None }
    }

    /// How many of the first messages a summary may stand for, and the last of them.
    fn cut(&self, trigger: Trigger, step: &Step) -> Option<(usize, MessageId)> {
        let (context, overhead) = (&step.context, step.overhead());
        let estimated = context.estimated();
        let room = match (self.window(), trigger) {
            (Some(window), Trigger::Full) => window.saturating_sub(overhead),
            (Some(window), _) => window.saturating_sub(overhead).min(estimated),
            (None, _) => estimated,
        };
        let cut = compaction::cut(&context.marks, room, trigger == Trigger::TooLong)?;
        Some((cut, context.marks.get(cut.checked_sub(1)?)?.id.clone()?))
    }

    /// How many tokens the model takes, where that is known.
    fn window(&self) -> Option<u64> {
        self.services.providers.window(&self.model)
    }

    /// Carries out a requested compaction, by a summary or by leaving out older output; returns reason and hint if both fail.
    pub(super) async fn compact_as_asked(
        &mut self,
        wanted: CompactionRequest,
        step: &mut Step,
    ) -> Result<Option<(String, &'static str)>, TurnEnded> {
        let CompactionRequest { prompt, focus } = wanted;
        let made = self.summarise(Trigger::Asked, Some(prompt), focus, step).await?;
        match made {
            Ok(()) => Ok(None),
            Err(problem) if !problem.unreached && self.trim(Need::Full, step).await? => Ok(None),
            Err(problem) => Ok(Some((format!("not compacted: {}", problem.reason), HINT))),
        }
    }

    /// Has a summary written because a step needs room; whether there is more of it now.
    pub(super) async fn compact(&mut self, need: Need, step: &mut Step) -> Result<bool, TurnEnded> {
        let trigger = if need == Need::TooLong { Trigger::TooLong } else { Trigger::Full };
        let made = self.summarise(trigger, None, String::new(), step).await?;
        self.effort.compacted = Some(made.is_ok());
        self.effort.unreached = made.as_ref().is_err_and(|problem| problem.unreached);
        Ok(made.is_ok())
    }

    /// Leaves out older output; whether there was any.
    pub(super) async fn trim(&mut self, need: Need, step: &mut Step) -> Result<bool, TurnEnded> {
        self.effort.trimmed = true;
        let (tokens, estimated) = (step.tokens(), step.context.estimated() + step.overhead());
        let goal = compaction::goal(tokens, self.window());
        let (calls, saved) = compaction::trim(&step.context.messages, &step.context.marks, goal, need == Need::TooLong);
        self.effort.exhausted = calls.is_empty();
        if calls.is_empty() {
            return Ok(false);
        }
        let tokens_after = compaction::after(tokens, estimated, saved, 0);
        tracing::info!(target: "context", session = %self.session, calls = calls.len(), tokens, tokens_after, "trimmed");
        step.context.trim(&calls, tokens_after);
        step.encoding = Encoding::default();
        let (images, native) = (Vec::new(), Vec::new());
        self.emit
            .committed_event(EventBody::Trimmed(Trimmed { calls, images, native, tokens_before: tokens, tokens_after }))
            .await?;
        Ok(true)
    }

    /// Replaces old messages by a few of their words, because no summary came and the request is still too long; whether that makes
    /// it shorter.
    pub(super) async fn cut_off(&mut self, step: &mut Step) -> Result<bool, TurnEnded> {
        self.effort.cut_off = true;
        let (tokens, overhead) = (step.tokens(), step.overhead());
        let estimated = step.context.estimated() + overhead;
        let limit = self.window().map_or(tokens, |window| window.min(tokens));
        // Where the provider counts more than was estimated, there is room for less.
        let room = limit.saturating_sub(overhead).min(limit.saturating_mul(estimated) / tokens.max(1));
        let Some(cut) = compaction::cut_off(&step.context.marks, room) else { return Ok(false) };
        let through = cut.checked_sub(1).and_then(|last| step.context.marks.get(last)?.id.clone());
        let Some(through) = through else { return Ok(false) };
        let old = step.context.messages.get(..cut).unwrap_or_default();
        let left = compaction::transcript(old, compaction::bytes(room * KEPT_OF_CUT / 100));
        let summary = format!("{CUT_OFF}\n\n{}", left.trim_end());
        let gone: u64 = step.context.marks.iter().take(cut).map(|mark| mark.tokens).sum();
        let come = estimate(&user(vec![ContentBlock::text(format!("{}{summary}", context::SUMMARY))]));
        let tokens_after = compaction::after(tokens, estimated, gone, come);
        if !compaction::is_worth(tokens, tokens_after) {
            return Ok(false);
        }
        tracing::warn!(target: "context", session = %self.session, messages = cut, tokens, tokens_after, "cut off without a summary");
        let messages = cut as u32;
        let (trigger, prompt) = (Trigger::TooLong, None);
        let started = CompactionStarted { trigger, prompt: prompt.clone(), through: through.clone(), messages, tokens };
        self.emit.send(vec![EventBody::CompactionStarted(started)], false, None)?;
        let text = format!(
            "no summary could be written and the context is too long: older messages ({messages}) were cut without one; they stay in the log"
        );
        self.emit.send(vec![EventBody::Notice(warning(text))], false, None)?;
        step.context.compact(&through, &summary, tokens_after, None);
        step.encoding = Encoding::default();
        let (tokens_before, model, usage) = (tokens, None, None);
        let compacted = Compacted { prompt, through, messages, summary, tokens_before, tokens_after, model, usage };
        self.emit.committed_event(EventBody::Compacted(compacted)).await?;
        self.reload_memory(step).await?;
        Ok(true)
    }

    /// Leaves out all images, which the model has refused: no later request of the session would be answered either.
    pub(super) async fn leave_out_images(&mut self, step: &mut Step) -> Result<(), TurnEnded> {
        let (images, tokens_before) = (step.context.with_images(), step.tokens());
        step.context.leave_out_images(&images);
        let tokens_after = step.tokens();
        tracing::info!(target: "context", session = %self.session, messages = images.len(), "images were refused, and are left out");
        step.encoding = Encoding::default();
        let (calls, native) = (Vec::new(), Vec::new());
        self.emit
            .committed_event(EventBody::Trimmed(Trimmed { calls, images, native, tokens_before, tokens_after }))
            .await
    }

    /// Leaves out what these messages bring back to their provider, which has refused the history as it is, and would again.
    pub(super) async fn leave_out_native(&mut self, native: Vec<MessageId>, step: &mut Step) -> Result<(), TurnEnded> {
        let tokens_before = step.tokens();
        step.context.leave_out_native(&native);
        let tokens_after = step.tokens();
        tracing::warn!(target: "context", session = %self.session, messages = native.len(), "the history was refused, and goes on without its opaque parts");
        step.encoding = Encoding::default();
        let (calls, images) = (Vec::new(), Vec::new());
        self.emit
            .committed_event(EventBody::Trimmed(Trimmed { calls, images, native, tokens_before, tokens_after }))
            .await
    }

    /// Has a summary written and goes on from it.
    async fn summarise(
        &mut self,
        trigger: Trigger,
        prompt: Option<PromptId>,
        focus: String,
        step: &mut Step,
    ) -> Result<Result<(), NoSummary>, TurnEnded> {
        let (tokens, estimated) = (step.tokens(), step.context.estimated() + step.overhead());
        let Some((cut, through)) = self.cut(trigger, step) else {
            let reason = "nothing in the context is old enough to be replaced".to_owned();
            let failed = EventBody::CompactionFailed(CompactionFailed {
                prompt,
                reason: reason.clone(),
                tokens,
                model: None,
                usage: None,
            });
            self.emit.committed_event(failed).await?;
            return Ok(Err(NoSummary { reason, unreached: false, usage: None }));
        };
        let messages = cut as u32;
        let started = EventBody::CompactionStarted(CompactionStarted {
            trigger,
            prompt: prompt.clone(),
            through: through.clone(),
            messages,
            tokens,
        });
        self.emit.send(vec![started], false, None)?;
        fault::point("compaction.started");
        let plan = CompactionPlan { trigger, focus, cut, tokens, estimated };
        let written = self.summary(&plan, &step.context).await?;
        fault::point("compaction.answered");
        let model = Some(self.model.clone());
        match written {
            Ok((summary, tokens_after, usage)) => {
                tracing::info!(target: "context", session = %self.session, messages, tokens, tokens_after, "compacted");
                step.context.compact(&through, &summary, tokens_after, model.clone());
                step.encoding = Encoding::default();
                let tokens_before = tokens;
                let compacted = EventBody::Compacted(Compacted {
                    prompt,
                    through,
                    messages,
                    summary,
                    tokens_before,
                    tokens_after,
                    model,
                    usage,
                });
                self.emit.committed_event(compacted).await?;
                self.reload_memory(step).await?;
                Ok(Ok(()))
            }
            Err(problem) => {
                tracing::warn!(target: "context", session = %self.session, messages, tokens, why = problem.reason, "not compacted");
                step.context.gave_up(tokens, self.model.clone());
                let (reason, usage) = (problem.reason.clone(), problem.usage);
                self.emit
                    .committed_event(EventBody::CompactionFailed(CompactionFailed {
                        prompt,
                        reason,
                        tokens,
                        model,
                        usage,
                    }))
                    .await?;
                Ok(Err(problem))
            }
        }
    }

    /// The summary that the model writes, how large the context is with it, and what it cost.
    async fn summary(
        &mut self,
        plan: &CompactionPlan,
        context: &Context,
    ) -> Result<Result<(String, u64, Option<Usage>), NoSummary>, TurnEnded> {
        let old = context.messages.get(..plan.cut).unwrap_or_default();
        let request = [user(vec![ContentBlock::text(self.request(plan, old))])];
        let ask = ModelRequest {
            system: compaction::SYSTEM,
            tools: ToolSpecs::none(),
            messages: &request,
            output_schema: None,
            shown: false,
        };
        let RequestOutcome { end, broke_off } = self.ask(&ask, &mut Encoding::default()).await?;
        let (response, usage) = match end {
            RequestEnd::Answered(ModelResponse { response, usage, .. }) => {
                (response, broke_off.into_iter().chain(usage).reduce(sum))
            }
            RequestEnd::Failed(Refused { failure: Failure { class, message, .. }, .. }) => {
                let unreached = !matches!(
                    class,
                    FailureClass::TooLong
                        | FailureClass::PerhapsTooLong
                        | FailureClass::Images
                        | FailureClass::History
                        | FailureClass::Reasoning
                        | FailureClass::Parameter(_)
                        | FailureClass::Rejected
                );
                return Ok(Err(NoSummary { reason: message, unreached, usage: broke_off }));
            }
            RequestEnd::StartOver => {
                return Ok(Err(NoSummary { reason: OTHER_MODEL.to_owned(), unreached: true, usage: broke_off }));
            }
        };
        let gone: u64 = context.marks.iter().take(plan.cut).map(|mark| mark.tokens).sum();
        let judged = compaction::judge(&response, gone).and_then(|summary| {
            // What a turn was asked for that is over has been answered.
            let words = if self.purpose == Purpose::Compact { Vec::new() } else { context.words_before(plan.cut) };
            let summary = compaction::with_words(&summary, &words);
            let content = vec![ContentBlock::text(format!("{}{summary}", context::SUMMARY))];
            let come = estimate(&user(content));
            let tokens_after = compaction::after(plan.tokens, plan.estimated, gone, come);
            if compaction::is_worth(plan.tokens, tokens_after) {
                Ok((summary, tokens_after))
            } else {
                Err(compaction::NOT_SHORTER)
            }
        });
        Ok(match judged {
            Ok((summary, tokens_after)) => Ok((summary, tokens_after, usage)),
            Err(reason) => Err(NoSummary { reason: reason.to_owned(), unreached: false, usage }),
        })
    }

    /// The request to the model that writes the summary.
    fn request(&self, plan: &CompactionPlan, old: &[Message]) -> String {
        let refused = plan.trigger == Trigger::TooLong;
        let room = match self.window() {
            Some(window) => {
                let room = if refused {
                    window.min(plan.estimated) * TRANSCRIPT_REFUSED / 100
                } else {
                    window * TRANSCRIPT / 100
                };
                // Where the provider counts more than was estimated, it will do so again.
                room.min(room * plan.estimated / plan.tokens.max(1))
            }
            None if refused => plan.estimated * TRANSCRIPT_REFUSED / 100,
            None => plan.estimated,
        };
        let transcript = compaction::transcript(old, compaction::bytes(room));
        let focus = match plan.focus.as_str() {
            "" => String::new(),
            focus => format!("\n\nThe user asks that the summary keeps this in view above all: {focus}"),
        };
        format!(
            "<transcript>\n{}\n</transcript>\n\nWrite the summary of this transcript.{focus}",
            transcript.trim_end()
        )
    }
}

/// A warning that no program acts on.
pub(super) fn warning(text: String) -> Notice {
    Notice { level: Level::Warning, code: None, text, until_at: None, since_at: None }
}
