//! What an editor can choose for a session: mode, model and effort.

use agent_client_protocol_schema::v1::{
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigSelectOption, SessionMode, SessionModeState,
};
use linger_protocol::daemon::Model;
use linger_protocol::permission::Mode;
use linger_protocol::session::{Effort, Info};

/// The modes, with what each does without being asked for.
const MODES: [(Mode, &str); 4] = [
    (Mode::Ask, "reads in the workspace; everything else asks"),
    (Mode::Edit, "as ask, and changes files in the workspace"),
    (Mode::Auto, "runs everything"),
    (Mode::Plan, "reads and plans; everything else is refused"),
];

/// The names of the options.
pub(super) const MODEL: &str = "model";
/// See [`MODEL`].
pub(super) const EFFORT: &str = "effort";

/// The modes, and the one of the session.
pub(super) fn modes(now: Mode) -> SessionModeState {
    let modes = MODES.map(|(mode, does)| SessionMode::new(mode.to_string(), mode.to_string()).description(does));
    SessionModeState::new(now.to_string(), modes.to_vec())
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
