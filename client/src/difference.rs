//! The file changes that a call would make, for its question: fetched from the daemon and compared here.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use linger_protocol::blob::Get;
use linger_protocol::event::{ChangeKind, FileChange};
use linger_protocol::id::BlobId;
use linger_protocol::method::BlobGet;

use crate::connect::Client;
use crate::render::diff::Difference;
use crate::render::style::Style;
use crate::terminal::clean_exact_line;

/// The bytes of a call's changes that are compared here; of larger ones the arguments are shown.
const MAX_COMPARED: u64 = 2 << 20;

/// The changes that a call makes, file by file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Differences(Vec<(PathBuf, ChangeKind, Difference)>);

impl Differences {
    /// Compares these changes; empty unless all of them can be fetched and compared: then the arguments are shown.
    pub(crate) fn of(client: &mut Client, changes: Vec<FileChange>) -> Self {
        if changes.iter().map(|change| change.bytes).fold(0, u64::saturating_add) > MAX_COMPARED {
            return Self::default();
        }
        let each = changes.into_iter().map(|change| {
            let FileChange { path, kind, before, after, .. } = change;
            let mut text = |blob: Option<BlobId>| blob.map_or(Some(None), |blob| text_of_blob(client, blob).map(Some));
            let (before, after) = (text(before)?, text(after)?);
            // Of a file whose content is not kept nothing can be compared.
            let is_known =
                before.is_some() == (kind != ChangeKind::Create) && after.is_some() == (kind != ChangeKind::Delete);
            let difference = Difference::of(before.as_deref(), after.as_deref().unwrap_or_default());
            is_known.then_some((path, kind, difference))
        });
        Self(each.collect::<Option<Vec<_>>>().unwrap_or_default())
    }

    /// Whether there is nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many lines it has.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|(.., difference)| difference.len()).sum()
    }

    /// The lines for people; of several files each with its name, below `cwd` without that. What does not fit into `[head, tail]`
    /// is left out, and of several files from where there is no more room.
    pub(crate) fn text(&self, style: &Style, cwd: &Path, [head, tail]: [usize; 2]) -> String {
        if let [(.., difference)] = self.0.as_slice() {
            return format!("    {}\n{}", difference.summary(), difference.text(style, [head, tail]));
        }
        let (mut out, mut room) = (String::new(), head.saturating_add(tail));
        for (path, kind, difference) in &self.0 {
            let path = clean_exact_line(&linger_protocol::path::shown(path.strip_prefix(cwd).unwrap_or(path)));
            let said = match kind {
                ChangeKind::Delete => "deleted".to_owned(),
                _ => difference.summary(),
            };
            out.push_str(&format!("    {}: {said}\n", style.bold(&path)));
            out.push_str(&difference.text(style, [room, 0]));
            room = room.saturating_sub(difference.len());
        }
        out
    }
}

/// A blob that is text, whole.
fn text_of_blob(client: &mut Client, blob: BlobId) -> Option<String> {
    let (mut bytes, mut offset) = (Vec::new(), Some(0));
    while offset.is_some() {
        let piece = client.call(&BlobGet(Get { blob: blob.clone(), offset, length: None })).ok()?;
        bytes.extend(BASE64.decode(piece.data).ok()?);
        offset = piece.next;
        if bytes.len() as u64 > MAX_COMPARED {
            return None;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_files_are_shown_one_after_the_other_while_there_is_room() {
        let of = |path: &str, kind, before: Option<&str>, after: &str| {
            (PathBuf::from(path), kind, Difference::of(before, after))
        };
        let edit = of("/w/src/a.rs", ChangeKind::Edit, Some("one\ntwo\n"), "one\n2\n");
        let gone = of("/w/b\u{1b}", ChangeKind::Delete, Some("x\ny\n"), "");
        let both = Differences(vec![edit.clone(), gone]);
        let style = Style { color: false, unicode: true };
        let whole = both.text(&style, Path::new("/w"), [usize::MAX, 0]);
        let first = "    src/a.rs: replaces 1 line of 2\n    @@ line 1 @@\n     one\n    -two\n    +2\n";
        assert_eq!(whole, format!("{first}    b\\u{{1b}}: deleted\n    @@ line 1 @@\n    -x\n    -y\n"));
        assert_eq!(both.len(), 7);
        assert_eq!(
            both.text(&style, Path::new("/w"), [4, 0]),
            format!("{first}    b\\u{{1b}}: deleted\n    (3 lines are not shown)\n")
        );
        let one = Differences(vec![edit]);
        assert!(one.text(&style, Path::new("/w"), [30, 10]).starts_with("    replaces 1 line of 2\n"));
    }
}
