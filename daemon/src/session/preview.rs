//! What a call is about and would change, as far as that can be told before it runs: for those who decide on it.

use std::io;

use linger_protocol::event::{FileChange, Location};

use super::calls::Runner;
use crate::store::blob::Held;
use crate::sys::disk;
use crate::tool::change::KeptChange;
use crate::tool::{Access, Call, Targets};

/// Sets the lines of the locations whose files change.
pub fn place(locations: &mut [Location], changes: &[KeptChange], targets: &Targets) {
    for location in locations {
        let target = targets.of(&location.path).unwrap_or(&location.path);
        let change = changes.iter().find(|kept| kept.change.path == target);
        change.into_iter().for_each(|kept| location.line = kept.line);
    }
}

/// What a call is about and would change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preview {
    /// The files and directories, with the line where there is one.
    pub locations: Vec<Location>,
    /// What it would change, as the files are now.
    pub changes: Vec<FileChange>,
    /// The blobs that `changes` names.
    pub blobs: Vec<Held>,
    /// Why it would change nothing, as the files are now.
    pub refusal: Option<String>,
}

impl Preview {
    /// What the arguments alone say.
    pub fn of(call: &dyn Call) -> Self {
        Self { locations: call.locations(), ..Self::default() }
    }

    fn add(&mut self, kept: KeptChange, targets: &Targets) {
        place(&mut self.locations, std::slice::from_ref(&kept), targets);
        self.changes.push(kept.change);
        self.blobs.extend(kept.blobs);
    }
}

impl Runner {
    /// Looks at what `call` would change at its `targets`; nothing to see is no error, as the call itself says what is wrong. Gives
    /// nothing if the disk does not answer.
    pub(super) async fn preview(&self, call: Box<dyn Call>, targets: &Targets) -> Option<(Box<dyn Call>, Preview)> {
        let mut preview = Preview::of(&*call);
        let writes = call.effects().access.each().iter().any(|access| matches!(access, Access::Write(_)));
        if !writes || targets.is_empty() {
            return Some((call, preview));
        }
        let (targets, blobs) = (targets.clone(), self.env.store.blobs.clone());
        let look = move || {
            let kept: io::Result<Vec<KeptChange>> =
                call.preview(&targets).iter().map(|change| change.keep(&blobs)).collect();
            kept.unwrap_or_default().into_iter().for_each(|kept| preview.add(kept, &targets));
            preview.refusal = call.refusal(&targets);
            (call, preview)
        };
        disk::probe(&self.workspace.cwd, disk::TIMEOUT, look).await
    }
}
