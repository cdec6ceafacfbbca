//! Reloads the configuration when its file has changed, and applies it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Services;
use crate::config::{AfterRestart, Changes, Reload};
use crate::sys::disk;

/// The extra delay when the file is empty or gone: a slow editor may be about to write it, and reading it now would drop all
/// rules.
const EMPTIED: Duration = Duration::from_secs(1);

/// Reloads the configuration whenever its file has changed; ends when no change can come any more.
pub async fn watch(services: Arc<Services>, mut changes: Changes) {
    loop {
        let notices = changes.take_notices();
        services.config.set_watched(changes.error(), notices);
        let Some(next) = changes.next().await else { return };
        changes = next;
        let config = services.config.clone();
        if tokio::task::spawn_blocking(move || config.is_emptied()).await.unwrap_or(false) {
            tokio::time::sleep(EMPTIED).await;
        }
        let config = services.config.clone();
        match tokio::task::spawn_blocking(move || config.reload()).await {
            Ok(Reload::Unchanged) => {}
            Ok(Reload::Changed) => tracing::info!(target: "config", "reloaded"),
            Ok(Reload::Broken(error)) => {
                tracing::error!(target: "config", %error, "broken; the last good one stays in use")
            }
            Err(error) => tracing::error!(target: "config", %error, "cannot reload"),
        }
        apply(&services);
    }
}

/// Waits until a changed configuration is reloaded: a client that connects may have just written it. If nothing has changed, it
/// touches no file.
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
        // The watcher reloads after a delay, so that it does not read a half-written file.
        while has_changed().await == Some(true) && changed.changed().await.is_ok() {}
    };
    if timeout(disk::SHORT_TIMEOUT, is_read).await.is_err() {
        // Some file systems report no changes.
        let config = services.config.clone();
        disk::probe(place, disk::SHORT_TIMEOUT, move || config.reload()).await;
        apply(services);
    }
}

/// Applies the configuration: keys, and turns that wait for it.
fn apply(services: &Services) {
    services.providers.read_own_keys();
    services.providers.changed.send_replace(());
    if services.config.after_restart() == Some(AfterRestart::Resume) {
        tokio::spawn(services.registry.clone().resume_unconfigured());
    }
}
