//! Previews of calls, for whoever decides on them: the files, and the changes as far as they are known before a call runs.

use std::io;

use crate::session::calls::Runner;
use crate::session::messages::Preview;
use crate::sys::disk;
use crate::tool::change::KeptChange;
use crate::tool::{Access, Call, Targets};

impl Runner {
    /// Looks at what `call` would change at its `targets`; nothing to see is no error, as the call itself says what is wrong. Gives
    /// nothing if the disk does not answer.
    pub(super) async fn preview(&self, call: Box<dyn Call>, targets: &Targets) -> Option<(Box<dyn Call>, Preview)> {
        let mut preview = Preview::of(&*call);
        let writes = call.effects().access.each().iter().any(|access| matches!(access, Access::Write(_)));
        if !writes || targets.is_empty() {
            return Some((call, preview));
        }
        let (targets, blobs) = (targets.clone(), self.services.store.blobs.clone());
        let probe = move || {
            let kept: io::Result<Vec<KeptChange>> =
                call.preview(&targets).iter().map(|change| change.keep(&blobs)).collect();
            for kept in kept.unwrap_or_default() {
                preview.add(kept, &targets);
            }
            preview.refusal = call.refusal(&targets);
            (call, preview)
        };
        disk::probe(&self.workspace.cwd, disk::TIMEOUT, probe).await
    }
}
