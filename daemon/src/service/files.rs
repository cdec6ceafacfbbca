//! Markdown files of the user and of workspaces: what has changed is read, asked about, and said to the sessions.
//!
//! One task owns the watcher and what it knows of the files; it ends with the daemon. It wakes when `notify` has seen a change, when a
//! session is loaded in a directory that is not watched yet, and when a session has met changed files of the user's own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linger_protocol::agent::Status;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use super::{Services, in_force};
use crate::agent::watch::{SETTLE, Watch};
use crate::agent::{FileState, Library, Places};
use crate::sys::disk;
use crate::sys::task;

/// The most directories whose files are watched; beyond that the first one is no longer, and its changes count unsaid.
const MAX_PLACES: usize = 64;

/// How long no change is looked at after the files were read, as a multiple of the time that took, and at most: a command that makes
/// thousands of them takes a tenth of a processor here, and not all of one.
const REST: u32 = 9;
const MAX_REST: Duration = Duration::from_secs(20);

/// The most files that a notice names: a line.
const NAMED: usize = 6;

/// A place whose files are watched.
struct WatchedPlace {
    places: Places,
    /// The files as they were read last.
    files: BTreeMap<PathBuf, FileState>,
}

/// Reads the user's own files: those that widen are to be confirmed.
pub(super) async fn survey(services: &Services) {
    let places = services.env().toolbox.own_places();
    load(services, &places).await;
}

async fn load(services: &Services, places: &Places) -> Option<Library> {
    let (config, of) = (services.config.clone(), places.clone());
    let library = disk::probe(&places.cwd, disk::TIMEOUT, move || Library::load(&config, &of)).await?;
    services.env().toolbox.install(&library, &places.root);
    Some(library)
}

/// Watches the files of the user, and of the `wanted` places.
pub async fn watch(services: Arc<Services>, mut wanted: mpsc::UnboundedReceiver<Places>) {
    let mut watch = Watch::default();
    let changed = watch.changed();
    let mut known = Vec::new();
    let mut rested = Instant::now();
    let own = services.env().toolbox.own_places();
    watch = add(&services, own, watch, &mut known).await;
    loop {
        tokio::select! {
            places = wanted.recv() => match places {
                Some(places) if known.iter().any(|it: &WatchedPlace| it.places == places) => {}
                Some(places) => {
                    if known.len() >= MAX_PLACES {
                        // The first one is the user's.
                        known.remove(1);
                    }
                    watch = add(&services, places, watch, &mut known).await;
                }
                None => return,
            },
            () = changed.notified() => {
                tokio::time::sleep_until(rested.max(Instant::now() + SETTLE)).await;
                let began = Instant::now();
                watch = again(watch, &known).await;
                review(&services, &mut known).await;
                rested = Instant::now() + rest(began.elapsed());
            }
            () = services.config.own_changed() => in_force::apply(&services).await,
        }
    }
}

fn rest(worked: Duration) -> Duration {
    worked.saturating_mul(REST).min(MAX_REST)
}

/// Watches one more place. The files are read after that, so that no change is missed.
async fn add(services: &Services, places: Places, watch: Watch, known: &mut Vec<WatchedPlace>) -> Watch {
    known.push(WatchedPlace { places: places.clone(), files: BTreeMap::new() });
    let watch = again(watch, known).await;
    let library = load(services, &places).await;
    if let (Some(library), Some(last)) = (library, known.last_mut()) {
        last.files = library.state();
    }
    watch
}

async fn again(mut watch: Watch, known: &[WatchedPlace]) -> Watch {
    let places: Vec<Places> = known.iter().map(|it| it.places.clone()).collect();
    // It blocks on the disk.
    let watched = task::spawn_blocking(move || {
        watch.again(&places);
        watch
    });
    watched.await.unwrap_or_default()
}

/// Reads the files again, and says what has changed.
async fn review(services: &Arc<Services>, known: &mut [WatchedPlace]) {
    // A file of the user is in every place, and one of a workspace in all of its directories.
    let mut said = BTreeSet::new();
    for (at, known) in known.iter_mut().enumerate() {
        let Some(library) = load(services, &known.places).await else { continue };
        let now = library.state();
        let before = std::mem::replace(&mut known.files, now);
        let root = (at > 0).then_some(known.places.root.as_path());
        let is_here = |path: &Path| root.is_none_or(|root| path.starts_with(root));
        let mut changes = changes(&before, &known.files);
        changes.retain(|path, _| is_here(path) && said.insert(path.clone()));
        if !changes.is_empty() {
            services.registry.files_changed(root, &line(changes.into_values()));
        }
    }
}

/// The differences, by the path of the file.
fn changes(before: &BTreeMap<PathBuf, FileState>, now: &BTreeMap<PathBuf, FileState>) -> BTreeMap<PathBuf, String> {
    let mut changes = BTreeMap::new();
    for (path, file) in now {
        let verb = match before.get(path) {
            Some(before) if before == file => continue,
            Some(_) => "changed",
            None => "new",
        };
        let note = match file.status {
            Status::Waits => ", not in force yet",
            Status::Broken => ", broken",
            Status::Hidden => ", hidden by another",
            Status::Active | Status::Unknown => "",
        };
        changes.insert(path.clone(), format!("{} ({verb}{note})", file.what));
    }
    let gone = before.iter().filter(|(path, _)| !now.contains_key(*path));
    changes.extend(gone.map(|(path, file)| (path.clone(), format!("{} (removed)", file.what))));
    changes
}

fn line(changes: impl ExactSizeIterator<Item = String>) -> String {
    let more = changes.len().saturating_sub(NAMED);
    let named: Vec<String> = changes.take(NAMED).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("files changed: {}{more}; this counts from the next prompt", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_makes_many_files_takes_a_tenth_of_the_time_and_a_single_change_is_seen_at_once() {
        assert!(rest(Duration::from_millis(10)) < SETTLE);
        assert_eq!(rest(Duration::from_secs(1)), Duration::from_secs(9));
        assert_eq!(rest(Duration::from_secs(100)), MAX_REST);
    }
}
