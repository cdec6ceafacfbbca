//! Blobs: parameters and result of `blob/get`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::BlobId;

/// `blob/get`: the bytes of an image or of a whole output, piece by piece.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Get {
    /// As an event names it.
    pub blob: BlobId,
    /// Where the piece begins; 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// How many bytes are wanted; a piece has 1 MiB at most, and so much when this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

/// A piece of a blob.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Piece {
    /// The bytes in base64.
    pub data: String,
    /// How many bytes the whole blob has.
    pub size: u64,
    /// The `offset` of the next piece; absent when this is the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}
