//! Files that a session's model has seen: which content, so that no unknown content is overwritten; and which whole
//! outputs its results named, so that it may read those.
//!
//! In memory, by session; after a restart of the daemon a file counts as unread.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linger_protocol::id::BlobId;
use sha2::{Digest as _, Sha256};

use super::change::Content;
use super::handle::Entry;
use super::text;
use crate::store::blob::Held;

/// The most files of one session that are remembered, some hundred bytes each; of more, any is forgotten, and has to be read again.
const MAX_FILES: usize = 4096;

/// The most outputs of one session that are remembered.
const MAX_OUTPUTS: usize = 1024;

/// Bytes of a change shown to another session's model, at most.
const MAX_WHAT: usize = 1 << 10;

/// How long another session's change of a file is reported: about as long as agents work at the same time.
const LATELY: Duration = Duration::from_secs(3600);

/// The hash of a content.
pub(super) type Hash = [u8; 32];

/// The contents that one session has seen; all clones share them.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    inner: Arc<Mutex<SeenState>>,
    writers: Writers,
    /// The session, as other sessions are told of it.
    who: Arc<str>,
}

/// Who wrote which content last, over all sessions; clones are one.
#[derive(Clone, Debug, Default)]
pub struct Writers(Arc<Mutex<LastWrites>>);

/// For each file the hash of its last content, and who wrote that.
type LastWrites = HashMap<PathBuf, LastWrite>;

/// The last time that a file was written.
#[derive(Clone, Debug)]
struct LastWrite {
    /// Absent for a file that was removed.
    hash: Option<Hash>,
    who: Arc<str>,
    at: Instant,
    /// The beginning of what it changed.
    what: Box<str>,
}

impl Writers {
    /// A record for the session that other sessions know by this name.
    pub fn seen_by(&self, who: &str) -> Seen {
        Seen { inner: Arc::default(), writers: self.clone(), who: who.into() }
    }

    fn map(&self) -> MutexGuard<'_, LastWrites> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that another session wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherWrite {
    /// It is as that session left it.
    Left,
    /// Something has changed it since.
    Changed,
}

#[derive(Debug, Default)]
struct SeenState {
    files: HashMap<PathBuf, Hash>,
    outputs: HashMap<PathBuf, BlobId>,
}

impl PartialEq for Seen {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Seen {}

impl Seen {
    fn inner(&self) -> MutexGuard<'_, SeenState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing but this holds it.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.inner) == 1
    }

    /// The model knows no file any more.
    pub fn forget(&self) {
        self.inner().files.clear();
    }

    /// The model knows the file at `path`, which has no link, with the content that has this hash.
    pub(super) fn knows(&self, path: &Path, hash: Hash) {
        let mut inner = self.inner();
        make_room(&mut inner.files, MAX_FILES);
        inner.files.insert(path.to_path_buf(), hash);
    }

    /// As [`Seen::knows`], of what was written, with what that changed. If another session wrote the file shortly before, gives
    /// what the model is told of it.
    pub(super) fn wrote(&self, path: &Path, content: &[u8], diff: Option<&str>) -> Option<String> {
        let hash: Hash = Sha256::digest(content).into();
        self.knows(path, hash);
        let what = text::head(diff.unwrap_or_default(), MAX_WHAT).into();
        let mut writers = self.writers.map();
        make_room(&mut writers, MAX_FILES);
        let own = LastWrite { hash: Some(hash), who: self.who.clone(), at: Instant::now(), what };
        let before = writers.insert(path.to_path_buf(), own)?;
        if before.who == self.who || before.at.elapsed() > LATELY {
            return None;
        }
        let (who, seconds) = (before.who, before.at.elapsed().as_secs());
        let what = match before.what.trim_end() {
            "" => String::new(),
            what => format!(" Its change was:\n{what}\n"),
        };
        Some(format!("[{who} wrote this file too, {seconds} s ago; check that both changes fit together.{what}]"))
    }

    /// The session, and not its model, has left the file at `path` with this content, or without one: an undo, a patch that
    /// removes it.
    pub fn left(&self, path: &Path, content: Option<&[u8]>) {
        let hash = content.map(|content| Sha256::digest(content).into());
        let mut writers = self.writers.map();
        make_room(&mut writers, MAX_FILES);
        let own = LastWrite { hash, who: self.who.clone(), at: Instant::now(), what: Box::default() };
        writers.insert(path.to_path_buf(), own);
    }

    /// Whether another session has written the file at `path` since then; and whether it is as that one left it. Blocks.
    pub fn other_wrote(&self, path: &Path, since: Instant) -> Option<OtherWrite> {
        let hash = {
            let writers = self.writers.map();
            writers.get(path).filter(|last| last.who != self.who && last.at >= since)?.hash
        };
        let now = match Entry::at(path).and_then(|entry| Content::of(&entry)) {
            Ok(Content::Known(bytes)) => Some(<Hash>::from(Sha256::digest(bytes))),
            Ok(Content::Missing) => None,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Ok(Content::Unknown) | Err(_) => return Some(OtherWrite::Changed),
        };
        Some(if now == hash { OtherWrite::Left } else { OtherWrite::Changed })
    }

    /// Fails unless the model knows this content of the file at `path`, or there is none. The error is for the model.
    pub(super) fn check(&self, path: &Path, now: &Content) -> Result<(), String> {
        let known = self.inner().files.get(path).copied();
        match (now, known) {
            (Content::Missing, _) => Ok(()),
            (Content::Unknown, _) => Err("it is longer than 16 MiB, or cannot be read".to_owned()),
            (Content::Known(bytes), None) => Err(match self.writer(path, &Sha256::digest(bytes).into()) {
                Some(who) => format!("{who} has written it, and you have not read it; read it first"),
                None => "you have not read it; read it first".to_owned(),
            }),
            (Content::Known(bytes), Some(known)) if known == <Hash>::from(Sha256::digest(bytes)) => Ok(()),
            (Content::Known(bytes), Some(_)) => Err(match self.writer(path, &Sha256::digest(bytes).into()) {
                Some(who) => format!("{who} has changed it since you read or wrote it; read it again"),
                None => "it has changed since you read or wrote it; read it again".to_owned(),
            }),
        }
    }

    /// The other session that wrote this content.
    fn writer(&self, path: &Path, now: &Hash) -> Option<Arc<str>> {
        let writers = self.writers.map();
        let last = writers.get(path).filter(|last| last.hash == Some(*now) && last.who != self.who)?;
        Some(last.who.clone())
    }

    /// A result names this blob as the whole of an output.
    pub fn output(&self, blob: &Held) {
        let Some(path) = blob.path() else { return };
        let mut inner = self.inner();
        make_room(&mut inner.outputs, MAX_OUTPUTS);
        inner.outputs.insert(path, blob.id().clone());
    }

    /// The file with an output that `text` names, by its path or as a blob.
    pub(super) fn output_named(&self, text: &str) -> Option<PathBuf> {
        let inner = self.inner();
        let by_path = inner.outputs.get_key_value(Path::new(text)).map(|(path, _)| path.clone());
        by_path.or_else(|| Some(inner.outputs.iter().find(|(_, id)| id.as_str() == text)?.0.clone()))
    }
}

fn make_room<V>(map: &mut HashMap<PathBuf, V>, most: usize) {
    if map.len() >= most
        && let Some(any) = map.keys().next().cloned()
    {
        map.remove(&any);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::blob::Blobs;

    #[test]
    fn only_a_known_content_may_be_replaced() {
        let (seen, path) = (Seen::default(), Path::new("/a"));
        let known = |text: &str| Content::Known(text.into());
        assert_eq!(seen.check(path, &Content::Missing), Ok(()));
        assert!(seen.check(path, &known("a")).is_err());
        assert_eq!(seen.wrote(path, b"a", None), None);
        assert_eq!(seen.check(path, &known("a")), Ok(()));
        assert!(seen.check(path, &known("b")).unwrap_err().contains("changed"));
        assert!(seen.check(path, &Content::Unknown).is_err());
        for n in 0..2 * MAX_FILES {
            seen.wrote(Path::new(&format!("/{n}")), b"", None);
        }
        assert_eq!(seen.inner().files.len(), MAX_FILES);
    }

    #[test]
    fn a_session_is_told_which_other_one_has_changed_its_file() {
        let writers = Writers::default();
        let (one, two) = (writers.seen_by("session s1"), writers.seen_by("session s2"));
        let (path, known) = (Path::new("/a"), |text: &str| Content::Known(text.into()));
        assert_eq!(one.wrote(path, b"a", Some("+a\n")), None);
        assert_eq!(
            two.check(path, &known("a")).unwrap_err(),
            "session s1 has written it, and you have not read it; read it first"
        );
        two.knows(path, Sha256::digest(b"a").into());
        let told = two.wrote(path, b"b", None).unwrap();
        assert!(
            told.starts_with("[session s1 wrote this file too, ") && told.ends_with("Its change was:\n+a\n]"),
            "{told}"
        );
        assert_eq!(two.wrote(path, b"b", None), None, "once");
        assert_eq!(
            one.check(path, &known("b")).unwrap_err(),
            "session s2 has changed it since you read or wrote it; read it again"
        );
        assert!(one.check(path, &known("c")).unwrap_err().starts_with("it has changed since"), "a person did");
        assert_eq!(two.check(path, &known("b")), Ok(()));
    }

    #[test]
    fn outputs_of_the_session_alone_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::of(&dir.path().join("linger.db"));
        let (held, other) = (blobs.put(b"output").unwrap(), blobs.put(b"other").unwrap());
        let seen = Seen::default();
        seen.output(&held);
        let path = held.path().unwrap();
        assert_eq!(seen.output_named(&path.to_string_lossy()), Some(path.clone()));
        assert_eq!(seen.output_named(held.id().as_str()), Some(path));
        assert_eq!(seen.output_named(other.id().as_str()), None);
    }
}
