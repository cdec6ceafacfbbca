//! The options that an editor offers for a session: mode, model and effort.

use agent_client_protocol_schema::v1::{
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigSelectOption, SessionMode, SessionModeState,
};
use linger_protocol::daemon::Model;
use linger_protocol::permission::{Mode, ModeInfo};
use linger_protocol::session::{Effort, Info};

/// The names of the options.
pub(super) const MODEL: &str = "model";
pub(super) const EFFORT: &str = "effort";

/// The modes, and the one of the session.
pub(super) fn modes(now: Mode, all: Vec<ModeInfo>) -> SessionModeState {
    let row =
        |ModeInfo { mode, description }| SessionMode::new(mode.to_string(), mode.to_string()).description(description);
    SessionModeState::new(now.to_string(), all.into_iter().map(row).collect())
}

/// The options of a session: its model among those that can be used now, and how hard it thinks.
pub(super) fn options(row: &Info, models: &[Model], efforts: &[Effort]) -> Vec<SessionConfigOption> {
    let mut names: Vec<&str> = models.iter().filter(|model| model.ready).map(|model| &*model.model).collect();
    if !names.contains(&&*row.model) {
        names.insert(0, &row.model);
    }
    let choice = |name: &str| SessionConfigSelectOption::new(name.to_owned(), name.to_owned());
    let models: Vec<_> = names.into_iter().map(choice).collect();
    let mut chosen = vec![Effort::Auto];
    chosen.extend(efforts.iter().chain([&row.effort]));
    chosen.sort();
    chosen.dedup();
    let efforts: Vec<_> = chosen.into_iter().map(|effort| choice(effort.name())).collect();
    vec![
        SessionConfigOption::select(MODEL, "Model", row.model.clone(), models)
            .category(SessionConfigOptionCategory::Model),
        SessionConfigOption::select(EFFORT, "Effort", row.effort.name().to_owned(), efforts)
            .category(SessionConfigOptionCategory::ThoughtLevel),
    ]
}
