//! What a daemon of a test works with, wherever it runs: directories, configuration and keys, and how it is checked in the end.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use super::{Client, Dirs, comes_true, process};
use crate::check::{Trace, assert_holds, read, read_folded};
use crate::model::{ModelServer, PATIENCE};

/// How long processes may take to be gone after a daemon has ended.
const GRACE: Duration = Duration::from_secs(20);

/// How long a log may take to come to rest; with a planted bug it never does.
const REST: Duration = Duration::from_secs(10);

/// How much of the log a failed test shows.
const TAIL: usize = 60;

/// How a daemon is set up; `Default` is what most tests want.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The default model.
    pub model: Option<String>,
    /// The default mode.
    pub mode: &'static str,
    /// Whether commands that only read ask, as all others do.
    pub ask_reads: bool,
    /// More TOML, before the first table.
    pub top: &'static str,
    /// More TOML, after the providers.
    pub config: String,
    /// Whether the keys are in the daemon's environment.
    pub keys: bool,
    /// `LINGER_LOG` of the daemon.
    pub log: &'static str,
    /// Files of the user's, below the directory of the configuration: name and text.
    pub user_files: Vec<(String, String)>,
    /// More variables for whatever is started.
    pub env: Vec<(String, String)>,
    /// Whether the programs are those with faults.
    pub faulty: bool,
    /// How many files the daemon may open, if not as many as the test.
    pub files: Option<u64>,
    /// Whether the daemon runs from a copy of its program, which a test may delete.
    pub copied: bool,
    /// The socket that it is passed, as a service manager does; it must not be closed at `exec`.
    pub passed: Option<RawFd>,
}

/// The scripted MCP server.
pub const SCRIPTED_SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/mcp.py");

/// The table of [`SCRIPTED_SERVER`] as the MCP server `s`, with these arguments and more keys.
pub fn scripted_server(args: &[&str], more: &str) -> String {
    let args: Vec<&str> = std::iter::once(SCRIPTED_SERVER).chain(args.iter().copied()).collect();
    format!("[mcp.s]\ncommand = \"python3\"\nargs = {}\n{more}\n", serde_json::json!(args))
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            model: Some("work/m".to_owned()),
            mode: "ask",
            ask_reads: true,
            top: "",
            config: String::new(),
            keys: true,
            log: "debug",
            user_files: Vec::new(),
            env: Vec::new(),
            faulty: false,
            files: None,
            copied: false,
            passed: None,
        }
    }
}

/// The configuration, in which commands that only read ask if they are to: most tests want a question of any command.
fn with_questions(config: String, ask_reads: bool) -> String {
    const ASK: &str = "[permissions]\nask_reads = true\n";
    match config.split_once("[permissions]\n") {
        _ if !ask_reads => config,
        Some((before, after)) => format!("{before}{ASK}{after}"),
        None => config.replacen("\n[providers.work]", &format!("\n{ASK}\n[providers.work]"), 1),
    }
}

/// Directories with a configuration, for one daemon after the other.
pub struct Prepared {
    /// Where its files are.
    pub dirs: Dirs,
    pub(super) setup: Setup,
    pub(super) keys: [(&'static str, String); 2],
}

impl Prepared {
    /// Directories and a configuration whose providers `work` and `claude` are `model`.
    pub(super) fn new(model: &ModelServer, setup: Setup) -> Self {
        let dirs = Dirs::default();
        let url = model.url();
        let default = setup.model.as_ref().map(|model| format!("model = \"{model}\"\n")).unwrap_or_default();
        let config = format!(
            "{default}mode = \"{mode}\"\n{top}\n\n[providers.work]\nkind = \"openai\"\nbase_url = \"{url}/v1\"\napi_key_env = \"WORK_KEY\"\n{patience}\n\
             [providers.claude]\nkind = \"anthropic\"\nbase_url = \"{url}\"\napi_key_env = \"CLAUDE_KEY\"\n{patience}\n{more}\n",
            mode = setup.mode,
            patience = format_args!("patience = \"{PATIENCE}\"\n"),
            top = setup.top,
            more = setup.config,
        );
        std::fs::write(dirs.config(), with_questions(config, setup.ask_reads))
            .expect("the configuration can be written");
        for (name, text) in &setup.user_files {
            let file = dirs.config().with_file_name(name);
            std::fs::create_dir_all(file.parent().expect("a directory")).expect("a directory can be made");
            std::fs::write(file, text).expect("a file of the user's can be written");
        }
        let canary = |name: &str| format!("canary-{name}-{}", dirs.root().display().to_string().replace('/', "."));
        let keys = [("WORK_KEY", canary("work")), ("CLAUDE_KEY", canary("claude"))];
        Self { dirs, setup, keys }
    }

    /// The environment of whatever is started; the keys with it if `keys`.
    pub fn env(&self, keys: bool) -> Vec<(String, String)> {
        let mut env = self.dirs.env();
        if keys {
            env.extend(self.keys.iter().map(|(name, key)| ((*name).to_owned(), key.clone())));
        }
        env.extend(self.setup.env.clone());
        env
    }

    /// The keys, which must be nowhere but in a header.
    pub fn canaries(&self) -> Vec<String> {
        self.keys.iter().map(|(_, key)| key.clone()).collect()
    }

    /// The working directory of sessions.
    pub fn workspace(&self) -> PathBuf {
        self.dirs.workspace()
    }

    /// The log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dirs.log()).unwrap_or_default()
    }

    /// The end of the log, for people.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        format!("--- end of lingerd.log ---\n{}\n---", lines[lines.len().saturating_sub(TAIL)..].join("\n"))
    }

    /// Everything that was seen, for the checker.
    pub fn trace(&self, clients: &[&Client], model: &ModelServer) -> Trace {
        let database = self.dirs.database();
        let with = |suffix: &str| PathBuf::from(format!("{}{suffix}", database.display()));
        let look = || read(&database).unwrap_or_else(|error| panic!("the database cannot be read: {error}"));
        // A terminal shows the last word of an answer before the turn's end is in the log.
        comes_true(REST, || look().rests());
        // In this order: what a client has seen is stored by then.
        let clients = clients.iter().map(|client| client.transcript()).collect();
        let stored = look();
        model.named_by(&stored);
        Trace {
            clients,
            stored,
            model: model.violations(),
            side_effects: Some(self.side_effects()),
            files: vec![with(""), with("-wal"), self.dirs.log()],
            canaries: self.canaries(),
            settled: true,
            folded: read_folded(&database).ok(),
            ..Trace::default()
        }
    }

    /// Panics if anything that must always hold does not; call it when nothing is under way any more.
    pub fn check(&self, clients: &[&Client], model: &ModelServer) {
        assert_holds(&self.trace(clients, model));
        model.verify();
    }

    /// A file for the side effects of tools: each line may be there once.
    pub fn side_effects(&self) -> PathBuf {
        self.dirs.root().join("effects")
    }

    /// A command that leaves `line` in the side-effect file.
    pub fn effect(&self, line: &str) -> String {
        format!("echo {line} >> {}", self.side_effects().display())
    }

    /// After a clean end no process is left (I8); what is left nevertheless is ended here.
    pub(super) fn leave_nothing(&self, failed: bool) {
        let mut left = Vec::new();
        let clean = comes_true(GRACE, || {
            left = process::of_directory(self.dirs.root());
            left.is_empty()
        });
        left.iter().for_each(|process| process::signal(process.pid, Signal::KILL));
        assert!(clean || failed, "processes are left behind: {left:?}");
    }
}
