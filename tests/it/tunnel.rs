//! A daemon on another machine, through a real sshd on loopback: what the manual says works word for word, and a client that was
//! pointed at a socket starts, stops and repairs nothing. The laptop has directories of its own.
//!
//! Where there is no OpenSSH these tests say so and pass, but not in CI.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use linger_tests::harness::{Cli, Daemon, Dirs, Pty, Running, Setup, process, programs, until};
use linger_tests::model::{ModelServer, Reply};
use rustix::process::Signal;
use serde_json::json;
use tokio::net::TcpStream;

use crate::bash;

/// The name of the server in the manual.
const HOST: &str = "box";

/// A laptop, and an sshd in front of a daemon.
struct Tunnel {
    laptop: Dirs,
    bin: PathBuf,
    _sshd: Running,
}

/// The programs of OpenSSH; nothing where one of them is missing, which is said.
fn openssh() -> Option<[PathBuf; 3]> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).collect();
    let find = |name: &str| places.iter().map(|dir| dir.join(name)).find(|file| file.is_file());
    let found = find("ssh").zip(find("sshd")).zip(find("ssh-keygen"));
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "there is no OpenSSH: see tests/README.md");
        eprintln!("not run: there is no OpenSSH (ssh, sshd, ssh-keygen)");
    }
    found.map(|((ssh, sshd), keygen)| [ssh, sshd, keygen])
}

fn write(path: &Path, mode: u32, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

impl Tunnel {
    /// An sshd whose sessions have the server's directories; nothing if there is no OpenSSH.
    async fn to(daemon: &Daemon) -> Option<Self> {
        let [ssh, sshd, keygen] = openssh()?;
        let laptop = Dirs::default();
        let dir = laptop.root().join("ssh");
        let bin = laptop.root().join("bin");
        std::fs::create_dir(&dir).unwrap();
        std::fs::create_dir(&bin).unwrap();
        let file = |name: &str| dir.join(name).display().to_string();
        for key in ["host", "key"] {
            let cli =
                Cli::new(&keygen, laptop.env(), dir.clone(), &["-q", "-t", "ed25519", "-N", "", "-f", &file(key)]);
            cli.run().await.exits(0);
        }
        std::os::unix::fs::symlink(&programs().client, bin.join("linger")).unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let env = daemon.env(false).into_iter().filter(|(name, _)| name != "PATH");
        let env: String = env.map(|(name, value)| format!(" \"{name}={value}\"")).collect();
        if rustix::process::geteuid().is_root() {
            std::fs::create_dir_all("/run/sshd").unwrap();
        }
        // Another process may take the port between: then it is tried with another one.
        let (port, running) = loop {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let config = format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
                 PasswordAuthentication no\nPidFile none\nSetEnv \"PATH={path}\"{env}\n",
                file("host"),
                file("key.pub")
            );
            write(&dir.join("sshd_config"), 0o600, &config);
            let args = ["-D", "-e", "-f", &file("sshd_config")];
            let mut running = Cli::new(&sshd, laptop.env(), dir.clone(), &args).spawn().await;
            let listens = until("sshd listens or has ended", async || {
                if running.has_ended() {
                    return Some(false);
                }
                TcpStream::connect(("127.0.0.1", port)).await.is_ok().then_some(true)
            });
            if listens.await {
                break (port, running);
            }
        };
        let user = std::fs::read_to_string("/etc/passwd").unwrap();
        let own = rustix::process::getuid().to_string();
        let user = user.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[2] == own);
        let config = format!(
            "Host {HOST}\nHostName 127.0.0.1\nPort {port}\nUser {}\nIdentityFile {}\nIdentitiesOnly yes\nBatchMode yes\n\
             UserKnownHostsFile {}\nStrictHostKeyChecking accept-new\nLogLevel ERROR\n",
            user.unwrap()[0],
            file("key"),
            file("known")
        );
        write(&dir.join("config"), 0o600, &config);
        write(&bin.join("ssh"), 0o755, &format!("#!/bin/sh\nexec {} -F {} \"$@\"\n", ssh.display(), file("config")));
        Some(Self { laptop, bin, _sshd: running })
    }

    /// The laptop's environment.
    fn env(&self) -> Vec<(String, String)> {
        let path = format!("{}:{}", self.bin.display(), std::env::var("PATH").unwrap());
        let env = self
            .laptop
            .env()
            .into_iter()
            .map(|(name, value)| (name.clone(), if name == "PATH" { path.clone() } else { value }));
        env.collect()
    }

    /// A shell script on the laptop.
    fn script(&self, text: &str) -> Cli {
        Cli::new(Path::new("/bin/bash"), self.env(), self.laptop.workspace(), &["-euc", text])
    }

    /// The laptop's end of a forwarded socket.
    fn socket(&self) -> PathBuf {
        self.laptop.root().join("r/far.sock")
    }

    /// Forwards the server's socket until it is killed.
    async fn forward(&self, daemon: &Daemon) -> Running {
        let forward = format!("{}:{}", self.socket().display(), daemon.dirs.socket().display());
        let args = ["-N", "-o", "ExitOnForwardFailure=yes", "-o", "StreamLocalBindUnlink=yes", "-L", &forward, HOST];
        let ssh = Cli::new(&self.bin.join("ssh"), self.env(), self.laptop.workspace(), &args).spawn().await;
        until("the tunnel is open", async || std::os::unix::net::UnixStream::connect(self.socket()).ok()).await;
        ssh
    }

    /// `linger ARGS` on the laptop, through the tunnel.
    fn cli(&self, args: &[&str]) -> Cli {
        self.local(args).env("LINGER_SOCKET", &self.socket().display().to_string())
    }

    /// `linger ARGS` on the laptop.
    fn local(&self, args: &[&str]) -> Cli {
        Cli::new(&programs().client, self.env(), self.laptop.workspace(), args)
    }

    /// Whether a daemon was started on the laptop.
    fn has_local_daemon(&self) -> bool {
        // The command line of a tunnel names the server's socket.
        let is_daemon =
            |process: &process::Process| process.command.contains("lingerd") && !process.command.contains("ssh");
        process::of_directory(self.laptop.root()).iter().any(is_daemon)
    }
}

/// The commands of the manual's page, a block each.
fn blocks(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../daemon/manual").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    text.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_page_about_another_machine_works_word_for_word() {
    let model = ModelServer::scripted(|_| Reply::text("the tests pass"));
    let daemon = Daemon::start(&model).await;
    let Some(tunnel) = Tunnel::to(&daemon).await else { return };
    std::fs::create_dir_all(daemon.dirs.root().join("h/src/app")).unwrap();
    let blocks = blocks("another-machine.md");
    let [there, open, work, close, token] = blocks.as_slice() else { panic!("other blocks: {blocks:#?}") };
    let client = daemon.client().await;
    client.create_with(json!({ "name": "mine" })).await;

    // All but the commands for a terminal, in one shell.
    let (work, attach) = work.split_at(work.find("linger attach").unwrap());
    let script = format!(
        "{open}\n{work}\nlinger wait tests >&2\nlinger log --last\n{token}\n{close}\nlinger ls 2>&1 || echo \"code $?\"\n"
    );
    let output = tunnel.script(&script).run().await.exits(0);
    assert!(output.stdout.contains("mine") && output.stdout.contains("the tests pass"), "{output:?}");
    assert_eq!(output.stderr.matches("cannot verify that").count(), 1, "it is said once: {output:?}");
    // Without the tunnel and its variable, the laptop has a daemon and sessions of its own.
    assert!(output.stdout.trim_end().ends_with("starts one"), "{output:?}");
    tunnel.local(&["daemon", "stop"]).run().await.exits(0);
    let rows = client.call("session/list", json!({})).await;
    let directories: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["cwd"].as_str().unwrap()).collect();
    assert!(directories.iter().any(|cwd| cwd.ends_with("/h/src/app")), "{directories:?}");

    // The ones for a terminal: both reach the session.
    for (script, what) in [(there.clone(), "there"), (format!("{open}\n{attach}"), "from here")] {
        let mut terminal =
            Pty::open(Path::new("/bin/bash"), &tunnel.env(), &tunnel.laptop.workspace(), &["-euc", &script]);
        terminal.shows("the tests pass").await;
        terminal.line(&format!("hello from {what}"));
        until("the prompt arrives", async || {
            model.requests().iter().any(|request| request.last_words().contains(what)).then_some(())
        })
        .await;
    }
    tunnel.script(close).run().await.exits(0);
}

#[tokio::test]
async fn a_dead_tunnel_is_an_error_and_never_a_daemon_of_this_machine() {
    let daemon = Daemon::start(&ModelServer::start()).await;
    let Some(tunnel) = Tunnel::to(&daemon).await else { return };
    let ssh = tunnel.forward(&daemon).await;
    tunnel.cli(&["ls"]).run().await.exits(0);
    let far = tunnel.socket().display().to_string();
    // Killed, it leaves its socket.
    ssh.signal(Signal::KILL);
    ssh.end().await;
    for args in [
        ["ls"].as_slice(),
        &["run", "-m", "demo", "say: hi"],
        &["run", "-d", "-m", "demo", "say: hi"],
        &["new", "-m", "demo"],
        &["attach"],
        &["daemon", "start"],
        &["daemon", "status"],
        &["daemon", "stop"],
        &["daemon", "stop", "--force"],
        &["daemon", "restart"],
        &["daemon", "restart", "--now"],
        &["gateway", "start"],
        &["gateway", "url"],
        &["doctor"],
        &["doctor", "--repair"],
    ] {
        let output = tunnel.cli(args).run().await;
        let code = if args[0] == "doctor" { 1 } else { 5 };
        assert_eq!(output.code, code, "{args:?}: {output:?}");
        assert!(format!("{}{}", output.stdout, output.stderr).contains(&far), "{args:?}: {output:?}");
        assert!(!tunnel.has_local_daemon(), "{args:?}");
    }
    // The socket itself is gone, then its directory.
    std::fs::remove_file(tunnel.socket()).unwrap();
    tunnel.cli(&["ls"]).run().await.fails_with_hint(5).says(&far);
    tunnel.local(&["ls"]).env("LINGER_SOCKET", &format!("{far}.d/x.sock")).run().await.fails_with_hint(5).says(&far);
    // The far end leads nowhere.
    let gone = tunnel.forward(&daemon).await;
    daemon.cli(&["daemon", "stop"]).run().await.exits(0);
    tunnel.cli(&["ls"]).run().await.fails_with_hint(5).says(&far);
    assert!(!tunnel.has_local_daemon());
    drop(gone);
}

#[tokio::test]
async fn a_laptops_stop_never_reaches_the_servers_daemon() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let pid = daemon.pid().await;
    let Some(tunnel) = Tunnel::to(&daemon).await else { return };
    let ssh = tunnel.forward(&daemon).await;
    for args in [["daemon", "stop"].as_slice(), &["daemon", "stop", "--now"], &["daemon", "restart", "--now"]] {
        tunnel.cli(args).run().await.fails_with_hint(5).says("not a socket of this machine's daemon");
    }
    tunnel.cli(&["doctor", "--repair"]).run().await.exits(1);
    drop(ssh);
    std::fs::remove_file(tunnel.socket()).unwrap();
    // A daemon of the laptop's took the tunnel's path, and the tunnel took it back.
    let lingerd = programs().daemon.clone();
    let socket = tunnel.socket().display().to_string();
    let own =
        Cli::new(&lingerd, tunnel.env(), tunnel.laptop.workspace(), &[]).env("LINGER_SOCKET", &socket).spawn().await;
    until("the laptop's daemon listens", async || std::os::unix::net::UnixStream::connect(&socket).ok()).await;
    tunnel.cli(&["ls"]).run().await.exits(0);
    process::signal(own.pid(), Signal::STOP);
    let children = process::descendants(own.pid());
    children.iter().for_each(|child| process::signal(child.pid, Signal::STOP));
    let ssh = tunnel.forward(&daemon).await;
    tunnel.local(&["daemon", "stop", "--force"]).run().await.exits(0).says("sending SIGTERM");
    assert!(!tunnel.has_local_daemon());
    assert_eq!(daemon.pid().await, pid, "the server's daemon runs on");
    drop(ssh);
    // A tunnel in the place of the laptop's own socket.
    let default = tunnel.laptop.socket();
    std::os::unix::fs::symlink(daemon.dirs.socket(), &default).unwrap();
    let refused = tunnel.local(&["daemon", "stop", "--force"]).run().await.fails_with_hint(5);
    assert!(refused.stderr.contains("is not your daemon"), "{refused:?}");
    assert_eq!(daemon.pid().await, pid);
}

#[tokio::test]
async fn a_session_through_a_tunnel_has_the_servers_home_and_is_answered_from_the_laptop() {
    let model = ModelServer::scripted(|request| {
        if request.after_tool() {
            Reply::text("done")
        } else {
            bash("echo \"home=$HOME path=$PATH user=$USER laptop=$LAPTOP\"; pwd")
        }
    });
    let daemon = Daemon::start_with(&model, Setup { mode: "ask", ..Setup::default() }).await;
    let Some(tunnel) = Tunnel::to(&daemon).await else { return };
    let _ssh = tunnel.forward(&daemon).await;
    let home = daemon.dirs.root().join("h").display().to_string();
    let laptop = tunnel.laptop.root().join("only-here");
    std::fs::create_dir(&laptop).unwrap();
    let begin = tunnel.cli(&["run", "-d", "go"]).env("LAPTOP", "secret").run().await.exits(0);
    let session = begin.word().to_owned();
    let client = daemon.client().await;
    client.attach(&session).await;
    let question =
        client.first(&session, "permission_requested").await.event["permission"].as_str().unwrap().to_owned();
    tunnel.cli(&["inbox"]).run().await.exits(0);
    tunnel.cli(&["answer", &question, "allow"]).run().await.exits(0);
    let by = client.first(&session, "permission_resolved").await.event["by"].as_str().unwrap().to_owned();
    assert!(by.ends_with(" via ssh"), "{by}");
    let said = client.first(&session, "tool_finished").await.event["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(
        said.contains(&format!("home={home} path=")) && !said.contains("path= ") && said.contains("laptop=\n"),
        "{said}"
    );
    // The laptop's directories are there too, as both are this machine: but one that was removed.
    let script = format!("cd {0} && rmdir {0} && exec linger new", laptop.display());
    let made = tunnel.script(&script).env("LINGER_SOCKET", &tunnel.socket().display().to_string()).run().await.exits(0);
    let row = client.call("session/list", json!({ "matching": made.word() })).await;
    assert_eq!(row[0]["cwd"].as_str().unwrap(), std::fs::canonicalize(&home).unwrap().display().to_string());
    // Named directories count from the home directory there.
    std::fs::create_dir_all(Path::new(&home).join("src/app")).unwrap();
    let made = tunnel.cli(&["new", "-C", "src/app"]).run().await.exits(0);
    let row = client.call("session/list", json!({ "matching": made.word() })).await;
    assert!(row[0]["cwd"].as_str().unwrap().ends_with("/h/src/app"), "{row}");
    tunnel.cli(&["new", "-C", "src/none"]).run().await.fails_with_hint(2).says("src/none");
    let doctor = tunnel.cli(&["doctor"]).run().await;
    assert!(doctor.stdout.contains("on another machine"), "{doctor:?}");
    assert!(!doctor.stdout.contains(&tunnel.laptop.config().display().to_string()), "{doctor:?}");
}

#[tokio::test]
async fn a_page_on_the_laptop_logs_in_and_answers_through_a_forwarded_unix_socket() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let daemon = Daemon::start(&ModelServer::start()).await;
    let Some(tunnel) = Tunnel::to(&daemon).await else { return };
    let socket = daemon.dirs.state().join("http.sock").display().to_string();
    for (key, value) in [("listen", format!("unix:{socket}")), ("public_url", format!("http://localhost:{port}"))] {
        daemon.cli(&["config", "set", &format!("gateway.{key}"), &value]).run().await.exits(0);
    }
    daemon.cli(&["gateway", "start"]).run().await.exits(0);
    let block = blocks("http.md").into_iter().find(|block| block.contains("ssh -NL")).unwrap();
    let block = block.replace("8080", &port).replace("/home/you/.local/state/linger/http.sock", &socket);
    let (url, forward) = block.split_once('\n').unwrap();
    let link = tunnel.script(url).run().await.exits(0).word().to_owned();
    let (page, code) = link.split_once("/#code=").unwrap();
    assert_eq!(page, format!("http://localhost:{port}"));
    let ssh = tunnel.script(&format!("exec {forward}")).spawn().await;
    until("the port is forwarded", async || TcpStream::connect(("127.0.0.1", port.parse().unwrap())).await.ok()).await;
    let curl = |more: &str| tunnel.script(&format!("curl -s -b jar -c jar -H 'Origin: {page}' {more}"));
    let login = curl(&format!("-d '{}' {page}/login", json!({ "code": code }))).run().await.exits(0);
    assert_eq!(login.json()[0]["grant"]["name"], "page", "{login:?}");
    // All that the page may, as its process is known: also in a session that asks nothing.
    let create =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "session/create", "params": { "cwd": "~", "mode": "auto" } });
    let made = curl(&format!("-d '{create}' {page}/rpc")).run().await.exits(0);
    assert_eq!(made.json()[0]["result"]["mode"], "auto", "{made:?}");
    let other =
        tunnel.script(&format!("curl -s -b jar -H 'Origin: http://localhost:1' {page}/me")).run().await.exits(0);
    assert!(other.stdout.contains("wrong_origin"), "{other:?}");
    drop(ssh);
    daemon.cli(&["gateway", "stop"]).run().await.exits(0);
}
