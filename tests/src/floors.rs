//! The least that each task can cost here and now: what the benches hold their figures against.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;

use crate::harness::Raw;

/// How often a floor is measured.
const TIMES: usize = 50;

/// `curl` making this request: the whole time, in milliseconds.
#[allow(clippy::disallowed_methods)] // Benches own the processes that they start.
pub fn curl(url: &str, body: &[u8], dir: &Path) -> f64 {
    let file = dir.join("request.json");
    std::fs::write(&file, body).expect("the body can be written");
    let mut command = Command::new("curl");
    command.args(["-sS", "-N", "-o", "/dev/null", "-H", "content-type: application/json", "--data-binary"]);
    command.arg(format!("@{}", file.display())).arg(url).stdin(Stdio::null());
    let start = Instant::now();
    let status = command.status().expect("curl can be run");
    let took = ms(start);
    assert!(status.success(), "curl {url}: {status}");
    took
}

/// One synced commit of SQLite in `dir` and the command that a round runs, in milliseconds.
pub fn commit_and_spawn(dir: &Path) -> f64 {
    let mut commits = Commits::new(&dir.join("floor.db"));
    let mut once = || {
        let start = Instant::now();
        commits.commit_and_spawn();
        ms(start)
    };
    median((0..TIMES).map(|_| once()).collect())
}

/// A database of one table.
pub struct Commits(rusqlite::Connection);

impl Commits {
    /// A new one.
    pub fn new(path: &Path) -> Self {
        let connection = rusqlite::Connection::open(path).expect("a database");
        connection.pragma_update(None, "journal_mode", "wal").expect("WAL");
        connection.pragma_update(None, "synchronous", "full").expect("synced");
        connection.execute("CREATE TABLE t(x)", ()).expect("a table");
        Self(connection)
    }

    /// Commits 300 bytes.
    pub fn commit(&mut self) {
        self.0.execute("INSERT INTO t VALUES (?1)", ["x".repeat(300)]).expect("a commit");
    }

    /// Commits, and runs what a call of `bash` runs to its end.
    #[allow(clippy::disallowed_methods)] // Benches own the processes that they start.
    pub fn commit_and_spawn(&mut self) {
        self.commit();
        assert!(Command::new("bash").args(["-c", "true"]).status().expect("bash can be run").success());
    }
}

/// Keeps the processors from sleeping until it is dropped. Two processes that take turns leave one of them idle each time, and in a
/// virtual machine it takes longer to wake up than linger takes to answer; then a round trip is a figure of the machine's.
pub struct Awake(Vec<Child>);

impl Awake {
    /// Starts one for each processor, which runs only while nobody else wants to.
    #[allow(clippy::disallowed_methods)] // Benches own the processes that they start.
    pub fn keep() -> Self {
        let spin = |_| {
            let mut command = Command::new("nice");
            command.args(["-n", "19", "sh", "-c", "chrt -i -p 0 $$ 2>/dev/null; while :; do :; done"]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("nice can be run")
        };
        Self((0..std::thread::available_parallelism().map_or(1, usize::from)).map(spin).collect())
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().and_then(|()| child.wait()).expect("it ends");
        }
    }
}

/// A bare socket that answers with what it is sent.
pub async fn echo(dir: &Path) -> Raw {
    let path = dir.join("echo.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            listener.set_nonblocking(true).expect("a socket that does not block");
            let listener = UnixListener::from_std(listener).expect("a socket");
            let (stream, _) = listener.accept().await.expect("a connection");
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|n| n > 0) {
                // It answers with a result of the same size, so that reading it costs the same.
                let answer = line.replace("\"method\"", "\"result\"");
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
                line.clear();
            }
        });
    });
    Raw::connect(&path).await
}

/// Asks the same thing `times` times: median and 99th percentile, in microseconds.
pub async fn asked(raw: &mut Raw, request: &str, times: usize) -> (f64, f64) {
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        let start = Instant::now();
        raw.ask(request).await;
        took.push(ms(start) * 1000.0);
    }
    (percentile(&mut took, 0.5), percentile(&mut took, 0.99))
}

/// The value in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    percentile(&mut values, 0.5)
}

/// The value below which this part of the values lies.
pub fn percentile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = ((values.len() as f64 - 1.0) * part).round() as usize;
    values.get(at).copied().unwrap_or(f64::NAN)
}

/// Milliseconds since.
pub fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use crate::model::{ModelServer, Reply};

    use super::*;

    #[tokio::test]
    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    async fn the_floors_can_be_measured() {
        if std::process::Command::new("curl").arg("--version").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "install curl");
            eprintln!("not run: this machine has no curl");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let model = ModelServer::scripted(|_| Reply::new().text_in_deltas(&"word ".repeat(20_000), 5));
        let body = br#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
        let took = curl(&format!("{}/v1/chat/completions", model.url()), body, dir.path());
        assert!(took > 0.0 && took < 10_000.0, "{took}");
        assert!(commit_and_spawn(dir.path()) > 0.0);
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"daemon/hello"}"#;
        let awake = Awake::keep();
        let (p50, p99) = asked(&mut echo(dir.path()).await, request, 100).await;
        drop(awake);
        assert!(p50 > 0.0 && p99 >= p50, "{p50} {p99}");
        eprintln!("curl {took:.1} ms, round trip {p50:.0} us");
    }
}
