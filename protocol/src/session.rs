//! Sessions: parameters and results of the `session/*` methods, a file for each group of them.

mod attach;
mod bin;
mod create;
mod list;
mod settings;
mod turn;
mod undo;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::SessionId;

pub use attach::{Attach, Attached};
pub use bin::{Bin, OutOfBin, Prune, Pruned, Remove, Removed};
pub use create::{Create, Created, Environment};
pub use list::{Background, Before, Info, List, ProviderWait, State};
pub use settings::{Effort, PrefixFingerprint, Set};
pub use turn::{Cancel, Compact, Continue, Prompt, Prompted, Unqueue, Unqueued, Until, When};
pub use undo::{Redo, Restored, Undo};

/// A request that names a session and nothing else: `session/detach`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Named {
    /// The session that is meant.
    pub session: SessionId,
}

/// `session/restore`: takes a session out of the bin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Keyed {
    /// The session to restore.
    pub session: SessionId,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}
