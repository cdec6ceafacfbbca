use linger_protocol::place::Places;

use super::*;
use crate::config::Record;
use crate::tool::set::Tools;

/// A workspace, and a store that remembers what is trusted.
struct House {
    dir: tempfile::TempDir,
    store: ConfigStore,
    log: Arc<Mutex<Vec<Confirmed>>>,
}

const ALLOW: &str = "permissions.allow: add \"bash(make)\" (runs without asking)";

fn open(dir: &Path, log: &Arc<Mutex<Vec<Confirmed>>>) -> ConfigStore {
    let store = ConfigStore::open(Places::below(dir).unwrap(), None, Tools::default());
    let log = log.clone();
    store.begin(
        Some(nothing()),
        Record(Box::new(move |confirmed| {
            log.lock().unwrap().push(confirmed);
            Ok(())
        })),
    );
    store
}

fn house(text: &str) -> House {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("w/.linger")).unwrap();
    let log = Arc::default();
    let house = House { store: open(dir.path(), &log), dir, log };
    house.write(text);
    house
}

impl House {
    fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("w")
    }

    fn write(&self, text: &str) {
        std::fs::write(self.root().join(CONFIG), text).unwrap();
    }

    /// What is in force, as rules; and what waits.
    fn look(&self) -> (Vec<String>, Vec<String>) {
        let now = self.store.look(&self.root());
        assert_eq!(now.error, None);
        let WorkspaceConfig { deny, ask, allow, .. } = &*now.config;
        let lists = [("deny", deny), ("ask", ask), ("allow", allow)];
        let rules = lists.iter().flat_map(|(name, list)| list.iter().map(move |rule| format!("{name} {rule}")));
        (rules.collect(), now.waiting.as_ref().map(|waiting| waiting.lines()).unwrap_or_default())
    }

    fn trust(&self) {
        let waiting = self.store.look(&self.root()).waiting.clone().unwrap();
        self.store.trust(&self.root(), &waiting, "me").unwrap();
    }

    /// The daemon starts again.
    fn restart(&mut self) {
        let mut trusted = Trusted::new();
        for Confirmed { settings, workspace, .. } in self.log.lock().unwrap().iter() {
            match (workspace, settings) {
                (Some(root), Value::Null) => drop(trusted.remove(root)),
                (Some(root), settings) => drop(trusted.insert(root.clone(), settings.clone())),
                (None, _) => {}
            }
        }
        self.store = open(self.dir.path(), &self.log);
        self.store.begin_trust(trusted);
    }
}

fn check((rules, waits): (Vec<String>, Vec<String>), expect: &[&str], waiting: &[&str]) {
    assert_eq!(
        (rules.iter().map(String::as_str).collect::<Vec<_>>(), waits),
        (expect.to_vec(), waiting.iter().map(|&it| it.to_owned()).collect())
    );
}

#[test]
fn what_narrows_counts_at_once_and_what_widens_once_it_is_trusted() {
    let mut house = house("[permissions]\nallow = ['bash(make)']\ndeny = ['bash(rm:*)']");
    check(house.look(), &["deny bash(rm:*)"], &[ALLOW]);
    house.trust();
    let all = ["deny bash(rm:*)", "allow bash(make)"];
    check(house.look(), &all, &[]);
    assert_eq!(house.store.trusts().into_values().collect::<Vec<_>>(), [[ALLOW]]);
    house.restart();
    check(house.look(), &all, &[]);

    // More waits; the rest stays as it was trusted.
    house.write("[permissions]\nallow = ['bash(make)', 'bash(x)']\nask = ['bash(y)']\ndeny = ['bash(rm:*)']");
    let more = "permissions.allow: add \"bash(x)\" (runs without asking)";
    check(house.look(), &["deny bash(rm:*)", "ask bash(y)", "allow bash(make)"], &[more]);
    // Less counts at once, and waits when it comes back.
    house.write("[permissions]\ndeny = ['bash(rm:*)']\nask = ['bash(y)']");
    check(house.look(), &["deny bash(rm:*)", "ask bash(y)"], &[]);
    house.write("[permissions]\nallow = ['bash(make)']\ndeny = ['bash(rm:*)']\nask = ['bash(y)']");
    check(house.look(), &["deny bash(rm:*)", "ask bash(y)"], &[ALLOW]);
}

#[test]
fn a_rule_that_narrows_stays_until_a_person_agrees_that_it_goes() {
    let mut house = house("[permissions]\ndeny = ['bash(rm:*)']");
    check(house.look(), &["deny bash(rm:*)"], &[]);
    house.restart();
    let gone = "permissions.deny: remove \"bash(rm:*)\" (is no longer refused)";
    for text in ["", "# nothing"] {
        house.write(text);
        check(house.look(), &["deny bash(rm:*)"], &[gone]);
    }
    std::fs::remove_file(house.root().join(CONFIG)).unwrap();
    check(house.look(), &["deny bash(rm:*)"], &[gone]);
    house.trust();
    check(house.look(), &[], &[]);
}

#[test]
fn a_broken_file_leaves_the_last_good_one_in_force_and_says_where_it_is_broken() {
    let house = house("[permissions]\nallow = ['bash(make)']\ndeny = ['bash(rm:*)']");
    house.trust();
    house.write("[permissions]\ndeny = ['bash(']");
    for _ in 0..2 {
        let now = house.store.look(&house.root());
        let error = now.error.as_ref().unwrap().to_string();
        assert!(error.contains(".linger/config.toml:2:9: permissions.deny[0]: "), "{error}");
        assert_eq!((now.config.deny.len(), now.config.allow.len()), (1, 1));
    }
    std::fs::remove_file(house.root().join(CONFIG)).unwrap();
    assert_eq!(house.store.look(&house.root()).error, None);
}

#[test]
fn what_is_trusted_is_what_was_shown() {
    let house = house("[permissions]\nallow = ['bash(make)']");
    let shown = house.store.look(&house.root()).waiting.clone().unwrap();
    house.write("[permissions]\nallow = ['bash(make)', 'bash(evil)']");
    assert!(matches!(house.store.trust(&house.root(), &shown, "me"), Err(EditError::Stale)));
    assert!(house.look().0.is_empty() && house.store.trusts().is_empty());
}

#[test]
fn what_is_revoked_waits_again() {
    let mut house = house("[permissions]\nallow = ['bash(make)']\ndeny = ['bash(rm:*)']");
    house.trust();
    assert!(house.store.distrust(&house.root(), "me").unwrap());
    check(house.look(), &["deny bash(rm:*)"], &[ALLOW]);
    house.restart();
    check(house.look(), &["deny bash(rm:*)"], &[ALLOW]);
    assert!(house.store.trusts().is_empty());
}

#[test]
fn a_session_is_told_once_and_again_when_it_changes() {
    let house = house("[permissions]\nallow = ['bash(make)']");
    let (one, two) = (SessionId::from("one"), SessionId::from("two"));
    let told = |session: &SessionId| {
        house.store.look(&house.root());
        house.store.news_of_workspace(&house.root(), session).is_some()
    };
    assert_eq!([told(&one), told(&one), told(&two)], [true, false, true]);
    house.write("[permissions]\nallow = ['bash(other)']");
    assert_eq!([told(&one), told(&one)], [true, false]);
    house.write("mode = 'auto'");
    assert_eq!([told(&one), told(&one)], [true, false]);
    house.write("");
    assert!(!told(&one));
}
