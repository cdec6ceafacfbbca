//! Room in the context: how a turn has a summary written, or leaves out older output, and goes on from what is left.
//!
//! What may be done and what of it is any use is decided in [`compaction`]; here the model is asked, and events are written.
//! Each is committed before the next request is sent, as it is what makes that request another than the one before.

use linger_protocol::event::{EventBody, Level, NoticeCode, Trigger};
use linger_protocol::id::{MessageId, PromptId};
use linger_protocol::message::{ContentBlock, Role, Usage};
use tokio::sync::oneshot;

use super::ask::{Answer, Ask, Step, sum};
use super::emit::settled;
use super::shape::Way;
use super::{Over, Turn, notice, rejected};
use crate::fault;
use crate::provider::shape::Shape;
use crate::provider::{Encoding, Failure, FailureClass, Message, ToolSpec, json_size};
use crate::session::actor::Wanted;
use crate::session::compaction::{self, Need, Next as Try};
use crate::session::context::{self, Context, estimate, of_bytes};

/// The part of the window that the transcript for a summary may take, in percent: the answer needs the rest.
const TRANSCRIPT: u64 = 70;

/// The same where the provider has refused what should have fitted: of what was refused, if that is less.
const TRANSCRIPT_REFUSED: u64 = 45;

/// Why a turn ends whose context is too long, after everything was tried.
const NO_ROOM: &str = "no more room can be made";

/// Why a turn ends whose history is refused though nothing in it is the provider's own.
const NOTHING_LEFT: &str = "nothing more can be left out of the history";

/// Why there is no summary when the model was changed while its key was waited for.
const OTHER_MODEL: &str = "another model was chosen meanwhile";

/// What a user can do who asked in vain.
const HINT: &str = "ask again in a while, choose another model with /model, or start a new session";

/// A compaction that is to be made.
struct Plan {
    trigger: Trigger,
    focus: String,
    /// How many of the first messages are to be replaced.
    cut: usize,
    /// About how many tokens the context has.
    tokens: u64,
    /// The same by size alone, with what goes before the messages.
    estimated: u64,
}

/// Why there is no summary.
struct Vain {
    reason: String,
    /// The provider could not be asked at all.
    unreached: bool,
    usage: Option<Usage>,
}

impl Turn {
    /// The answer of the next step; makes room in the context if that is needed. None if the session has another model now, for
    /// which what is decided about a step has to be decided anew.
    pub(super) async fn step(
        &mut self,
        system: &str,
        tools: &[ToolSpec],
        context: &mut Context,
        encoding: &mut Encoding,
    ) -> Result<Option<Result<Answer, Failure>>, Over> {
        let mut need = self.need(context, system, tools);
        let mut refused: Option<(Failure, Option<MessageId>)> = None;
        loop {
            let made_room = match self.effort.next(need) {
                Try::Compact => self.compact(need, context, system, tools, encoding).await?,
                Try::Trim => self.trim(need, context, system, tools, encoding).await?,
                Try::Ask => {
                    let shape = self.way_of(encoding);
                    let asked = shape.as_ref().map(|(schema, due)| Shape { schema, due: *due });
                    let tools = if self.way == Way::Alone { &[] } else { tools };
                    let ask = Ask { system, tools, messages: &context.messages, shape: asked, shown: true };
                    match self.ask(&ask, encoding).await? {
                        Step::Answer(answer) => return Ok(Some(Ok(answer))),
                        Step::OtherModel => {
                            self.superseded(refused.and_then(|(_, shown)| shown))?;
                            return Ok(None);
                        }
                        Step::Failed(failure, shown) if failure.class == FailureClass::TooLong => {
                            refused = Some((failure, shown));
                            need = Need::TooLong;
                        }
                        Step::Failed(failure, shown)
                            if failure.class == FailureClass::Images && !context.with_images().is_empty() =>
                        {
                            self.leave_out_images(context, system, tools, encoding).await?;
                            self.superseded(shown)?;
                        }
                        // The next request has what is wanted, and an event says that it begins otherwise.
                        Step::Failed(failure, shown)
                            if failure.class == FailureClass::Reasoning && self.learns_reasoning() =>
                        {
                            self.superseded(shown)?;
                        }
                        Step::Failed(failure, shown) if failure.class == FailureClass::History => {
                            let native = context.with_native(&self.model);
                            if !native.is_empty() {
                                self.leave_out_native(native, context, system, tools, encoding).await?;
                                self.superseded(shown)?;
                                // An answer that is not over is another's now.
                                self.say_go_on(context).await?;
                            } else if self.thinks {
                                self.stop_thinking(&failure).await?;
                                self.superseded(shown)?;
                            } else {
                                let message = format!("{}; {NOTHING_LEFT}", failure.message);
                                return Ok(Some(Err(Failure { message, ..failure })));
                            }
                        }
                        Step::Failed(failure, _) => return Ok(Some(Err(failure))),
                    }
                    false
                }
                Try::GiveUp => {
                    let Some((failure, _)) = refused else { return Ok(Some(Err(rejected(NO_ROOM.to_owned())))) };
                    return Ok(Some(Err(Failure { message: format!("{}; {NO_ROOM}", failure.message), ..failure })));
                }
            };
            if made_room {
                need = Need::None;
                // What was shown of the answer that did not fit is not a part of what the next attempt goes on from.
                self.superseded(refused.take().and_then(|(_, shown)| shown))?;
            }
        }
    }

    /// Whether the provider, which wants `reasoning_content`, gets it in the next request and did not in the last.
    fn learns_reasoning(&self) -> bool {
        !self.reasons && self.daemon.catalogue().is_ok_and(|catalogue| catalogue.learn_reasoning(&self.model))
    }

    /// Has the model not think until the turn is over: what thinks may have to have thought at calls that another one made.
    async fn stop_thinking(&mut self, failure: &Failure) -> Result<(), Over> {
        self.unthinking = true;
        let text = format!("{}; asking again without thinking, until the turn is over", failure.message);
        self.written(notice(Level::Warning, NoticeCode::Retry, text)).await
    }

    /// What was shown of an attempt does not count.
    fn superseded(&self, shown: Option<MessageId>) -> Result<(), Over> {
        let superseded = shown.into_iter().map(|message| EventBody::MessageSuperseded { message });
        self.emit.send(superseded.collect(), false, None)
    }

    /// Whether the next request needs room that is not there.
    fn need(&self, context: &Context, system: &str, tools: &[ToolSpec]) -> Need {
        let (at, overhead) = (self.daemon.compact_at(), overhead(system, tools));
        let is_full = |window| compaction::is_full(context.tokens(overhead), context.floor(&self.model), window, at);
        // Where there is nothing old, the provider may say whether it is too long.
        let full = self.window().is_some_and(is_full) && self.cut(Trigger::Full, context, overhead).is_some();
        if full { Need::Full } else { Need::None }
    }

    /// How many of the first messages a summary may stand for, and the last of them.
    fn cut(&self, trigger: Trigger, context: &Context, overhead: u64) -> Option<(usize, MessageId)> {
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
        self.daemon.window(&self.model)
    }

    /// Does what a user asked for: has a summary written, or leaves out older output; if neither comes to be, why not and what to do.
    pub(super) async fn compact_as_asked(
        &mut self,
        wanted: Wanted,
        context: &mut Context,
        system: &str,
        tools: &[ToolSpec],
        encoding: &mut Encoding,
    ) -> Result<Option<(String, &'static str)>, Over> {
        let Wanted { prompt, focus } = wanted;
        let made =
            self.summarise((Trigger::Asked, Some(prompt), focus), context, overhead(system, tools), encoding).await?;
        match made {
            Ok(()) => Ok(None),
            Err(vain) if !vain.unreached && self.trim(Need::Full, context, system, tools, encoding).await? => Ok(None),
            Err(vain) => Ok(Some((format!("not compacted: {}", vain.reason), HINT))),
        }
    }

    /// Has a summary written because a step needs room; whether there is more of it now.
    async fn compact(
        &mut self,
        need: Need,
        context: &mut Context,
        system: &str,
        tools: &[ToolSpec],
        encoding: &mut Encoding,
    ) -> Result<bool, Over> {
        let trigger = if need == Need::TooLong { Trigger::TooLong } else { Trigger::Full };
        let made = self.summarise((trigger, None, String::new()), context, overhead(system, tools), encoding).await?;
        self.effort.compacted = Some(made.is_ok());
        self.effort.unreached = made.as_ref().is_err_and(|vain| vain.unreached);
        Ok(made.is_ok())
    }

    /// Leaves out older output; whether there was any.
    async fn trim(
        &mut self,
        need: Need,
        context: &mut Context,
        system: &str,
        tools: &[ToolSpec],
        encoding: &mut Encoding,
    ) -> Result<bool, Over> {
        self.effort.trimmed = true;
        let overhead = overhead(system, tools);
        let (tokens, estimated) = (context.tokens(overhead), context.estimated() + overhead);
        let goal = compaction::goal(tokens, self.window());
        let (calls, saved) = compaction::trim(&context.messages, &context.marks, goal, need == Need::TooLong);
        if calls.is_empty() {
            return Ok(false);
        }
        let tokens_after = compaction::after(tokens, estimated, saved, 0);
        tracing::info!(target: "context", session = %self.session, calls = calls.len(), tokens, tokens_after, "trimmed");
        context.trim(&calls, tokens_after);
        *encoding = Encoding::default();
        let (images, native) = (Vec::new(), Vec::new());
        self.written(EventBody::Trimmed { calls, images, native, tokens_before: tokens, tokens_after }).await?;
        Ok(true)
    }

    /// Leaves out all images, which the model has refused: no later request of the session would be answered either.
    async fn leave_out_images(
        &mut self,
        context: &mut Context,
        system: &str,
        tools: &[ToolSpec],
        encoding: &mut Encoding,
    ) -> Result<(), Over> {
        let (images, overhead) = (context.with_images(), overhead(system, tools));
        let tokens_before = context.tokens(overhead);
        context.leave_out_images(&images);
        let tokens_after = context.tokens(overhead);
        tracing::info!(target: "context", session = %self.session, messages = images.len(), "images were refused, and are left out");
        *encoding = Encoding::default();
        let (calls, native) = (Vec::new(), Vec::new());
        self.written(EventBody::Trimmed { calls, images, native, tokens_before, tokens_after }).await
    }

    /// Leaves out what these messages bring back to their provider, which has refused the history as it is, and would again.
    async fn leave_out_native(
        &mut self,
        native: Vec<MessageId>,
        context: &mut Context,
        system: &str,
        tools: &[ToolSpec],
        encoding: &mut Encoding,
    ) -> Result<(), Over> {
        let overhead = overhead(system, tools);
        let tokens_before = context.tokens(overhead);
        context.leave_out_native(&native);
        let tokens_after = context.tokens(overhead);
        tracing::warn!(target: "context", session = %self.session, messages = native.len(), "the history was refused, and goes on without its opaque parts");
        *encoding = Encoding::default();
        let (calls, images) = (Vec::new(), Vec::new());
        self.written(EventBody::Trimmed { calls, images, native, tokens_before, tokens_after }).await
    }

    /// Has a summary written and goes on from it.
    async fn summarise(
        &mut self,
        (trigger, prompt, focus): (Trigger, Option<PromptId>, String),
        context: &mut Context,
        overhead: u64,
        encoding: &mut Encoding,
    ) -> Result<Result<(), Vain>, Over> {
        let (tokens, estimated) = (context.tokens(overhead), context.estimated());
        let Some((cut, through)) = self.cut(trigger, context, overhead) else {
            let reason = "nothing in the context is old enough to be replaced".to_owned();
            let failed =
                EventBody::CompactionFailed { prompt, reason: reason.clone(), tokens, model: None, usage: None };
            self.written(failed).await?;
            return Ok(Err(Vain { reason, unreached: false, usage: None }));
        };
        let messages = cut as u32;
        let started = EventBody::CompactionStarted {
            trigger,
            prompt: prompt.clone(),
            through: through.clone(),
            messages,
            tokens,
        };
        self.emit.send(vec![started], false, None)?;
        fault::point("compaction.started");
        let plan = Plan { trigger, focus, cut, tokens, estimated: estimated + overhead };
        let written = self.summary(&plan, context).await?;
        fault::point("compaction.answered");
        let model = Some(self.model.clone());
        match written {
            Ok((summary, tokens_after, usage)) => {
                tracing::info!(target: "context", session = %self.session, messages, tokens, tokens_after, "compacted");
                context.compact(&through, &summary, tokens_after, model.clone());
                *encoding = Encoding::default();
                let tokens_before = tokens;
                let compacted = EventBody::Compacted {
                    prompt,
                    through,
                    messages,
                    summary,
                    tokens_before,
                    tokens_after,
                    model,
                    usage,
                };
                self.written(compacted).await?;
                Ok(Ok(()))
            }
            Err(vain) => {
                tracing::warn!(target: "context", session = %self.session, messages, tokens, why = vain.reason, "not compacted");
                context.gave_up(tokens, self.model.clone());
                let (reason, usage) = (vain.reason.clone(), vain.usage);
                self.written(EventBody::CompactionFailed { prompt, reason, tokens, model, usage }).await?;
                Ok(Err(vain))
            }
        }
    }

    /// The summary that the model writes, how large the context is with it, and what it cost.
    async fn summary(
        &mut self,
        plan: &Plan,
        context: &Context,
    ) -> Result<Result<(String, u64, Option<Usage>), Vain>, Over> {
        let old = context.messages.get(..plan.cut).unwrap_or_default();
        let request =
            [Message { role: Role::User, content: vec![ContentBlock::text(self.request(plan, old))], origin: None }];
        let ask = Ask { system: compaction::SYSTEM, tools: &[], messages: &request, shape: None, shown: false };
        let asked = self.ask(&ask, &mut Encoding::default()).await?;
        let broke_off = self.unshown.take();
        let (response, usage) = match asked {
            Step::Answer(Answer { response, usage, .. }) => (response, broke_off.into_iter().chain(usage).reduce(sum)),
            Step::Failed(Failure { class, message, .. }, _) => {
                let unreached = !matches!(
                    class,
                    FailureClass::TooLong
                        | FailureClass::Images
                        | FailureClass::History
                        | FailureClass::Reasoning
                        | FailureClass::Rejected
                );
                return Ok(Err(Vain { reason: message, unreached, usage: broke_off }));
            }
            Step::OtherModel => {
                return Ok(Err(Vain { reason: OTHER_MODEL.to_owned(), unreached: true, usage: broke_off }));
            }
        };
        let gone: u64 = context.marks.iter().take(plan.cut).map(|mark| mark.tokens).sum();
        let judged = compaction::judge(&response, gone).and_then(|summary| {
            // What a turn was asked for that is over has been answered.
            let words = if self.only_compacts { Vec::new() } else { context.words_before(plan.cut) };
            let summary = compaction::with_words(&summary, &words);
            let content = vec![ContentBlock::text(format!("{}{summary}", context::SUMMARY))];
            let come = estimate(&Message { role: Role::User, content, origin: None });
            let tokens_after = compaction::after(plan.tokens, plan.estimated, gone, come);
            if compaction::is_worth(plan.tokens, tokens_after) {
                Ok((summary, tokens_after))
            } else {
                Err(compaction::NOT_SHORTER)
            }
        });
        Ok(match judged {
            Ok((summary, tokens_after)) => Ok((summary, tokens_after, usage)),
            Err(reason) => Err(Vain { reason: reason.to_owned(), unreached: false, usage }),
        })
    }

    /// What the model is asked that writes the summary.
    fn request(&self, plan: &Plan, old: &[Message]) -> String {
        let refused = plan.trigger == Trigger::TooLong;
        let room = match self.window() {
            Some(window) => {
                let room = match refused {
                    true => window.min(plan.estimated) * TRANSCRIPT_REFUSED / 100,
                    false => window * TRANSCRIPT / 100,
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

    /// Writes an event that changes what the next request is made of.
    async fn written(&self, body: EventBody) -> Result<(), Over> {
        let (done, committed) = oneshot::channel();
        self.emit.send(vec![body], false, Some(done))?;
        settled(committed).await
    }
}

/// What tools and system prompt are estimated at, in tokens.
fn overhead(system: &str, tools: &[ToolSpec]) -> u64 {
    let tool = |tool: &ToolSpec| of_bytes(tool.name.len() + tool.description.len() + json_size(&tool.input_schema));
    of_bytes(system.len()) + tools.iter().map(tool).sum::<u64>()
}
