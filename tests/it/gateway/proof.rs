//! A gateway between strangers: it sends nothing to a process that took the daemon's socket, believes no process that hides from it,
//! and finds the daemon again whenever that starts.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use linger_tests::harness::{Cli, process};
use rustix::process::Signal;

use super::*;

/// Takes the place of the daemon's socket, and keeps every line that it hears.
fn impostor(path: &Path) -> Arc<Mutex<Vec<String>>> {
    // Renamed over it, so that the daemon's file never vanishes.
    let aside = path.with_extension("aside");
    let listener = UnixListener::bind(&aside).unwrap();
    std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&aside, path).unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let all = heard.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, all) = (stream.unwrap(), all.clone());
            std::thread::spawn(move || {
                for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                    let request: Value = serde_json::from_str(&line).unwrap();
                    all.lock().unwrap().push(line);
                    let result = json!({ "protocol": 1, "version": "0.1.0", "env": [], "keys": [], "token": "lng_x",
                        "grant": { "name": "x", "can": ["observe"], "expires_at": 0 } });
                    let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
                    let _gone = (&stream).write_all(format!("{answer}\n").as_bytes());
                }
            });
        }
    });
    heard
}

#[tokio::test]
async fn a_stranger_at_the_daemons_socket_gets_no_token_and_no_code_and_the_gateway_says_so() {
    let daemon = Daemon::start(&ModelServer::start()).await;
    let gateway = Gateway::start(&daemon).await;
    let token = token(&daemon, &EVERYTHING).await;
    let url =
        daemon.cli(&["gateway", "url", "--json"]).run().await.exits(0).json()[0]["url"].as_str().unwrap().to_owned();
    let code = url.split_once("/#code=").unwrap().1.to_owned();
    assert_eq!(gateway.http.send(get("/me").token(&token)).await.status, 200);
    // Stopped, the daemon does not bind its socket again.
    let pid = daemon.pid().await;
    process::signal(pid, Signal::STOP);
    let heard = impostor(&daemon.dirs.socket());
    let own = format!("process {} ", std::process::id());
    let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/list", "params": {} });
    for request in [
        get("/me").token(&token),
        get("/me").header("cookie", &format!("linger={token}")),
        post("/rpc", rpc).token(&token),
        post("/login", json!({ "code": code })),
        get("/events").token(&token),
        get("/artifact/").token(&token),
        get("/v1/models").token(&token),
        post("/v1/chat/completions", json!({ "model": "x/y", "messages": [] })).token(&token),
    ] {
        let refused = gateway.http.send(request.clone()).await;
        let text = String::from_utf8_lossy(&refused.body).into_owned();
        assert_eq!(refused.status, 503, "{request:?}: {text}");
        assert!(text.contains(&own) && text.contains("it is not the daemon"), "{request:?}: {text}");
    }
    assert_eq!(*heard.lock().unwrap(), [""; 0], "not a word");
    // The daemon takes its socket back, and neither the token nor the code is spent.
    std::fs::remove_file(daemon.dirs.socket()).unwrap();
    process::signal(pid, Signal::CONT);
    process::signal(daemon.keeper(), Signal::HUP);
    until("the daemon is back", async || {
        (gateway.http.send(get("/me").token(&token)).await.status == 200).then_some(())
    })
    .await;
    assert_eq!(gateway.http.send(post("/login", json!({ "code": code }))).await.status, 200);
}

#[tokio::test]
async fn a_gateway_is_not_started_for_a_stranger() {
    let daemon = Daemon::start(&ModelServer::start()).await;
    let pid = daemon.pid().await;
    process::signal(pid, Signal::STOP);
    let heard = impostor(&daemon.dirs.socket());
    let output = daemon.cli(&["gateway", "start"]).run().await.fails_with_hint(5);
    assert!(output.stderr.contains("it is not the daemon"), "{output:?}");
    let program = &linger_tests::harness::programs().daemon;
    let direct = Cli::new(program, daemon.env(false), daemon.workspace(), &["--gateway"]).run().await.exits(1);
    assert!(direct.stderr.contains("it is not the daemon"), "{direct:?}");
    assert!(heard.lock().unwrap().iter().all(|line| line.contains("\"linger@")), "{heard:?}");
    std::fs::remove_file(daemon.dirs.socket()).unwrap();
    process::signal(pid, Signal::CONT);
}

#[tokio::test]
async fn the_gateway_finds_the_daemon_again_whenever_it_starts() {
    let daemon = Daemon::start(&ModelServer::start()).await;
    let gateway = Gateway::start(&daemon).await;
    let token = token(&daemon, &["observe"]).await;
    let me = async || gateway.http.send(get("/me").token(&token)).await.status;
    let address = gateway.http.host();
    for round in 0..3 {
        daemon.kill_daemon().await;
        // Without a pause: the request waits for the daemon.
        assert_eq!(me().await, 200, "{round}");
        let status = daemon.cli(&["gateway", "status", "--json"]).run().await.exits(0);
        assert_eq!(status.json()[0]["listen"], address);
    }
    daemon.cli(&["daemon", "stop"]).run().await.exits(0);
    let refused = gateway.http.send(get("/me").token(&token)).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!("unavailable")));
    let status = daemon.cli(&["gateway", "status"]).run().await.fails_with_hint(5);
    assert!(status.stderr.contains("waits for the daemon"), "{status:?}");
    // `url` starts the daemon, which the gateway finds.
    let url = daemon.cli(&["gateway", "url"]).run().await.exits(0);
    assert!(url.word().starts_with(&format!("http://{address}/#code=")), "{url:?}");
    assert_eq!(me().await, 200);
    // Waiting takes no processor time.
    daemon.cli(&["daemon", "stop"]).run().await.exits(0);
    let pid = gateway.process.pid();
    let before = process::wakeups(pid);
    daemon.cli(&["gateway", "status"]).run().await.exits(5);
    let wakeups = process::wakeups(pid).saturating_sub(before);
    assert!(wakeups < 50, "{wakeups} wakeups while it waits");
    daemon.cli(&["gateway", "stop"]).run().await.exits(0).says("stopped the gateway");
    daemon.cli(&["gateway", "stop"]).run().await.exits(0).says("the gateway is not running");
}

/// A tool that says everything it can about another gateway, in each of these ways.
const FORGERY: &str = r#"
import fcntl, json, os, socket, sys
state, lie = sys.argv[1], json.dumps({'pid': os.getppid(), 'listen': '127.0.0.1:6', 'url': 'http://127.0.0.1:6', 'version': '0.1.0', 'started_at': 1})
with open(state + '/gateway.lock', 'w') as lock: lock.write(lie)
link = socket.socket(socket.AF_UNIX)
link.connect(state + '/lingerd.sock')
hello = {'jsonrpc': '2.0', 'id': 1, 'method': 'daemon/hello', 'params': {'client': 'x', 'protocol': [1, 1], 'gateway': json.loads(lie)}}
link.sendall((json.dumps(hello) + '\n').encode())
print(link.makefile().readline())
os.rename(state + '/gateway.lock', state + '/old.lock')
mine = open(state + '/gateway.lock', 'w')
mine.write(lie)
mine.flush()
fcntl.flock(mine, fcntl.LOCK_EX)
print('forged', flush=True)
sys.stdin.read()
"#;

#[tokio::test]
async fn where_the_gateway_listens_is_the_daemons_word_and_no_files() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let gateway = Gateway::start(&daemon).await;
    std::fs::write(daemon.workspace().join("forge.py"), FORGERY).unwrap();
    let state = daemon.dirs.state().display().to_string();
    let command = format!(
        "mkfifo hold; python3 forge.py {state} < hold > said 2>&1 & exec 3> hold; until grep -q forged said; do sleep 0.02; done; cat said; sleep 1000"
    );
    model.push([Reply::tool("bash", json!({ "command": command }))]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.attach(&session).await;
    client.prompt(&session, "go").await;
    let said = until("the tool has forged all it can", async || {
        std::fs::read_to_string(daemon.workspace().join("said")).ok().filter(|said| said.contains("forged"))
    })
    .await;
    assert!(said.contains("may not be the gateway"), "{said}");
    let address = gateway.http.host();
    for args in [["gateway", "url"], ["gateway", "status"]] {
        let output = daemon.cli(&args).run().await.exits(0);
        assert!(output.stdout.contains(&address) && !output.stdout.contains("127.0.0.1:6"), "{args:?}: {output:?}");
    }
    // Without the true one, the liar is nothing.
    gateway.process.signal(Signal::KILL);
    until("the daemon knows no gateway", async || {
        let status = client.call("daemon/status", json!({})).await;
        status["gateway"].is_null().then_some(())
    })
    .await;
    let output = daemon.cli(&["gateway", "url"]).run().await.fails_with_hint(5);
    assert!(output.stderr.contains("the daemon knows no gateway"), "{output:?}");
    client.call("session/cancel", json!({ "session": session })).await;
}

/// Asks the gateway from a process that hides in each way, with a token that may all. Arguments: host, port, token, code, session, the
/// gateway's log.
const HIDING: &str = r#"
import array, ctypes, json, os, socket, sys, time
host, port, token, code, session, log = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
libc = ctypes.CDLL(None)
libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody of this user sees its descriptors

def request(path, body, bearer=True):
    body = json.dumps(body)
    auth = f'Authorization: Bearer {token}\r\n' if bearer else ''
    return (f'POST {path} HTTP/1.1\r\nHost: {sys.argv[1]}:{port}\r\n{auth}Content-Length: {len(body)}\r\n'
            f'Content-Type: application/json\r\nConnection: close\r\n\r\n{body}').encode()

def answer(link):
    text = b''
    while True:
        try: more = link.recv(65536)
        except OSError: break
        if not more: break
        text += more
    return text.decode().replace('\r\n', ' ')

def connect(family=socket.AF_INET, address=None):
    link = socket.socket(family)
    link.connect(address or (host, port))
    return link

rpc = lambda method, params: request('/rpc', {'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params})
prompt = rpc('session/prompt', {'session': session, 'content': 'hijacked'})
login = request('/login', {'code': code}, bearer=False)

def say(name, text): print(name, '->', text[:40], '...', text[-260:], flush=True)

# Hidden itself.
for name, sent in [('hidden prompt', prompt), ('hidden login', login)]:
    link = connect(); link.sendall(sent); say(name, answer(link))
# By an IPv4 address in an IPv6 socket.
link = connect(socket.AF_INET6, ('::ffff:' + host, port)); link.sendall(prompt); say('mapped', answer(link))
# The socket is on its way through another one, in no process's hands.
here, there = socket.socketpair()
logged = lambda: open(log).read().count('\n')
before = logged()
link = connect(); link.sendall(prompt)
here.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [link.fileno()]))])
link.close()
while logged() == before: time.sleep(0.02)  # The gateway has judged it.
_, rights, _, _ = there.recvmsg(1, 64)
fds = array.array('i'); fds.frombytes(rights[0][2])
say('on its way', answer(socket.socket(fileno=fds[0])))
# It connects and ends; its child, which left its group and session, goes on.
read, write = os.pipe()
if os.fork() == 0:
    link = connect()
    if os.fork():
        os._exit(0)
    os.setsid()
    link.sendall(prompt)
    os.write(write, answer(link).encode())
    os._exit(0)
os.close(write)
say('forked', os.fdopen(read).read())
# Closed before anybody looks.
link = connect(); link.sendall(prompt); link.close()
# As through a proxy that says so.
for name, header in [('proxied', 'X-Forwarded-For: 127.0.0.1'), ('proxied oddly', 'Forwarded: for=203.0.113.9')]:
    link = connect(); link.sendall(prompt.replace(b'Connection:', header.encode() + b'\r\nConnection:')); say(name, answer(link))
link = connect(); link.sendall(prompt.replace(b'Connection:', b'X-Forwarded-For: 203.0.113.9\r\nConnection:')); say('far', answer(link))
print('all tried', flush=True)
"#;

#[tokio::test]
async fn a_tool_that_hides_from_the_gateway_only_reads_whatever_token_it_holds() {
    hides(None).await;
}

#[tokio::test]
async fn a_tool_of_an_ordinary_user_hides_in_vain_too() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: it takes root to become another user");
        return;
    }
    hides(Some(ORDINARY)).await;
}

/// A user without a name, for processes that root's capabilities would see through.
const ORDINARY: u32 = 64_321;

async fn hides(user: Option<u32>) {
    let model = ModelServer::scripted(|request| match (request.after_tool(), request.last_words().contains("hide")) {
        (false, true) => {
            Reply::tool("bash", json!({ "command": "sh ./hide.sh > out.new 2>&1; mv out.new out; cat out" }))
        }
        _ => Reply::text("done"),
    });
    let Some(world) = World::start(&model, user).await else { return };
    let World { daemon, gateway, .. } = &world;
    let token = world.token().await;
    let url =
        world.cli(&["gateway", "url", "--json"]).run().await.exits(0).json()[0]["url"].as_str().unwrap().to_owned();
    let code = url.split_once("/#code=").unwrap().1.to_owned();
    let create = async |mode: &str| world.cli(&["new", "--mode", mode]).run().await.exits(0).word().to_owned();
    let (victim, thief) = (create("ask").await, create("auto").await);
    let (host, port) = gateway.host_port();
    std::fs::write(daemon.workspace().join("hide.py"), HIDING).unwrap();
    let log = daemon.dirs.state().join("gateway.log").display().to_string();
    std::fs::write(
        daemon.workspace().join("hide.sh"),
        format!("exec python3 hide.py {host} {port} {token} {code} {victim} {log}\n"),
    )
    .unwrap();
    world.give();
    world.cli(&["send", &thief, "hide"]).run().await.exits(0);
    let said =
        until("the tool has tried everything", async || std::fs::read_to_string(daemon.workspace().join("out")).ok())
            .await;
    assert!(said.contains("all tried"), "{said}");
    let tried: Vec<&str> = said.lines().filter(|line| line.contains("->")).collect();
    assert_eq!(tried.len(), 8, "{said}");
    for line in tried {
        let is_refused = line.contains("may not") || line.contains("cannot tell") || line.contains("-31006");
        assert!(is_refused && !line.contains("\"result\""), "{line}");
    }
    let log = world.cli(&["log", &victim, "--json"]).run().await.exits(0);
    assert!(!log.stdout.contains("hijacked"), "{log:?}");
    // The code was not used up: a process of the user's still logs in.
    let login = gateway.http.send(post("/login", json!({ "code": code }))).await;
    let expect = if user.is_none() { 200 } else { 403 };
    assert_eq!(login.status, expect, "{login:?}");
    world.cli(&["gateway", "stop"]).run().await.exits(0);
    if user.is_some() {
        world.cli(&["daemon", "stop", "--force"]).run().await.exits(0);
    }
}

/// A daemon with a gateway, of this user or another.
struct World {
    gateway: Gateway,
    user: Option<u32>,
    /// Ends after its gateway.
    daemon: Daemon,
    /// Its keeper, if another user runs it: it ends with this.
    _keeper: Option<Running>,
}

impl World {
    /// Nothing if the programs cannot be run as that user here.
    async fn start(model: &ModelServer, user: Option<u32>) -> Option<Self> {
        let Some(uid) = user else {
            let daemon = Daemon::auto(model).await;
            let gateway = Gateway::start(&daemon).await;
            return Some(Self { gateway, user, daemon, _keeper: None });
        };
        let daemon = Daemon::prepare(model, Setup { mode: "auto", ..Setup::default() });
        let program = &linger_tests::harness::programs().daemon;
        // A directory of root's may stand above the programs: then there are copies.
        let bin = daemon.dirs.root().join("bin");
        std::fs::create_dir(&bin).unwrap();
        for program in [program, &linger_tests::harness::programs().client] {
            std::fs::copy(program, bin.join(program.file_name().unwrap())).unwrap();
        }
        own(daemon.dirs.root(), uid);
        let as_user = |args: &[&str]| as_user(&daemon, uid, args);
        let lingerd = bin.join("lingerd").display().to_string();
        let mut running = as_user(&[&lingerd, "--background"]).spawn().await;
        assert_eq!(running.line().await.as_deref(), Some("ready"));
        let linger = bin.join("linger").display().to_string();
        let process = as_user(&[&linger, "gateway", "start", "--foreground"]).spawn().await;
        let address = until("the gateway listens", async || {
            let status = as_user(&[&linger, "gateway", "status", "--json"]).run().await;
            status.json().first()?["listen"].as_str().map(str::to_owned)
        });
        let gateway = Gateway { http: Http::new(address.await.parse().unwrap()), process };
        Some(Self { gateway, user, daemon, _keeper: Some(running) })
    }

    fn cli(&self, args: &[&str]) -> Cli {
        let Some(uid) = self.user else { return self.daemon.cli(args) };
        let linger = self.daemon.dirs.root().join("bin/linger").display().to_string();
        as_user(&self.daemon, uid, &[&[linger.as_str()], args].concat())
    }

    async fn token(&self) -> String {
        let can = EVERYTHING.join(",");
        self.cli(&["token", "mint", "found", "--can", &can, "--mode", "auto"]).run().await.exits(0).word().to_owned()
    }

    /// Gives the user what the test has written.
    fn give(&self) {
        if let Some(uid) = self.user {
            own(&self.daemon.workspace(), uid);
        }
    }
}

fn as_user(daemon: &Daemon, uid: u32, args: &[&str]) -> Cli {
    let uid = uid.to_string();
    let words = [&["--reuid", &uid, "--regid", &uid, "--clear-groups", "--inh-caps=-all"], args].concat();
    Cli::new(Path::new("/usr/bin/setpriv"), daemon.env(true), daemon.workspace(), &words)
}

/// Gives a directory and all in it to a user.
fn own(dir: &Path, uid: u32) {
    std::os::unix::fs::lchown(dir, Some(uid), Some(uid)).unwrap();
    for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() && !entry.is_symlink() {
            own(&entry, uid);
        } else {
            std::os::unix::fs::lchown(&entry, Some(uid), Some(uid)).unwrap();
        }
    }
}
