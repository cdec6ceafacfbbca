//! What wakes, and what does not: real files and links under a real watcher.

use std::path::Path;
use std::time::Duration;

use super::tests::house;
use super::watch::Changes;

/// How long a change may take to arrive on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// The same wake-ups, after one that must come.
async fn woken(changes: Changes, why: &str) -> Changes {
    let next = tokio::time::timeout(SOON, changes.next()).await;
    let Ok(Some(changes)) = next else { panic!("nothing wakes: {why}") };
    assert_eq!(changes.error(), None, "{why}");
    changes
}

/// Longer than a change takes to arrive.
const QUIET: Duration = Duration::from_millis(400);

#[tokio::test]
async fn a_file_that_appears_changes_or_is_put_in_place_of_another_wakes() {
    let house = house();
    std::fs::remove_dir(&house.places.config).unwrap();
    let changes = Changes::of(&house.places.config_file());
    house.write("max_steps = 1");
    let changes = woken(changes, "it appears").await;
    house.write("max_steps = 2");
    let changes = woken(changes, "it changes").await;
    let new = house.places.config.join("config.toml~");
    std::fs::write(&new, "max_steps = 3").unwrap();
    std::fs::rename(&new, house.places.config_file()).unwrap();
    let changes = woken(changes, "it is replaced").await;
    std::fs::remove_file(house.places.config_file()).unwrap();
    woken(changes, "it vanishes").await;
}

#[tokio::test]
async fn nothing_wakes_while_nothing_happens_to_the_file() {
    let house = house();
    house.write("");
    let changes = Changes::of(&house.places.config_file());
    house.open().reload();
    std::fs::write(house.places.config.join("other"), "x").unwrap();
    assert!(tokio::time::timeout(QUIET, changes.next()).await.is_err());
}

#[tokio::test]
async fn a_directory_that_is_exchanged_removed_or_made_again_wakes() {
    let house = house();
    house.write("");
    let changes = Changes::of(&house.places.config_file());
    let old = house.places.config.with_file_name("old");
    std::fs::rename(&house.places.config, &old).unwrap();
    let changes = woken(changes, "the directory is gone").await;
    std::fs::create_dir(&house.places.config).unwrap();
    let changes = woken(changes, "it is made again").await;
    house.write("max_steps = 1");
    let changes = woken(changes, "the new one has a file").await;
    std::fs::remove_dir_all(&house.places.config).unwrap();
    let changes = woken(changes, "the directory is removed").await;
    std::os::unix::fs::symlink(&old, &house.places.config).unwrap();
    let changes = woken(changes, "it is a link now").await;
    std::fs::write(old.join("config.toml"), "max_steps = 2").unwrap();
    let changes = woken(changes, "the file behind the link changes").await;
    std::fs::rename(&old, old.with_file_name("older")).unwrap();
    woken(changes, "what the link leads to is gone").await;
}

#[tokio::test]
async fn the_files_that_links_lead_to_are_watched_wherever_the_links_turn() {
    let house = house();
    let at = |name: &str| house.places.config.with_file_name(name);
    for name in ["dotfiles", "others"] {
        std::fs::create_dir(at(name)).unwrap();
        std::fs::write(at(name).join("linger.toml"), "").unwrap();
    }
    house.write("");
    let changes = Changes::of(&house.places.config_file());
    // As `ln -sf` does it.
    let turn = |target: &Path, link: &Path| {
        let new = link.with_extension("new");
        std::os::unix::fs::symlink(target, &new).unwrap();
        std::fs::rename(&new, link).unwrap();
    };
    turn(&at("dotfiles").join("linger.toml"), &house.places.config_file());
    let changes = woken(changes, "the file is a link now").await;
    std::fs::write(at("dotfiles").join("linger.toml"), "max_steps = 1").unwrap();
    let changes = woken(changes, "what it leads to changes").await;
    turn(Path::new("../others/linger.toml"), &house.places.config_file());
    let changes = woken(changes, "the link leads elsewhere").await;
    std::fs::write(at("others").join("linger.toml"), "max_steps = 2").unwrap();
    let changes = woken(changes, "what it leads to now changes").await;
    turn(&at("dotfiles").join("linger.toml"), &at("others").join("linger.toml"));
    let changes = woken(changes, "a link on the way").await;
    std::fs::write(at("dotfiles").join("linger.toml"), "max_steps = 3").unwrap();
    woken(changes, "what two links lead to").await;
}

#[tokio::test]
async fn links_that_lead_to_each_other_are_followed_to_an_end() {
    let house = house();
    std::os::unix::fs::symlink("other.toml", house.places.config_file()).unwrap();
    std::os::unix::fs::symlink("config.toml", house.places.config.join("other.toml")).unwrap();
    let changes = Changes::of(&house.places.config_file());
    std::fs::remove_file(house.places.config_file()).unwrap();
    woken(changes, "the circle is broken").await;
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn whatever_changes_the_file_is_in_the_queue_as_soon_as_it_is_done() {
    let house = house();
    let file = house.places.config_file();
    let at = |name: &str| house.places.config.with_file_name(name);
    let has_notice = |what: &dyn Fn()| {
        let mut notices = Changes::of(&file).take_notices().unwrap();
        assert!(!notices.has_notice(), "nothing has happened yet");
        what();
        notices.has_notice()
    };
    assert!(has_notice(&|| house.write("max_steps = 1")), "it appears");
    assert!(has_notice(&|| house.write("max_steps = 2")), "it changes");
    std::fs::hard_link(&file, at("other name")).unwrap();
    assert!(
        has_notice(&|| std::fs::write(at("other name"), "max_steps = 3").unwrap()),
        "it changes under another name"
    );
    assert!(has_notice(&|| std::fs::rename(&house.places.config, at("old")).unwrap()), "its directory is moved away");
    assert!(has_notice(&|| std::fs::rename(at("old"), &house.places.config).unwrap()), "another one is in its place");
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(at("dotfile"), &file).unwrap();
    assert!(has_notice(&|| std::fs::write(at("dotfile"), "max_steps = 4").unwrap()), "what it leads to appears");
    assert!(has_notice(&|| std::fs::remove_file(at("dotfile")).unwrap()), "what it leads to vanishes");
    assert!(!has_notice(&|| std::fs::write(house.places.config.join("other"), "x").unwrap()), "another file");
    assert!(!has_notice(&|| drop(house.open())), "it is read");
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_notice_wakes_the_watcher_and_stays_until_the_file_is_read() {
    let house = house();
    house.write("max_steps = 1");
    let mut changes = Changes::of(&house.places.config_file());
    let store = house.open();
    assert!(store.may_have_changed(), "nothing tells of changes");
    store.set_watched(None, changes.take_notices());
    assert!(!store.may_have_changed());
    house.write("max_steps = 2");
    assert!(store.may_have_changed() && store.may_have_changed());
    let mut changes = woken(changes, "it changes").await;
    store.reload();
    store.set_watched(None, changes.take_notices());
    assert!(!store.may_have_changed());
    std::fs::remove_file(house.places.config_file()).unwrap();
    std::fs::create_dir(house.places.config_file()).unwrap();
    let mut changes = woken(changes, "it is a directory").await;
    store.reload();
    store.set_watched(None, changes.take_notices());
    assert!(store.may_have_changed(), "what cannot be read is tried again");
}
