//! The options that an editor offers for a session: mode, model and effort. Pure.

use agent_client_protocol_schema::v1::{
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigSelectOption, SessionMode, SessionModeState,
};
use linger_protocol::daemon::Model;
use linger_protocol::permission::{Mode, ModeInfo};
use linger_protocol::session::{Effort, Info};

/// The names of the options.
pub(super) const MODE: &str = "mode";
pub(super) const MODEL: &str = "model";
pub(super) const EFFORT: &str = "effort";

/// The choices of a session, without the efforts of a model.
#[derive(Debug, Default)]
pub(super) struct Choices {
    pub(super) modes: Vec<ModeInfo>,
    /// The models that can be used, as they were when a session was last opened.
    pub(super) models: Vec<Model>,
}

/// The modes, and the one of the session: for editors that do not know the option.
pub(super) fn modes(now: Mode, all: &[ModeInfo]) -> SessionModeState {
    let row = |info: &ModeInfo| {
        SessionMode::new(info.mode.to_string(), info.mode.to_string()).description(info.description.clone())
    };
    SessionModeState::new(now.to_string(), all.iter().map(row).collect())
}

/// The options of a session: its mode, its model among those that can be used now, and how hard it thinks.
pub(super) fn options(row: &Info, choices: &Choices, efforts: &[Effort]) -> Vec<SessionConfigOption> {
    let mut names: Vec<&str> = choices.models.iter().filter(|model| model.ready).map(|model| &*model.model).collect();
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
    let mode = |info: &ModeInfo| choice(&info.mode.to_string()).description(info.description.clone());
    let modes: Vec<_> = choices.modes.iter().map(mode).collect();
    vec![
        SessionConfigOption::select(MODE, "Mode", row.mode.to_string(), modes)
            .category(SessionConfigOptionCategory::Mode),
        SessionConfigOption::select(MODEL, "Model", row.model.clone(), models)
            .category(SessionConfigOptionCategory::Model),
        SessionConfigOption::select(EFFORT, "Effort", row.effort.name().to_owned(), efforts)
            .category(SessionConfigOptionCategory::ThoughtLevel),
    ]
}
