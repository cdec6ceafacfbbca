//! The errors of the protocol: a code for programs, a message for people, and a hint at what to do next.
//!
//! Codes below −32000 are JSON-RPC's own (malformed, unknown method, wrong parameters); those here are linger's.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::checkpoint::UncertainChange;
use crate::{permission, question};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// The reason for an error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Code {
            $($(#[$doc])* $name = $code,)*
        }

        impl Code {
            /// Every code, for documentation.
            pub const ALL: &[(Self, i32, &str)] = &[$((Self::$name, $code, stringify!($name)),)*];

            /// The code with this number on the wire.
            pub fn from_number(number: i32) -> Option<Self> {
                Self::ALL.iter().find(|(_, n, _)| *n == number).map(|(code, _, _)| *code)
            }
        }
    };
}

codes! {
    /// The question has its answer; `data` is an `AlreadyAnswered`, that of permissions from `permission/answer`.
    AlreadyAnswered = -31001,
    /// No session has this id.
    UnknownSession = -31002,
    /// No permission has this id.
    UnknownPermission = -31003,
    /// The cursor is unknown for this session.
    UnknownCursor = -31004,
    /// The digest is not that of what waits.
    WrongDigest = -31005,
    /// This client may not do this.
    NotAllowed = -31006,
    /// No model was named and none is configured.
    NoModel = -31007,
    /// No provider has this name.
    UnknownProvider = -31008,
    /// The provider needs a key that the daemon does not have.
    KeyMissing = -31009,
    /// The configuration cannot be used; the message has file, line and key.
    BadConfig = -31010,
    /// The directory does not exist or cannot be entered.
    NoWorkspace = -31011,
    /// The name is taken, or no name at all.
    BadName = -31012,
    /// A turn is running.
    Busy = -31013,
    /// There is nothing to cancel or to continue.
    Idle = -31014,
    /// Something is larger or more numerous than its limit.
    TooMuch = -31015,
    /// The storage failed; nothing was changed.
    Storage = -31016,
    /// The daemon is ending.
    Ending = -31017,
    /// No protocol version is spoken by both.
    Version = -31018,
    /// The prompt has no content, or a kind of block that prompts do not have.
    BadPrompt = -31019,
    /// Not attached to this session.
    NotAttached = -31020,
    /// The session cannot be read: what is stored of it is not what was written.
    Damaged = -31021,
    /// The idempotency key is empty, too long, or was used for something else.
    BadKey = -31022,
    /// No session uses a blob with this name.
    UnknownBlob = -31023,
    /// The operating system's keychain cannot be used.
    NoKeychain = -31024,
    /// The given text cannot be a provider's key.
    NotAKey = -31025,
    /// The given schema is no JSON Schema, or one that needs something from outside.
    BadSchema = -31026,
    /// No question has this id.
    UnknownQuestion = -31027,
    /// The answer is none of the question's options.
    UnknownOption = -31028,
    /// The value of an answer does not fit the form.
    BadValue = -31030,
    /// No MCP server has this name.
    UnknownServer = -31029,
    /// The MCP server cannot be started, or refuses.
    ServerFailed = -31051,
    /// No call or rule is written so, or there is no such rule.
    BadRule = -31040,
    /// The session has no such message or prompt in its conversation.
    UnknownMessage = -31070,
    /// The session is in the bin.
    Binned = -31060,
    /// Files were changed since; nothing was undone.
    FileChanged = -31050,
    /// An editor or another program may have made some of the changes; nothing was undone, and `data` lists them.
    Uncertain = -31052,
    /// The token is unknown, expired or revoked, or the connection needs one.
    Unauthorized = -31080,
    /// No token has this id.
    UnknownToken = -31081,
    /// No artifact has this id, or the connection has no such upload.
    UnknownArtifact = -31082,
    /// An internal error in the daemon.
    Internal = -31099,
}

/// An error of a method, as it stands on the wire.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct RpcError {
    /// The number of a [`Code`], or one of JSON-RPC's own.
    pub code: i32,
    /// The error in one line; lower case, no full stop.
    pub message: String,
    /// More for programs: an [`ErrorData`], or what the code says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// The `data` of an error, unless its code says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorData {
    /// The next thing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The field of `params` that is wrong, such as `content[0].text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The changes that may be of an editor or another program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncertain: Vec<UncertainChange>,
}

impl JsonSchema for RpcError {
    fn schema_name() -> Cow<'static, str> {
        "RpcError".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let given = [
            generator.subschema_for::<permission::AlreadyAnswered>(),
            generator.subschema_for::<question::AlreadyAnswered>(),
        ];
        let other = generator.subschema_for::<ErrorData>();
        let error = |about: &str, code: Value, data: Value, required: &[&str]| {
            let message = json!({ "type": "string", "description": "What is wrong, in one line." });
            let properties = json!({ "code": code, "message": message, "data": data });
            json!({ "type": "object", "description": about, "properties": properties, "required": required })
        };
        let answered = Code::AlreadyAnswered as i32;
        let number = json!({ "type": "integer", "format": "int32", "not": { "const": answered } });
        json_schema!({
            "description": "An error of a method; `errors` has the names of the codes.",
            "oneOf": [
                error("Somebody else was first.", json!({ "const": answered }), json!({ "anyOf": given }), &["code", "message", "data"]),
                error("Any other.", number, json!(other), &["code", "message"]),
            ],
        })
    }
}

impl RpcError {
    /// An error without a hint.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code as i32, message: message.into(), data: None }
    }

    /// The same error with a hint at what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.data = Some(json!({ "hint": hint.into() }));
        self
    }

    /// The same error about changes that may be of an editor or another program.
    pub fn uncertain(mut self, uncertain: &[UncertainChange]) -> Self {
        let hint = self.get_hint().map(ToOwned::to_owned);
        self.data = Some(json!({ "hint": hint, "uncertain": uncertain }));
        self
    }

    /// The changes that may be of an editor or another program.
    pub fn get_uncertain(&self) -> Vec<UncertainChange> {
        let data = self.data.clone().and_then(|data| serde_json::from_value::<ErrorData>(data).ok());
        data.unwrap_or_default().uncertain
    }

    /// The hint, if there is one.
    pub fn get_hint(&self) -> Option<&str> {
        self.data.as_ref()?.get("hint")?.as_str()
    }

    /// The code, if it is one of linger's.
    pub fn code(&self) -> Option<Code> {
        Code::from_number(self.code)
    }
}

#[cfg(feature = "rpc")]
impl From<RpcError> for jsonrpsee::types::ErrorObjectOwned {
    fn from(error: RpcError) -> Self {
        Self::owned(error.code, error.message, error.data)
    }
}
