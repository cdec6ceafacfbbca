//! One step: building its request, and reacting when a provider refuses it.

use std::sync::Arc;

use linger_protocol::event::{EventBody, Level, NoticeCode};
use linger_protocol::id::MessageId;
use linger_protocol::message::Role;

use super::compact::warning;
use super::output_schema::Strategy;
use super::request::{ModelRequest, ModelResponse, Refused, RequestEnd};
use super::{Thought, Turn, TurnEnded, rejected};
use crate::provider::output_schema::OutputSchema;
use crate::provider::parameter::Parameter;
use crate::provider::refused_tools;
use crate::provider::tools::ToolSpecs;
use crate::provider::{Encoding, Failure, FailureClass};
use crate::session::context::compaction::{Need, NextAction};
use crate::session::context::{Context, of_bytes};
use crate::tool::set::ToolSet;

/// The reason when the context is too long after everything was tried.
const NO_ROOM: &str = "cannot make more room in the context";

/// The reason when the history is refused although it has no provider items.
const NOTHING_LEFT: &str = "cannot leave out more of the history";

/// The parts of a turn's requests.
pub(super) struct Step {
    pub(super) system: Arc<str>,
    /// The tool set; replaced only between two steps.
    pub(super) tools: Arc<ToolSet>,
    pub(super) context: Context,
    /// The encoded part of the context.
    pub(super) encoding: Encoding,
    /// How the last request asked for the output schema.
    pub(super) strategy: Strategy,
}

impl Step {
    pub(super) fn new(system: Arc<str>, tools: Arc<ToolSet>, context: Context) -> Self {
        Self { system, tools, context, encoding: Encoding::default(), strategy: Strategy::default() }
    }

    /// The estimate for tools and system prompt, in tokens.
    pub(super) fn overhead(&self) -> u64 {
        of_bytes(self.system.len()) + self.tools.specs().sizes().map(of_bytes).sum::<u64>()
    }

    /// The approximate size of the next request, in tokens.
    pub(super) fn tokens(&self) -> u64 {
        self.context.tokens(self.overhead())
    }
}

/// The message with the shown text of a failed attempt, if any.
type Shown = Option<MessageId>;

impl Turn {
    /// The answer of the next step; makes room in the context if needed. `None` if the step
    /// starts over, because the session's model changed or a prompt came.
    pub(super) async fn step(&mut self, step: &mut Step) -> Result<Option<Result<ModelResponse, Failure>>, TurnEnded> {
        let mut need = self.need(step);
        let mut too_long: Option<(Failure, Shown)> = None;
        // Room was made once for a failure that perhaps is about that.
        let mut guessed = false;
        loop {
            let made_room = match self.effort.next(need) {
                NextAction::Compact => Box::pin(self.compact(need, step)).await?,
                NextAction::Trim => self.trim(need, step).await?,
                NextAction::CutOff => Box::pin(self.cut_off(step)).await?,
                NextAction::Ask => {
                    match self.ask_model(step).await? {
                        RequestEnd::Answered(mut answer) => {
                            self.learn_list(&mut answer).await;
                            self.say_tools_left_out(step, &answer)?;
                            return Ok(Some(Ok(answer)));
                        }
                        RequestEnd::StartOver => {
                            self.superseded(too_long.and_then(|(_, shown)| shown))?;
                            return Ok(None);
                        }
                        RequestEnd::Failed(refused)
                            if refused.failure.class == FailureClass::TooLong
                                || (refused.failure.class == FailureClass::PerhapsTooLong
                                    && !std::mem::replace(&mut guessed, true)) =>
                        {
                            self.learn_window(&refused.failure);
                            too_long = Some((refused.failure, refused.shown));
                            need = Need::TooLong;
                        }
                        RequestEnd::Failed(refused) => {
                            if let Err(failure) = self.adapt(refused, step).await? {
                                return Ok(Some(Err(failure)));
                            }
                        }
                    }
                    false
                }
                NextAction::GiveUp => {
                    let Some((failure, _)) = too_long else { return Ok(Some(Err(rejected(NO_ROOM.to_owned())))) };
                    if failure.class == FailureClass::PerhapsTooLong {
                        return Ok(Some(Err(Failure { class: FailureClass::Rejected, ..failure })));
                    }
                    return Ok(Some(Err(Failure { message: format!("{}; {NO_ROOM}", failure.message), ..failure })));
                }
            };
            if made_room {
                need = Need::None;
                // The shown text of the failed attempt is not part of the next one's context.
                self.superseded(too_long.take().and_then(|(_, shown)| shown))?;
            }
        }
    }

    /// Asks the model with the context as it is.
    async fn ask_model(&mut self, step: &mut Step) -> Result<RequestEnd, TurnEnded> {
        let schema = self.strategy_of(step);
        let output_schema = schema.as_ref().map(|(schema, due)| OutputSchema { schema, due: *due });
        let tools = if step.strategy == Strategy::Alone { ToolSpecs::none() } else { step.tools.specs() };
        let ask =
            ModelRequest { system: &step.system, tools, messages: &step.context.messages, output_schema, shown: true };
        Ok(self.ask(&ask, &mut step.encoding).await?.end)
    }

    /// Changes the next request so that it is not refused again; the error is a failure that no change
    /// avoids.
    async fn adapt(&mut self, refused: Refused, step: &mut Step) -> Result<Result<(), Failure>, TurnEnded> {
        let Refused { failure, shown, thinks, reasons } = refused;
        match failure.class {
            FailureClass::Rejected | FailureClass::PerhapsTooLong | FailureClass::Parameter(_)
                if self.leaves_out_tool(&failure, step)? =>
            {
                self.superseded(shown)?;
            }
            FailureClass::Images if !step.context.with_images().is_empty() => {
                self.leave_out_images(step).await?;
                self.superseded(shown)?;
            }
            // The next request adds the field, and an event names the changed prefix.
            FailureClass::Reasoning if !reasons && self.learns_reasoning() => self.superseded(shown)?,
            FailureClass::Parameter(Parameter::Thinking) if thinks => {
                self.stop_thinking(&failure).await?;
                self.superseded(shown)?;
            }
            FailureClass::Parameter(parameter) if self.leaves_out(parameter) => {
                self.say_left_out(&failure, parameter)?;
                self.superseded(shown)?;
                // Without a schema in the request, the model is told in words.
                self.say_schema(step).await?;
            }
            FailureClass::History => {
                let native = step.context.with_native(&self.model);
                if !native.is_empty() {
                    self.leave_out_native(native, step).await?;
                    self.superseded(shown)?;
                    // Another model must continue the paused answer.
                    self.say_go_on(step).await?;
                } else if thinks {
                    self.stop_thinking(&failure).await?;
                    self.superseded(shown)?;
                } else {
                    let message = format!("{}; {NOTHING_LEFT}", failure.message);
                    return Ok(Err(Failure { message, ..failure }));
                }
            }
            _ => return Ok(Err(failure)),
        }
        Ok(Ok(()))
    }

    /// Whether requests can add the `reasoning_content` that the provider requires.
    fn learns_reasoning(&self) -> bool {
        self.services.providers.catalogue().is_ok_and(|catalogue| catalogue.learn_reasoning(&self.model))
    }

    /// Asks the provider for windows and prices after its first answer, if they are not known otherwise.
    async fn learn_list(&self, answer: &mut ModelResponse) {
        let providers = &self.services.providers;
        if !providers.learn_list(&self.model).await {
            return;
        }
        let resolved = providers.catalogue().ok().and_then(|catalogue| catalogue.resolve(&self.model).ok());
        if let (Some(usage), Some(resolved)) = (&mut answer.usage, resolved) {
            usage.cost_micros = usage.cost_micros.or_else(|| resolved.facts.prices.cost(usage));
        }
    }

    /// Takes the window from an error, so that summaries and trims aim at it.
    fn learn_window(&self, failure: &Failure) {
        if let (Some(window), Ok(catalogue)) = (failure.window(), self.services.providers.catalogue()) {
            catalogue.learn_window(&self.model, window);
        }
    }

    /// Whether requests can go without a refused parameter.
    fn leaves_out(&self, parameter: Parameter) -> bool {
        self.services.providers.catalogue().is_ok_and(|catalogue| catalogue.leave_out(&self.model, parameter))
    }

    /// Whether the next request goes without a tool whose schema the provider has refused; says so.
    fn leaves_out_tool(&mut self, failure: &Failure, step: &mut Step) -> Result<bool, TurnEnded> {
        let tools = step.tools.clone();
        let Some(name) = refused_tools::named(&failure.message, tools.specs()) else { return Ok(false) };
        let Some(schema) = tools.get(name).map(|tool| tool.schema()) else { return Ok(false) };
        let provider = self.model.split('/').next().unwrap_or_default();
        if !self.services.providers.refused_tools.add(provider, name, schema) {
            return Ok(false);
        }
        self.tools = self.tools_now();
        step.tools = self.tools.clone();
        let text = format!(
            "{}; asking again without the tool {name}, which {provider} does not get any more",
            failure.message
        );
        self.emit.notice(Level::Warning, NoticeCode::Retry, text)?;
        Ok(step.tools.get(name).is_none())
    }

    /// Warns once if the server of the model has evidently left the tools out of what the model reads.
    fn say_tools_left_out(&self, step: &Step, answer: &ModelResponse) -> Result<(), TurnEnded> {
        let tools: u64 = step.tools.specs().sizes().map(of_bytes).sum();
        let rest = of_bytes(step.system.len()) + step.context.estimated();
        let counted = answer.response.usage.input_tokens;
        // Later counts may leave out what the server still has of the request before.
        let is_first = step.context.messages.iter().all(|message| message.role == Role::User);
        let is_sent = is_first && step.strategy != Strategy::Alone;
        if !is_sent
            || !refused_tools::are_left_out(counted, rest, tools)
            || !self.services.providers.refused_tools.is_news(&self.model)
        {
            return Ok(());
        }
        let text = format!(
            "{} counted {counted} tokens for a request with tools of about {tools}: its server seems to leave the tools out, so the \
             model can call none. Its template may lack them; llama.cpp needs --jinja, vLLM --enable-auto-tool-choice and \
             --tool-call-parser",
            self.model
        );
        self.emit.send(vec![EventBody::Notice(warning(text))], false, None)
    }

    /// Says what is left out from now on, and the setting for it.
    fn say_left_out(&self, failure: &Failure, parameter: Parameter) -> Result<(), TurnEnded> {
        let provider = self.model.split('/').next().unwrap_or_default();
        let setting = parameter.setting().unwrap_or_default();
        let text = format!(
            "{}; asking again without it, and from now on: `{setting}` in [providers.{provider}.compat] settles it",
            failure.message
        );
        self.emit.notice(Level::Warning, NoticeCode::Retry, text)
    }

    /// Turns thinking off until the turn ends: a thinking model may require thinking at calls that
    /// another model made.
    async fn stop_thinking(&mut self, failure: &Failure) -> Result<(), TurnEnded> {
        self.thought = Thought::Off;
        let text = format!("{}; asking again without thinking, until the turn is over", failure.message);
        self.emit.notice(Level::Warning, NoticeCode::Retry, text)?;
        self.emit.committed().await
    }

    /// Supersedes the shown text of an attempt.
    fn superseded(&self, shown: Shown) -> Result<(), TurnEnded> {
        let superseded = shown.into_iter().map(|message| EventBody::MessageSuperseded { message });
        self.emit.send(superseded.collect(), false, None)
    }
}
