//! How a turn gets an answer that fits its schema: which steps ask for it in which way, and what follows one that does not fit.
//!
//! What was asked, and how often in vain, is in the log: a turn that is taken up after a crash goes on where it was.

use std::sync::Arc;

use linger_protocol::event::{Asks, EventBody};
use linger_protocol::id::MessageId;
use linger_protocol::message::{ContentBlock, Role};
use serde_json::Value;
use tokio::sync::oneshot;

use super::emit::settled;
use super::{Over, Turn};
use crate::provider::shape::Shaping;
use crate::provider::{Encoding, Message};
use crate::schema;
use crate::session::context::Context;

/// What to do when no answer fits.
pub(super) const HINT: &str = "choose another model, or a simpler schema, and prompt again";

/// What a model is told that goes on with an answer of another's.
const GO_ON_AS_ANOTHER: &str = "Go on where that answer stopped.";

/// How a request asks for the shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Way {
    /// Not at all, or in words that are in the history.
    #[default]
    Free,
    /// Beside the tools.
    Beside,
    /// Beside the tools, and the answer is due.
    Due,
    /// Without tools.
    Alone,
}

/// What an answer is.
pub(super) enum Fit {
    /// It fits what was asked for, if anything was.
    Yes(Option<Value>),
    /// It does not, and the model was told.
    Again,
    /// It does not, for the last time; why.
    Never(String),
}

/// The way of the next step, after so many answers that did not fit.
fn way(shaping: Shaping, misfits: u32) -> Way {
    match (shaping, misfits) {
        (Shaping::Words, _) | (Shaping::Apart, 0) => Way::Free,
        (Shaping::Apart, _) => Way::Alone,
        (Shaping::Together, 0) => Way::Beside,
        (Shaping::Together, _) => Way::Due,
    }
}

/// How many answers may not fit before the turn fails: one is repaired; what was only told in words before it was enforced is
/// not held against the model.
fn patience(shaping: Shaping) -> u32 {
    if shaping == Shaping::Apart { 2 } else { 1 }
}

impl Turn {
    /// The schema of the next request, and whether the answer is due; what was encoded in another way is let go.
    pub(super) fn way_of(&mut self, encoding: &mut Encoding) -> Option<(Arc<Value>, bool)> {
        let shape = self.shape.as_ref();
        let next = shape.map_or(Way::Free, |shape| way(self.shaping(&shape.schema), shape.misfits));
        if std::mem::replace(&mut self.way, next) != next {
            *encoding = Encoding::default();
        }
        let due = matches!(next, Way::Due | Way::Alone);
        shape.filter(|_| next != Way::Free).map(|shape| (shape.schema.clone(), due))
    }

    fn shaping(&self, schema: &Value) -> Shaping {
        let catalogue = self.daemon.catalogue();
        catalogue.map_or(Shaping::Words, |catalogue| catalogue.shaping(&self.model, schema))
    }

    /// Tells the model the schema in words, where its steps do not ask for it in another way, once a turn.
    pub(super) async fn say_schema(&mut self, context: &mut Context) -> Result<(), Over> {
        let Some(shape) = self.shape.as_ref().filter(|shape| !shape.said) else { return Ok(()) };
        if self.shaping(&shape.schema) == Shaping::Together {
            return Ok(());
        }
        let text = format!(
            "When everything is done, give the final answer as JSON alone, without a word before or after it, that fits this \
             JSON Schema:\n{}",
            shape.schema
        );
        self.say(Asks::Schema, text, context).await
    }

    /// Whether the last message fits what was asked for; if not, and there is another try, the model is told.
    pub(super) async fn fits(&mut self, context: &mut Context) -> Result<Fit, Over> {
        let Some(shape) = &self.shape else { return Ok(Fit::Yes(None)) };
        let content = context.messages.last().map(|last| last.content.clone()).unwrap_or_default();
        let (schema, misfits) = (shape.schema.clone(), shape.misfits);
        let patience = patience(self.shaping(&schema));
        let wrapped = self.daemon.catalogue().is_ok_and(|catalogue| catalogue.wraps(&self.model, &schema));
        // A large answer takes its time, and one thread runs all sessions.
        let checked = tokio::task::spawn_blocking(move || schema::fit(&schema, &content, wrapped)).await;
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
        self.say(Asks::Again, text, context).await?;
        Ok(Fit::Again)
    }

    /// Asks a model to go on with an answer that another one began, and that is not over: only the one that began it takes it
    /// back without a word.
    pub(super) async fn say_go_on(&mut self, context: &mut Context) -> Result<(), Over> {
        let begun = context.messages.last().filter(|last| last.role == Role::Assistant);
        if begun.is_none_or(|last| last.origin.as_ref() == Some(&self.model)) {
            return Ok(());
        }
        self.say(Asks::GoOn, GO_ON_AS_ANOTHER.to_owned(), context).await
    }

    /// Says something in the user's place.
    async fn say(&mut self, asks: Asks, text: String, context: &mut Context) -> Result<(), Over> {
        self.messages += 1;
        let (id, content) = (MessageId(format!("m{}", self.messages)), vec![ContentBlock::text(text)]);
        let said = EventBody::Message {
            message: id.clone(),
            role: Role::User,
            content: content.clone(),
            interrupted: false,
            cut: false,
            paused: false,
            prompt: None,
            asks: Some(asks),
            model: None,
            usage: None,
        };
        let (done, committed) = oneshot::channel();
        self.emit.send(vec![said], false, Some(done))?;
        // What a model has seen is in the log: a turn that is taken up after a crash says the same again.
        settled(committed).await?;
        context.push(id, Message { role: Role::User, content, origin: None }, false);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misfit_is_repaired_once_and_enforced_before_that() {
        let ways = |shaping| (0..=patience(shaping)).map(|misfits| way(shaping, misfits)).collect::<Vec<_>>();
        assert_eq!(ways(Shaping::Together), [Way::Beside, Way::Due]);
        assert_eq!(ways(Shaping::Apart), [Way::Free, Way::Alone, Way::Alone]);
        assert_eq!(ways(Shaping::Words), [Way::Free, Way::Free]);
    }
}
