//! The configuration is read again when its file has changed, and what follows from it is done.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Services;
use crate::config::{AfterRestart, Changes, Reload};
use crate::sys::disk;

/// How long a configuration that was emptied, or is gone, stays in force: an editor may be held up between emptying and writing
/// it, and in between no rule would be in force.
const EMPTIED: Duration = Duration::from_secs(1);

/// Reads the configuration again when its file has changed.
pub async fn watch(services: Arc<Services>, mut changes: Changes) {
    loop {
        let notices = changes.take_notices();
        services.config.set_watched(changes.trouble(), notices);
        let Some(next) = changes.next().await else { return };
        changes = next;
        let config = services.config.clone();
        if tokio::task::spawn_blocking(move || config.is_emptied()).await.unwrap_or(false) {
            tokio::time::sleep(EMPTIED).await;
        }
        let config = services.config.clone();
        match tokio::task::spawn_blocking(move || config.reload()).await {
            Ok(Reload::Unchanged) => {}
            Ok(Reload::Changed) => tracing::info!(target: "config", "read again"),
            Ok(Reload::Broken(error)) => {
                tracing::error!(target: "config", %error, "cannot be used; the last good one stays")
            }
            Err(error) => tracing::error!(target: "config", %error, "cannot be read again"),
        }
        was_read(&services);
    }
}

/// Waits until a configuration that has changed is read: a client that comes may have written it a moment ago. Where nothing
/// has changed, it touches no file.
pub async fn refresh(services: &Services) {
    if !services.config.may_have_changed() {
        return;
    }
    let (mut changed, place) = (services.providers.changed.subscribe(), &services.places.config);
    let is_read = async {
        let has_changed = || {
            let config = services.config.clone();
            disk::probe(place, disk::SHORT_TIMEOUT, move || config.has_changed())
        };
        // The watcher leaves the file alone for a moment first: in between, no rule would be in force.
        while has_changed().await == Some(true) && changed.changed().await.is_ok() {}
    };
    if timeout(disk::SHORT_TIMEOUT, is_read).await.is_err() {
        // Some file systems tell of no changes.
        let config = services.config.clone();
        disk::probe(place, disk::SHORT_TIMEOUT, move || config.reload()).await;
        was_read(services);
    }
}

/// Looks again at everything that follows from the configuration.
fn was_read(services: &Services) {
    services.providers.read_own_keys();
    services.providers.changed.send_replace(());
    if services.config.after_restart() == Some(AfterRestart::Resume) {
        tokio::spawn(services.registry.clone().resume_unconfigured());
    }
}
