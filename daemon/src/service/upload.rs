//! An upload of `artifact/*`: a file that a connection is writing, and that ends with it.

use linger_protocol::id::UploadId;
use sha2::Sha256;
use tempfile::NamedTempFile;

/// An artifact that is being put here.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) id: UploadId,
    pub(super) name: String,
    pub(super) content_type: String,
    /// Absent while a piece is written.
    pub(super) file: Option<NamedTempFile>,
    pub(super) hash: Sha256,
    pub(super) size: u64,
}
