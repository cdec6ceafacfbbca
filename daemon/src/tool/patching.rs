//! Which of `edit`, `write` and `apply_patch` a session has: some models change files by patches.

use super::types::SessionTraits;

/// The name of the tool that replaces text in a file.
pub(super) const EDIT: &str = "edit";

/// The name of the tool that writes a whole file.
pub(super) const WRITE: &str = "write";

/// The name of the tool that applies a patch to several files.
pub(super) const APPLY_PATCH: &str = "apply_patch";

/// Whether a session has `apply_patch` in place of `edit` and `write`. It can do what the two can together, so a list of tools
/// stands for it only if it has both.
pub(super) fn has_patches(session: &SessionTraits<'_>) -> bool {
    let Some(named) = session.only else { return session.writes_patches };
    let has = |name: &str| named.iter().any(|it| it == name);
    has(APPLY_PATCH) || session.writes_patches && has(EDIT) && has(WRITE)
}
