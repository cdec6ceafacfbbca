//! Databases that were opened or set aside, and what can be read of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use linger_protocol::event::Event;
use linger_protocol::id::SessionId;

use super::*;
use crate::recover::salvage::examine;
use crate::recover::tests::killed;
use crate::session::state::State;
use crate::session::state::circles::CallFingerprint;
use crate::store::aside::AsideKind;
use crate::store::open::tests::{SCHEMA_1, SEEDS, copy_of, files, opens};
use crate::store::read;
use crate::store::rng::Rng;
use crate::store::write::write_session;
use crate::store::{Fold, Store};

/// The size of a page.
const PAGE: usize = PAGE_SIZE;

fn ids(connection: &Connection) -> Vec<String> {
    salvage::ids(connection).0
}

/// How many sessions can be read whole.
fn whole(path: &Path) -> usize {
    let connection = Connection::open(path).unwrap();
    ids(&connection).iter().filter(|id| examine(&connection, id).broken.is_none()).count()
}

#[test]
fn a_database_that_was_killed_is_opened_with_everything_in_its_wal() {
    let (_dir, path) = copy_of(&killed());
    assert_eq!(opens(&path, "killed"), []);
    assert_eq!(whole(&path), 7);
    let connection = Connection::open(&path).unwrap();
    assert_eq!(examine(&connection, "3c725prqhm").events, 55);
}

#[test]
fn whatever_length_it_is_cut_to_the_store_opens_and_what_is_left_of_sessions_is_found() {
    let original = killed();
    let length = fs::metadata(original.path().join("linger.db")).unwrap().len();
    let mut found = 0;
    for seed in 0..SEEDS / 4 {
        let (_dir, path) = copy_of(&original);
        let mut rng = Rng(seed);
        // Without its WAL, which has the last pages.
        fs::remove_file(files::with(&path, "-wal")).unwrap();
        fs::remove_file(files::with(&path, "-shm")).unwrap();
        let cut = rng.below(length as usize) as u64;
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(cut).unwrap();
        let asides = opens(&path, &format!("cut to {cut}"));
        assert_eq!(asides.len(), 1, "cut to {cut}");
        if let Ok(source) = Source::open(&asides[0].path) {
            let sessions = ids(&source.connection);
            let events = |id: &String| examine(&source.connection, id).events;
            found += sessions.iter().map(events).sum::<u64>();
        }
    }
    assert!(found > 0, "something is left of most");
}

#[test]
fn with_its_first_page_gone_everything_else_is_read() {
    for length in [16, 100, PAGE] {
        let (_dir, path) = copy_of(&killed());
        let mut bytes = fs::read(&path).unwrap();
        bytes[..length].fill(0xaa);
        fs::write(&path, bytes).unwrap();
        let asides = opens(&path, "no first page");
        assert_eq!(asides.len(), 1);
        let before = files(&asides[0].path);
        let source = Source::open(&asides[0].path).unwrap();
        let sessions = ids(&source.connection);
        assert_eq!(sessions.len(), 8, "{length} bytes are gone");
        // One was removed, and has events only.
        for id in sessions.into_iter().filter(|id| id != "jd6jypey8m") {
            let examined = examine(&source.connection, &id);
            assert_eq!((examined.broken, examined.wrong), (None, None), "{id}");
        }
        drop(source);
        assert!(files(&asides[0].path) == before, "reading changed it");
        assert!(!files::with(&asides[0].path, ".reading").exists());
    }
}

#[test]
fn what_was_removed_and_which_blobs_are_used_is_known_of_a_database_that_was_set_aside() {
    let image = "sha256:6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("linger.db");
    Connection::open(&path).unwrap().execute_batch(SCHEMA_1).unwrap();
    let source = Source::open(&path).unwrap();
    assert!(ids(&source.connection).iter().any(|id| id == "jd6jypey8m"));
    assert!(source.sessions.iter().all(|id| id != "jd6jypey8m"));
    let (page, _) = read::page(&source.connection, "nan4p4avy9", 0, 6, salvage::PAGE, usize::MAX);
    let events: Vec<Event> = page.iter().map(|stored| serde_json::from_str(&stored.data).unwrap()).collect();
    let blobs: BTreeSet<&str> =
        events.iter().flat_map(|event| event.body.blobs()).map(linger_protocol::id::BlobId::as_str).collect();
    assert_eq!(blobs, BTreeSet::from([image]));
}

#[test]
fn a_wal_that_is_damaged_in_the_middle_is_kept_and_what_comes_before_is_used() {
    let (_dir, path) = copy_of(&killed());
    let wal = files::with(&path, "-wal");
    let mut bytes = fs::read(&wal).unwrap();
    let middle = 32 + (bytes.len() - 32) / (24 + PAGE) / 2 * (24 + PAGE) + 24;
    bytes[middle + 100] ^= 0x40;
    fs::write(&wal, &bytes).unwrap();
    let asides = opens(&path, "a WAL with a hole");
    assert_eq!(
        asides.iter().map(|aside| (aside.report.kind, aside.report.settled)).collect::<Vec<_>>(),
        [(AsideKind::Wal, true)]
    );
    assert!(asides[0].report.reason.contains("commits at the end of the WAL cannot be read"));
    let read = examine(&Connection::open(&path).unwrap(), "37grq28w2p");
    assert_eq!((read.broken, read.wrong), (None, None), "a commit is there whole or not at all");
    // A WAL that merely ends is what every kill leaves.
    let (_dir, path) = copy_of(&killed());
    let wal = files::with(&path, "-wal");
    let length = fs::metadata(&wal).unwrap().len();
    fs::OpenOptions::new().write(true).open(&wal).unwrap().set_len(length - 3000).unwrap();
    assert_eq!(opens(&path, "a WAL that ends"), []);
}

/// The last schema whose states are whole in one column.
const SCHEMA_4: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/schema-4.sql"));

/// The text of a state, of which each append has written what had changed.
#[derive(Default)]
struct Appended(BTreeMap<&'static str, String>);

impl Appended {
    fn append(&mut self, state: &mut State) -> String {
        let Fold::Session { head, rows, .. } = state.take_changes() else { panic!("the state is folded") };
        for (name, text) in rows {
            self.0.remove(name);
            self.0.extend(text.map(|text| (name, text)));
        }
        self.0.iter().fold(head, |all, (name, text)| format!("{all}\n{name} {text}"))
    }
}

/// The state without the sizes of undone changes, which that build did not store.
fn without_undone_bytes(mut state: State) -> State {
    state.undo.forge().undone.iter_mut().for_each(|undone| undone.bytes = 0);
    state
}

#[test]
fn a_database_with_whole_states_is_loaded_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("linger.db");
    Connection::open(&path).unwrap().execute_batch(SCHEMA_4).unwrap();
    assert_eq!(opens(&path, "schema 4"), []);
    let connection = Connection::open(&path).unwrap();
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, SCHEMA);
    let ids = ids(&connection);
    assert_eq!(ids.len(), 17);
    for id in ids {
        // What is folded again is what was stored; what is not stored with the state is not compared.
        let examined = examine(&connection, &id);
        assert_eq!((&examined.broken, &examined.wrong), (&None, &None), "{id}");
        assert!(examined.goes_on && !examined.rebuilt, "{id}");
        let row = read::session(&connection, &id).unwrap().unwrap();
        let fold = State::from_stored(&row.fold).unwrap();
        assert_eq!(fold.to_rows().unwrap(), without_undone_bytes(examined.state).to_rows().unwrap(), "{id}");
        assert_eq!(fold.stored_name(), row.state, "{id}");
        // The next append writes it in rows, of which the state is read again.
        write_session(&connection, &id, &[], &[], &[fold.clone().take_changes()]).unwrap();
        let again = read::session(&connection, &id).unwrap().unwrap();
        assert_ne!(again.fold, row.fold);
        assert_eq!(State::from_stored(&again.fold), Some(fold), "{id}");
        // Appended event by event, it can be read after each.
        let (page, _) = read::page(&connection, &id, 0, u64::MAX >> 1, usize::MAX >> 1, usize::MAX);
        let (mut state, mut rows, mut text) = (State::default(), Appended::default(), String::new());
        for event in page {
            state.apply(&serde_json::from_str(&event.data).unwrap());
            text = rows.append(&mut state);
            let read = State::from_stored(&text).unwrap_or_else(|| panic!("{id}, event {}: {text}", event.seq));
            assert_eq!(read.to_rows().unwrap(), state.to_rows().unwrap(), "{id}, event {}", event.seq);
        }
        assert_eq!(State::from_stored(&text).map(without_undone_bytes), State::from_stored(&again.fold), "{id}");
    }
}

#[test]
fn a_database_of_the_first_schema_is_loaded_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("linger.db");
    Connection::open(&path).unwrap().execute_batch(SCHEMA_1).unwrap();
    assert_eq!(opens(&path, "schema 1"), []);
    let connection = Connection::open(&path).unwrap();
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, SCHEMA);
    let read = |id: &str| {
        let examined = examine(&connection, id);
        assert_eq!((&examined.broken, &examined.wrong), (&None, &None), "{id}");
        let stored = read::session(&connection, id).unwrap().unwrap();
        let mut fold = State::from_stored(&stored.fold).unwrap();
        // The words of prompts that wait are in their events.
        for queued in &examined.state.queue.prompts {
            fold.restore_prompt(queued.seq, queued.content.clone(), None);
        }
        // Of costs, of the prompt of a turn, and of when a question was asked, the build that stored it said nothing.
        let mut read = examined.state.clone();
        read.turn.forge().iter_mut().flat_map(|turn| &mut turn.questions).for_each(|asked| asked.at = 0);
        assert_eq!(fold.turn.as_ref().and_then(|turn| turn.prompt.as_ref()), None);
        read.turn.forge().iter_mut().for_each(|turn| turn.prompt = None);
        assert_eq!((read.progress.usage.cost_micros, fold.progress.usage.cost_at_least), (None, false));
        read.progress.usage.cost_at_least = false;
        // And of what its calls are, and of how long its turns ran.
        read.progress.budget = fold.progress.budget;
        read.turn
            .forge()
            .iter_mut()
            .flat_map(|turn| &mut turn.calls)
            .for_each(|call| call.made = CallFingerprint::default());
        read.turn.forge().iter_mut().for_each(|turn| turn.usage.cost_at_least = false);
        assert_eq!(fold, read, "{id}: what is folded again is what was stored");
        (examined.events, examined.state.stored_name(), examined.env["HOME"].clone())
    };
    let home = || "/home/u/p".to_owned();
    assert_eq!(read("37grq28w2p"), (7, "waiting", home()));
    assert_eq!(read("3c725prqhm"), (10, "idle", home()));
    assert_eq!(read("hmp369g2kx"), (11, "idle", home()));
    assert_eq!(read("m55bcbgrhy"), (4, "running", home()));
    drop(connection);
    let store = Store::open(&path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let pieces = runtime.block_on(store.scratch(SessionId::from("m55bcbgrhy"))).unwrap();
    assert_eq!((pieces.len(), pieces[0].text.as_str()), (17, "word 1 "));
    let pending = runtime.block_on(store.pending(None, None, None)).unwrap();
    let actions = pending.iter().map(|pending| pending.asked.permission.as_ref().unwrap().action.as_str());
    assert_eq!(actions.collect::<Vec<_>>(), ["date"]);
    let answered = runtime.block_on(store.question("q6j6bbc9".into())).unwrap().unwrap();
    assert_eq!(answered.answer.unwrap().0.as_deref(), Some("reject_once"));
    let key = "session/prompt 37grq28w2p 602974bb2b0d0bada345b681c78b3a79".to_owned();
    let outcome = runtime.block_on(store.outcome(key)).unwrap().unwrap();
    let result: serde_json::Value = serde_json::from_str(&outcome.result.unwrap()).unwrap();
    assert_eq!(result["prompt"], "p2");
}

#[test]
fn a_database_of_a_later_schema_is_read_by_a_linger_that_knows_it() {
    let (_dir, path) = copy_of(&killed());
    let set = |version| Connection::open(&path).unwrap().pragma_update(None, "user_version", version).unwrap();
    set(SCHEMA + 1);
    assert!(matches!(Source::open(&path), Err(Unreadable::Newer(v)) if v == SCHEMA + 1));
    set(SCHEMA);
    assert!(Source::open(&path).is_ok());
}
