//! The title of a session, from a cheap model once its first turn has ended. It holds up nothing, and a failure is silent.

use linger_protocol::event::ModelCost;

use super::*;
use crate::session::turn::title::{self, Titled};

/// The request for a title; it ends with the actor.
#[derive(Default)]
pub(super) struct Titles {
    tasks: JoinSet<Option<Titled>>,
    /// The first prompt, while its turn runs: the title is about it.
    first_prompt: Option<String>,
}

impl Titles {
    /// The first turn begins with this prompt.
    pub(super) fn begin(&mut self, prompt: String) {
        self.first_prompt = Some(prompt);
    }

    /// Whether no model is being asked.
    pub(super) fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The next answer; pending forever if no model is being asked.
    pub(super) async fn next(&mut self) -> Option<Titled> {
        match self.tasks.join_next().await {
            Some(titled) => titled.ok().flatten(),
            None => std::future::pending().await,
        }
    }
}

impl Actor {
    /// Asks for a title, if the turn that has ended is the first one and nothing speaks against it: a session for one prompt, a
    /// child's, a budget, and a model that is not known to be cheap.
    pub(super) fn ask_for_title(&mut self, reason: StopReason) {
        // Lost if the daemon has died meanwhile; its beginning will do.
        let prompt = self.titles.first_prompt.take().or_else(|| self.state.title.title.clone());
        let state = &self.state;
        let is_first =
            state.progress.counts.turns == 1 && reason == StopReason::EndTurn && state.title.given_title.is_none();
        let is_own = state.identity.parent.is_none() && !(state.identity.one_shot && state.settings.name.is_none());
        if !is_first || !is_own || !state.progress.budget.size.is_empty() {
            return;
        }
        let text = prompt.filter(|text| !text.trim().is_empty());
        let (Some(text), Some(model)) = (text, title::model(&self.env.turns, &state.settings.model)) else { return };
        self.titles.tasks.spawn(title::ask(self.env.turns.clone(), model, self.id.clone(), text));
    }

    /// Records the title, and what it cost.
    pub(super) fn titled(&mut self, titled: Option<Titled>) {
        let Some(Titled { title, model, usage }) = titled else { return };
        if title.is_none() && usage.is_none() {
            return;
        }
        let cost = usage.map(|usage| ModelCost { model, usage });
        self.append(vec![Draft::new(EventBody::titled(title, cost))], Vec::new(), false, None);
    }
}
