//! What a call is about and would change, as far as that can be told before it runs: for those who decide on it.

use linger_protocol::event::{FileChange, Location};

use super::calls::Runner;
use crate::store::blob::Held;
use crate::sys::disk;
use crate::tool::{Access, Call};

/// What a call is about and would change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preview {
    /// The files and directories, with the line where there is one.
    pub locations: Vec<Location>,
    /// What it would change, as the files are now.
    pub changes: Vec<FileChange>,
    /// The blobs that `changes` names.
    pub blobs: Vec<Held>,
}

impl Preview {
    /// What the arguments alone say.
    pub fn of(call: &dyn Call) -> Self {
        Self { locations: call.location().into_iter().collect(), ..Self::default() }
    }
}

impl Runner {
    /// Looks at what `call` would change at `target`; nothing to see is no error, as the call itself says what is wrong. Gives
    /// nothing if the disk does not answer.
    pub(super) async fn preview(
        &self,
        call: Box<dyn Call>,
        target: Option<&std::path::Path>,
    ) -> Option<(Box<dyn Call>, Preview)> {
        let mut preview = Preview::of(&*call);
        let (Access::Write(_), Some(target)) = (call.effects().access, target) else { return Some((call, preview)) };
        let (target, blobs) = (target.to_path_buf(), self.env.store.blobs.clone());
        let look = move || {
            let kept = call.preview(&target).and_then(|change| change.keep(&blobs).ok());
            (call, kept)
        };
        let (call, kept) = disk::probe(&self.workspace.cwd, disk::TIMEOUT, look).await?;
        if let Some(kept) = kept {
            preview.locations.iter_mut().for_each(|location| location.line = kept.line);
            (preview.changes, preview.blobs) = (vec![kept.change], kept.blobs);
        }
        Some((call, preview))
    }
}
