//! The methods by name: which parameters belong to which result.
//!
//! [`crate::api`] says the same as traits of jsonrpsee; a test holds the two together.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{blob, daemon, key, permission, session, usage};

/// Parameters that know their method.
pub trait Method: Serialize {
    /// `resource/verb`.
    const NAME: &'static str;
    /// What the daemon answers.
    type Result: DeserializeOwned;
}

/// Visits every method; see [`each_method`].
pub trait Visitor {
    /// Called once a method.
    fn method<P, R>(&mut self, name: &'static str)
    where
        P: schemars::JsonSchema,
        R: schemars::JsonSchema;
}

macro_rules! methods {
    ($($marker:ident: $name:literal, $params:ty => $result:ty;)*) => {
        $(
            /// Names the method for [`Method`]; the parameters are its field.
            #[derive(Clone, Debug, Serialize)]
            #[serde(transparent)]
            pub struct $marker(pub $params);

            impl Method for $marker {
                const NAME: &'static str = $name;
                type Result = $result;
            }
        )*

        /// Shows every method with its types to `visitor`.
        pub fn each_method(visitor: &mut impl Visitor) {
            $(visitor.method::<$params, $result>($name);)*
        }
    };
}

methods! {
    DaemonHello: "daemon/hello", daemon::Hello => daemon::Welcome;
    DaemonKeys: "daemon/keys", daemon::Keys => daemon::Empty;
    DaemonStatus: "daemon/status", daemon::Empty => daemon::Status;
    DaemonStop: "daemon/stop", daemon::Stop => daemon::Empty;
    DaemonRepair: "daemon/repair", daemon::Repair => daemon::Repaired;
    SessionCreate: "session/create", session::Create => session::Created;
    SessionList: "session/list", session::List => Vec<session::Info>;
    SessionAttach: "session/attach", session::Attach => session::Attached;
    SessionDetach: "session/detach", session::Named => daemon::Empty;
    SessionPrompt: "session/prompt", session::Prompt => session::Prompted;
    SessionCancel: "session/cancel", session::Keyed => daemon::Empty;
    SessionContinue: "session/continue", session::Keyed => daemon::Empty;
    SessionCompact: "session/compact", session::Compact => session::Prompted;
    SessionSet: "session/set", session::Set => daemon::Empty;
    SessionRemove: "session/remove", session::Remove => daemon::Empty;
    SessionPrune: "session/prune", session::Prune => session::Pruned;
    BlobGet: "blob/get", blob::Get => blob::Piece;
    PermissionList: "permission/list", permission::List => Vec<permission::Pending>;
    PermissionAnswer: "permission/answer", permission::Answer => permission::Answered;
    KeyList: "key/list", daemon::Empty => key::Listed;
    KeySet: "key/set", key::Set => key::Info;
    KeyRemove: "key/remove", key::Remove => key::Removed;
    UsageList: "usage/list", usage::List => usage::Sums;
    ModelList: "model/list", daemon::Models => Vec<daemon::Model>;
    ToolList: "tool/list", daemon::Empty => Vec<daemon::Tool>;
}
