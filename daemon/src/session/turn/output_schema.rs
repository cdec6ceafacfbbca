//! Answers that fit a schema: the strategy of each step, and the repair of an answer that does not fit.
//!
//! The log has all messages and misfits, so a turn resumed after a crash continues where it was.

use std::sync::Arc;

use linger_protocol::event::{Asks, EventBody};
use linger_protocol::id::MessageId;
use linger_protocol::message::{ContentBlock, Role};
use serde_json::Value;

use super::drive::user;
use super::step::Step;
use super::{Turn, TurnEnded};
use crate::provider::Encoding;
use crate::provider::output_schema::SchemaStrategy;
use crate::provider::schema;
use crate::sys::task;

/// The hint when no answer fits.
pub(super) const HINT: &str = "choose another model, or a simpler schema, and prompt again";

/// The message to a model that continues another model's answer.
const GO_ON_AS_ANOTHER: &str = "Go on where that answer stopped.";

/// How a request asks for the output schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Strategy {
    /// Not at all, or by a message in the history.
    #[default]
    Free,
    /// Together with the tools.
    WithTools,
    /// Together with the tools, and the answer is due.
    Due,
    /// Without tools.
    Alone,
}

/// Whether an answer fits.
pub(super) enum Fit {
    /// It fits the schema, if there is one.
    Yes(Option<Value>),
    /// It does not, and the model gets another try.
    Again,
    /// It does not, and there are no more tries; the reason.
    Never(String),
}

/// The strategy of the next step after `misfits` answers.
fn strategy(schema_strategy: SchemaStrategy, misfits: u32) -> Strategy {
    match (schema_strategy, misfits) {
        (SchemaStrategy::PromptOnly, _) | (SchemaStrategy::WithoutTools, 0) => Strategy::Free,
        (SchemaStrategy::WithoutTools, _) => Strategy::Alone,
        (SchemaStrategy::WithTools, 0) => Strategy::WithTools,
        (SchemaStrategy::WithTools, _) => Strategy::Due,
    }
}

/// How many answers may not fit before the turn fails: one repair, plus one where the first request cannot enforce the schema.
fn max_misfits(schema_strategy: SchemaStrategy) -> u32 {
    if schema_strategy == SchemaStrategy::WithoutTools { 2 } else { 1 }
}

impl Turn {
    /// The schema of the next request, and whether the answer is due; what was encoded by another
    /// strategy is dropped.
    pub(super) fn strategy_of(&self, step: &mut Step) -> Option<(Arc<Value>, bool)> {
        let asked = self.output_schema.as_ref();
        let next = asked.map_or(Strategy::Free, |asked| strategy(self.schema_strategy(&asked.schema), asked.misfits));
        if std::mem::replace(&mut step.strategy, next) != next {
            step.encoding = Encoding::default();
        }
        let due = matches!(next, Strategy::Due | Strategy::Alone);
        asked.filter(|_| next != Strategy::Free).map(|asked| (asked.schema.clone(), due))
    }

    fn schema_strategy(&self, schema: &Value) -> SchemaStrategy {
        let catalogue = self.services.providers.catalogue();
        catalogue.map_or(SchemaStrategy::PromptOnly, |catalogue| catalogue.schema_strategy(&self.model, schema))
    }

    /// Tells the model the schema in words, where its steps do not ask for it in another way, once a turn.
    pub(super) async fn say_schema(&mut self, step: &mut Step) -> Result<(), TurnEnded> {
        let Some(asked) = self.output_schema.as_ref().filter(|asked| !asked.sent) else { return Ok(()) };
        if self.schema_strategy(&asked.schema) == SchemaStrategy::WithTools {
            return Ok(());
        }
        let text = format!(
            "When everything is done, give the final answer as JSON alone, without a word before or after it, that fits this \
             JSON Schema:\n{}",
            asked.schema
        );
        self.say(Asks::Schema, text, step).await
    }

    /// Whether the last message fits what was asked for; if not, and there is another try, the model is told.
    pub(super) async fn fits(&mut self, step: &mut Step) -> Result<Fit, TurnEnded> {
        let Some(asked) = &self.output_schema else { return Ok(Fit::Yes(None)) };
        let content = step.context.messages.last().map(|last| last.content.clone()).unwrap_or_default();
        let (schema, misfits) = (asked.schema.clone(), asked.misfits);
        let patience = max_misfits(self.schema_strategy(&schema));
        let wrapped = self.services.providers.catalogue().is_ok_and(|catalogue| catalogue.wraps(&self.model, &schema));
        // A large answer takes its time, and one thread runs all sessions.
        let checked = task::spawn_blocking(move || schema::fit(&schema, &content, wrapped)).await;
        let fault = match checked.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(answer) => return Ok(Fit::Yes(Some(answer))),
            Err(fault) => fault,
        };
        tracing::warn!(target: "turn", session = %self.session, misfits, fault, "the answer does not fit the schema");
        if misfits >= patience {
            return Ok(Fit::Never(fault));
        }
        let text = format!(
            "That answer does not fit the JSON Schema: {fault}\nGive the final answer again, as JSON alone that fits it."
        );
        self.say(Asks::Again, text, step).await?;
        Ok(Fit::Again)
    }

    /// Asks a model to go on with an answer that another one began, and that is not over: only the one that began it takes it
    /// back without a word.
    pub(super) async fn say_go_on(&mut self, step: &mut Step) -> Result<(), TurnEnded> {
        let begun = step.context.messages.last().filter(|last| last.role == Role::Assistant);
        if begun.is_none_or(|last| last.origin.as_ref() == Some(&self.model)) {
            return Ok(());
        }
        self.say(Asks::GoOn, GO_ON_AS_ANOTHER.to_owned(), step).await
    }

    /// Says something in the user's place.
    pub(super) async fn say(&mut self, asks: Asks, text: String, step: &mut Step) -> Result<(), TurnEnded> {
        let said = EventBody::user_message(MessageId::default(), vec![ContentBlock::text(text)], None, Some(asks));
        // What a model has seen is in the log: a turn that is resumed after a crash says the same again.
        let (id, content) = self.emit.committed_message(said).await?;
        step.context.push(id, user(content), false);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misfit_is_repaired_once_and_enforced_before_that() {
        let strategies = |schema_strategy| {
            (0..=max_misfits(schema_strategy)).map(|misfits| strategy(schema_strategy, misfits)).collect::<Vec<_>>()
        };
        assert_eq!(strategies(SchemaStrategy::WithTools), [Strategy::WithTools, Strategy::Due]);
        assert_eq!(strategies(SchemaStrategy::WithoutTools), [Strategy::Free, Strategy::Alone, Strategy::Alone]);
        assert_eq!(strategies(SchemaStrategy::PromptOnly), [Strategy::Free, Strategy::Free]);
    }
}
