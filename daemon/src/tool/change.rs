//! A change of a file: its content before and after, where it begins, and the blobs that keep both.

use std::io;
use std::path::{Path, PathBuf};

use linger_protocol::event::{ChangeKind, FileChange};

use super::handle::{self, Entry};
use crate::store::blob::{Blobs, Held};

/// The longest file that is edited: it is in memory several times.
pub(super) const TEXT_MAX: u64 = 16 * 1024 * 1024;

/// The longest content that is kept, as long as the longest file that is edited; a longer one cannot be undone.
pub(crate) const KEPT_MAX: u64 = TEXT_MAX;

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// There is no file.
    Missing,
    /// The whole content.
    Known(Vec<u8>),
    /// It is too long, or cannot be read.
    Unknown,
}

impl Content {
    /// The content of the file at `entry`. Fails if that is no file.
    pub(crate) fn of(entry: &Entry) -> io::Result<Self> {
        match entry.read(KEPT_MAX) {
            Ok(Some(bytes)) => Ok(Self::Known(bytes)),
            Ok(None) => Ok(Self::Unknown),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Missing),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(Self::Unknown),
            Err(error) => Err(error),
        }
    }

    /// The bytes, if they are known.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Known(bytes) => Some(bytes),
            Self::Missing | Self::Unknown => None,
        }
    }

    fn keep(&self, blobs: &Blobs) -> io::Result<Option<Held>> {
        self.bytes().map(|bytes| blobs.put(bytes)).transpose()
    }
}

/// The change that a call makes to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The file, without links.
    pub path: PathBuf,
    /// Content before the call.
    pub before: Content,
    /// Content after the call.
    pub after: Content,
}

/// A change whose contents are stored.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptChange {
    /// The change, as an event has it.
    pub change: FileChange,
    /// The first line that differs, from 1; absent for a file that comes or goes.
    pub line: Option<u64>,
    /// The blobs of its contents, held until the event names them.
    pub blobs: Vec<Held>,
}

impl Change {
    /// A file gets a new content.
    pub fn written(path: &Path, before: Content, after: impl Into<Vec<u8>>) -> Self {
        Self { path: path.to_path_buf(), before, after: Content::Known(after.into()) }
    }

    /// Stores the contents.
    pub fn keep(&self, blobs: &Blobs) -> io::Result<KeptChange> {
        let kind = match (&self.before, &self.after) {
            (Content::Missing, _) => ChangeKind::Create,
            (_, Content::Missing) => ChangeKind::Delete,
            _ => ChangeKind::Edit,
        };
        let [before, after] = [self.before.keep(blobs)?, self.after.keep(blobs)?];
        let id = |held: &Option<Held>| held.as_ref().map(|held| held.id().clone());
        let path = self.path.clone();
        let bytes = before.iter().chain(&after).map(Held::size).sum();
        let before_mode = match &self.before {
            Content::Missing => None,
            _ => Entry::at(&path).and_then(|entry| entry.status()).ok().map(|status| status.st_mode & 0o7777),
        };
        let directories = match &self.before {
            // What they get is read when they go.
            Content::Missing => vec![0o755; handle::missing_above(&path)],
            _ => Vec::new(),
        };
        let (before, after, held) = (id(&before), id(&after), before.into_iter().chain(after).collect());
        let change = FileChange { path, kind, before, after, before_mode, directories, bytes, ..FileChange::default() };
        Ok(KeptChange { change, line: self.line(), blobs: held })
    }

    fn line(&self) -> Option<u64> {
        let (before, after) = (self.before.bytes()?, self.after.bytes()?);
        let same = before.iter().zip(after).take_while(|(before, after)| before == after);
        Some(same.filter(|(byte, _)| **byte == b'\n').count() as u64 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_its_kind_its_contents_and_its_first_line() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::of(&dir.path().join("linger.db"));
        let known = |text: &str| Content::Known(text.into());
        for (before, after, kind, line, kept) in [
            (Content::Missing, known("a"), ChangeKind::Create, None, 1),
            (known("a"), Content::Missing, ChangeKind::Delete, None, 1),
            (known("a\nb\nc\n"), known("a\nB\nc\n"), ChangeKind::Edit, Some(2), 2),
            (known("a\n"), known("a\nb\n"), ChangeKind::Edit, Some(2), 2),
            (Content::Unknown, known("a"), ChangeKind::Edit, None, 1),
        ] {
            let kept_change = Change { path: "/x".into(), before, after }.keep(&blobs).unwrap();
            let got = (kept_change.change.kind, kept_change.line, kept_change.blobs.len());
            assert_eq!(got, (kind, line, kept));
        }
    }
}
