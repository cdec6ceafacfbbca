//! A daemon from a script: a socket, and for each connection in turn a function that reads requests and answers them.

// Each test that has it uses a part of it.
#![allow(dead_code)]

use std::fs::{File, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

/// How long to wait for the client before the test fails.
const LIMIT: Duration = Duration::from_secs(60);

/// What one connection does.
pub type Script = Box<dyn FnOnce(&mut Connection) + Send>;

/// A daemon that follows its scripts and then accepts no more.
pub struct Fake {
    home: tempfile::TempDir,
    thread: Option<JoinHandle<()>>,
    /// Held as the daemon holds it: by this a client knows who listens.
    _lock: File,
}

/// The daemon's end of one connection.
pub struct Connection {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    /// The client, as it called itself in its hello.
    client: String,
}

impl Fake {
    /// Listens; the first connection gets the first script.
    pub fn start(scripts: Vec<Script>) -> Self {
        let home = private_directory();
        let listener = UnixListener::bind(home.path().join("s")).unwrap();
        let lock = lock(&home.path().join(".local/share/linger"), &home.path().join("s"));
        configure(&home.path().join(".config/linger"));
        let thread = std::thread::spawn(move || {
            for script in scripts {
                let stream = accept(&listener);
                let reader = BufReader::new(stream.try_clone().unwrap());
                let mut connection = Connection { reader, writer: stream, client: String::new() };
                script(&mut connection);
            }
        });
        Self { home, thread: Some(thread), _lock: lock }
    }

    /// The one connection that most tests need.
    pub fn one(script: impl FnOnce(&mut Connection) + Send + 'static) -> Self {
        Self::start(vec![Box::new(script)])
    }

    /// The socket.
    pub fn socket(&self) -> PathBuf {
        self.home.path().join("s")
    }

    /// The home directory of the client.
    pub fn home(&self) -> PathBuf {
        self.home.path().to_path_buf()
    }

    /// The client with `arguments`, in an environment of its own.
    #[allow(clippy::disallowed_methods)]
    pub fn linger(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linger"));
        command.args(arguments).env_clear().env("HOME", self.home()).env("LINGER_SOCKET", self.socket());
        command.env("LANG", "C.UTF-8").env("PATH_WE_WANT", "/bin").env("SOME_KEY", "secret");
        command.current_dir(self.home()).stdin(Stdio::null());
        command
    }

    /// Runs the client to its end, and the script to its own.
    pub fn run(mut self, arguments: &[&str]) -> Ran {
        let output = self.linger(arguments).output().unwrap();
        self.finish();
        Ran::from(output)
    }

    /// Waits for the script; its failures are the test's.
    pub fn finish(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// The daemon's lock, as a keeper holds it; it names the socket.
fn lock(data: &Path, socket: &Path) -> File {
    std::fs::create_dir_all(data).unwrap();
    let mut lock = File::create(data.join("lingerd.lock")).unwrap();
    lock.write_all(json!({ "pid": std::process::id(), "socket": socket }).to_string().as_bytes()).unwrap();
    lock.lock().unwrap();
    rustix::fs::fcntl_lock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    lock
}

/// A configuration that names the variables which the scripts ask for.
fn configure(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    let text = "[env]\npass = [\"PATH_WE_WANT\"]\n[providers.work]\napi_key_env = \"SOME_KEY\"\n";
    std::fs::write(dir.join("config.toml"), text).unwrap();
}

/// A directory that the client trusts.
fn private_directory() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap()
}

/// The next connection; a client that makes none fails the test, and does not hang it.
fn accept(listener: &UnixListener) -> UnixStream {
    let mut ready = [PollFd::new(listener, PollFlags::IN)];
    let limit = Timespec { tv_sec: LIMIT.as_secs().try_into().unwrap(), tv_nsec: 0 };
    assert_eq!(poll(&mut ready, Some(&limit)).unwrap(), 1, "nobody connects");
    let stream = listener.accept().unwrap().0;
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// How a client ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Connection {
    /// The next request, which must be of this method: its number and its parameters.
    pub fn expect(&mut self, method: &str) -> (u64, Value) {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        let request: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("wanted {method}, got {line:?}"));
        assert_eq!(request["method"], method, "{request}");
        (request["id"].as_u64().unwrap(), request["params"].clone())
    }

    /// Waits until the client hangs up.
    pub fn expect_end(&mut self) {
        let mut line = String::new();
        let n = self.reader.read_line(&mut line).unwrap_or(0);
        assert_eq!(n, 0, "wanted the end, got {line:?}");
    }

    /// Sends one message.
    pub fn send(&mut self, message: &Value) {
        // The client may have gone, which is its right.
        let _ = self.writer.write_all(format!("{message}\n").as_bytes());
    }

    /// Sends events of session `s1` until the client takes no more; how many were taken, if it is not all of them.
    pub fn flood(&mut self, events: impl ExactSizeIterator<Item = Value>) -> Option<usize> {
        // Who takes more is sent more: a machine that is slow shows nothing, and fails nobody.
        self.writer.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut events = events.enumerate();
        let full = events.find_map(|(n, event)| {
            let params = json!({"session": "s1", "cursor": n.to_string(), "event": event});
            let message = json!({"jsonrpc": "2.0", "method": "session/event", "params": params});
            self.writer.write_all(format!("{message}\n").as_bytes()).err().map(|_| n)
        });
        self.writer.set_write_timeout(None).unwrap();
        full
    }

    /// Expects a request and answers it; its parameters.
    pub fn answer(&mut self, method: &str, result: Value) -> Value {
        let (id, params) = self.expect(method);
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
        params
    }

    /// Expects a request and refuses it; its parameters.
    pub fn refuse(&mut self, method: &str, code: i32, message: &str, data: Value) -> Value {
        let (id, params) = self.expect(method);
        self.send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, "data": data}}));
        params
    }

    /// Sends an event of session `s1`.
    pub fn event(&mut self, cursor: &str, event: Value) {
        let params = json!({"session": "s1", "cursor": cursor, "event": event});
        self.send(&json!({"jsonrpc": "2.0", "method": "session/event", "params": params}));
    }

    /// Says hello.
    pub fn hello(&mut self) {
        let params = self.answer(
            "daemon/hello",
            json!({"protocol": 1, "version": env!("CARGO_PKG_VERSION"), "env": ["PATH_WE_WANT"], "keys": []}),
        );
        params["client"].as_str().unwrap().clone_into(&mut self.client);
        assert!(self.client.starts_with("linger@"), "{params}");
    }

    /// The client, as it called itself in its hello: its terminal has a number that a test does not choose.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Hello, create and attach, as `run` does them.
    pub fn new_session(&mut self) {
        self.hello();
        let created = self.answer("session/create", json!({"session": "s1"}));
        assert_eq!(created["env"]["PATH_WE_WANT"], "/bin");
        assert!(created["env"].get("SOME_KEY").is_none(), "{created}");
        self.answer("session/attach", json!({"cursor": "1"}));
    }

    /// The same and the prompt; its parameters.
    pub fn new_run(&mut self) -> Value {
        self.new_session();
        self.event("1", json!({"kind": "session_created", "seq": 1, "cwd": "/", "model": "m", "mode": "ask"}));
        self.event("1", json!({"kind": "caught_up"}));
        let prompt = self.answer("session/prompt", json!({"prompt": "p1", "seq": 2}));
        self.event("2", json!({"kind": "prompt_accepted", "seq": 2, "prompt": "p1", "content": [], "when": "queue"}));
        self.event("3", json!({"kind": "turn_started", "seq": 3, "turn": "t1", "prompt": "p1"}));
        prompt
    }

    /// A whole message of the model.
    pub fn message(&mut self, seq: u64, id: &str, text: &str) {
        let content = json!([{"type": "text", "text": text}]);
        let event = json!({"kind": "message", "seq": seq, "turn": "t1", "message": id, "role": "assistant", "content": content});
        self.event(&seq.to_string(), event);
    }

    /// A piece of a message.
    pub fn delta(&mut self, cursor: &str, id: &str, offset: u64, text: &str) {
        let event =
            json!({"kind": "text_delta", "turn": "t1", "message": id, "block": 0, "offset": offset, "text": text});
        self.event(cursor, event);
    }

    /// The end of the turn.
    pub fn end(&mut self, seq: u64, stop_reason: &str, detail: Option<&str>) {
        let event = json!({"kind": "turn_finished", "seq": seq, "turn": "t1", "stop_reason": stop_reason,
                           "detail": detail, "usage": {}, "steps": 1});
        self.event(&seq.to_string(), event);
    }

    /// A question.
    pub fn question(&mut self, seq: u64) {
        self.question_about(seq, "q1", "cargo test");
    }

    /// The question whether a command may run.
    pub fn question_about(&mut self, seq: u64, permission: &str, command: &str) {
        let event = json!({"kind": "permission_requested", "seq": seq, "turn": "t1", "permission": permission,
            "call_id": "c1", "tool": "bash", "action": command, "input": {"command": command}, "cwd": "/w",
            "digest": "sha256:9f", "rule": null, "grant": format!("bash({command})"), "options": ["allow_once"]});
        self.event(&seq.to_string(), event);
    }
}

/// A row of `session/list`.
pub fn row(id: &str, state: &str, stop_reason: Option<&str>) -> Value {
    let permissions = if state == "waiting" { json!(["q1"]) } else { json!([]) };
    json!({"session": id, "cwd": "/w", "model": "m", "mode": "ask", "state": state, "stop_reason": stop_reason,
           "queued": 0, "permissions": permissions, "questions": permissions, "usage": {}, "created_at": 1, "updated_at": 1,
           "cursor": "7", "turn_cursor": "3"})
}

/// A row of `question/list`: a permission.
pub fn pending(id: &str) -> Value {
    json!({"question": id, "session": "s1", "kind": "permission", "blocks": "call", "call": "c1", "permission": id,
           "tool": "bash", "action": "cargo test", "input": {"command": "cargo test"}, "cwd": "/w",
           "digest": "sha256:9f", "grant": "bash(cargo test)", "at": 1})
}

/// What a choice asks.
pub fn choice(blocks: &str) -> Value {
    json!({"kind": "choice", "blocks": blocks, "text": "go on?", "digest": "sha256:7c",
           "options": [{"name": "go_on", "label": "go on"}, {"name": "stop", "label": "stop here"}]})
}

/// A row of `question/list`: a choice; without a session the daemon asks it.
pub fn pending_choice(id: &str, session: Option<&str>) -> Value {
    let mut row = choice(if session.is_some() { "turn" } else { "nothing" });
    (row["question"], row["at"]) = (json!(id), json!(1));
    if let Some(session) = session {
        row["session"] = json!(session);
    }
    row
}
