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

/// The servers in force, and those that wait.
fn servers(house: &House) -> (Vec<String>, Vec<String>) {
    let now = house.store.look(&house.root());
    let in_force = now.config.servers.iter().map(|(name, server)| format!("{name} {}", server.config.target()));
    let waiting = now.waiting_servers.iter().map(|it| format!("{} {}", it.name, it.config.target()));
    (in_force.collect(), waiting.collect())
}

fn texts(expect: &[&str]) -> Vec<String> {
    expect.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn servers_of_a_workspace_wait_for_trust_each_time_they_change() {
    let mut house = house("[mcp.a]\ncommand = 'run-a'\ncwd = 'sub'");
    let file = house.root().join(MCP_JSON);
    let json = |server: &str| std::fs::write(&file, format!("{{\"mcpServers\": {{\"b\": {server}}}}}")).unwrap();
    json("{\"command\": \"run-b\"}");
    assert_eq!(servers(&house), (texts(&[]), texts(&["a run-a", "b run-b"])));
    let lines = house.store.look(&house.root()).waiting.as_ref().unwrap().lines();
    let means = "new (an MCP server that linger starts or calls)";
    assert_eq!(lines[1], format!("mcpServers.b: {{\"command\":\"run-b\"}}, {means}"));
    house.trust();
    let both = texts(&["a run-a", "b run-b"]);
    assert_eq!(servers(&house), (both.clone(), texts(&[])));
    let now = house.store.look(&house.root());
    assert_eq!(now.config.servers["a"].config.cwd, Some(house.root().join("sub")));
    house.restart();
    assert_eq!(servers(&house), (both.clone(), texts(&[])));

    // Another program runs only once a person has seen the difference.
    json("{\"command\": \"evil\"}");
    assert_eq!(servers(&house), (both, texts(&["b evil"])));
    let lines = house.store.look(&house.root()).waiting.as_ref().unwrap().lines();
    assert!(lines[0].contains("{\"command\":\"evil\"} in place of {\"command\":\"run-b\"}"), "{lines:?}");
    // One that is gone ends at once; a file that is gone for a moment does not have to be trusted again.
    std::fs::write(&file, "{\"mcpServers\": {}}").unwrap();
    assert_eq!(servers(&house), (texts(&["a run-a"]), texts(&[])));
    json("{\"command\": \"run-b\"}");
    assert_eq!(servers(&house), (texts(&["a run-a"]), texts(&["b run-b"])));
    house.trust();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(servers(&house), (texts(&["a run-a"]), texts(&[])));
    json("{\"command\": \"run-b\"}");
    assert_eq!(servers(&house), (texts(&["a run-a", "b run-b"]), texts(&[])));
}

#[test]
fn a_broken_file_of_servers_concerns_itself_alone() {
    let mut house = house("[permissions]\ndeny = ['bash(rm:*)']");
    let file = house.root().join(MCP_JSON);
    std::fs::write(&file, "{\"mcpServers\": {\"b\": {\"command\": \"run-b\"}}}").unwrap();
    house.look();
    house.trust();
    std::fs::write(&file, "{\"mcpServers\": {\n").unwrap();
    for _ in 0..2 {
        let now = house.store.look(&house.root());
        assert_eq!((now.error.clone(), now.config.deny.len()), (None, 1));
        assert!(now.problems[0].contains(".mcp.json:2:"), "{:?}", now.problems);
        assert_eq!(servers(&house), (texts(&["b run-b"]), texts(&[])), "as it was trusted");
        let told = house.store.news_of_workspace(&house.root(), &SessionId::from("one"));
        assert!(told.is_none_or(|text| text.contains(".mcp.json:2:")));
        house.restart();
    }
    // The other way round.
    std::fs::write(&file, "{\"mcpServers\": {\"b\": {\"command\": \"run-b\"}}}").unwrap();
    house.write("mode = 'all'");
    assert_eq!(servers(&house), (texts(&["b run-b"]), texts(&[])));
    assert!(house.store.look(&house.root()).error.is_some());
}

#[test]
fn a_server_of_both_files_is_that_of_the_configuration() {
    let house = house("[mcp.b]\ncommand = 'mine'");
    std::fs::write(house.root().join(MCP_JSON), "{\"mcpServers\": {\"b\": {\"command\": \"other\"}}}").unwrap();
    house.look();
    house.trust();
    assert_eq!(servers(&house).0, ["b mine"]);
    let told = house.store.news_of_workspace(&house.root(), &SessionId::from("one")).unwrap();
    let left_out = ".mcp.json:1: mcpServers.b: left out: .linger/config.toml has one of that name";
    assert!(told.contains(left_out), "{told}");
    assert_eq!(house.store.look(&house.root()).server_problems(&house.root()).len(), 1);
}
