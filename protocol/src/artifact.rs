//! Artifacts: files that clients put here, take back and name in prompts. Parameters and results of `artifact/*`.
//!
//! One is put in pieces: `artifact/begin`, `artifact/write` for each piece, `artifact/finish`. What was not finished ends with its
//! connection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{ArtifactId, UploadId};

/// The most bytes of one artifact: a long recording or a large archive, and no disk image.
pub const MAX_ARTIFACT: u64 = 64 << 20;

/// The most bytes of all artifacts together.
pub const MAX_ALL: u64 = 10_000_000_000;

/// The most bytes of a piece, before base64.
pub const MAX_PIECE: u64 = 1 << 20;

/// The prefix of an artifact's id in the text of a prompt.
pub const MENTION: &str = "artifact:";

/// The content type of bytes of which nothing was said.
pub const UNKNOWN_TYPE: &str = "application/octet-stream";

/// An artifact: a row of `artifact/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// Its id, a UUID.
    pub id: ArtifactId,
    /// The name of the file.
    pub name: String,
    /// Such as `text/plain`; as it was said, and nothing to rely on.
    pub content_type: String,
    /// Its bytes.
    pub size: u64,
    /// Their SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// When it was put here, in Unix milliseconds.
    pub created_at: u64,
    /// The client that put it here, or the name of its token's grant.
    pub by: String,
}

/// `artifact/begin`: begins to put an artifact here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BeginArtifact")]
pub struct Begin {
    /// The name of the file, without directories; `artifact` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Such as `image/png`; `application/octet-stream` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// How many bytes will come, if that is known: what does not fit is refused before it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// The result of `artifact/begin`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Begun {
    /// The upload that takes the pieces; it belongs to the connection.
    pub upload: UploadId,
}

/// `artifact/write`: the next piece.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WriteArtifact")]
pub struct Write {
    /// As `artifact/begin` gave it.
    pub upload: UploadId,
    /// How many bytes went before: a piece that is sent twice is refused.
    pub offset: u64,
    /// The bytes in base64; at most 1 MiB of them.
    pub data: String,
}

impl std::fmt::Debug for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Write").field("upload", &self.upload).field("offset", &self.offset).finish_non_exhaustive()
    }
}

/// The result of `artifact/write`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Written {
    /// How many bytes there are: the next `offset`.
    pub size: u64,
}

/// `artifact/finish`: makes an artifact of what was written; it is on disk when this is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FinishArtifact")]
pub struct Finish {
    /// As `artifact/begin` gave it.
    pub upload: UploadId,
    /// The SHA-256 that the bytes should have, in hexadecimal digits; others are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// A request that names an artifact and nothing else: `artifact/get` and `artifact/delete`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NamedArtifact")]
pub struct Named {
    /// A UUID, from `artifact/finish` or `artifact/list`.
    pub id: ArtifactId,
}

/// `artifact/read`: its bytes, piece by piece.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ReadArtifact")]
pub struct Read {
    /// A UUID, from `artifact/finish` or `artifact/list`.
    pub id: ArtifactId,
    /// Where the piece begins; 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// How many bytes are wanted; a piece has 1 MiB at most, and so much when this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

/// `artifact/list`: the artifacts, the latest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ListArtifacts")]
pub struct List {
    /// At most this many; 1000 when absent, and never more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only those that come after this one: the last row of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
}

/// A row of `artifact/list`, of which these two fields count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BeforeArtifact")]
pub struct Before {
    /// When it was put here, in Unix milliseconds.
    pub created_at: u64,
    /// Orders rows of the same time.
    pub id: ArtifactId,
}
