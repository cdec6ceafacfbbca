//! A Secret Service of one's own: a D-Bus session and GNOME's keyring in the directories of a test, unlocked or locked.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use super::{Dirs, until};

/// What the session's bus does: everybody on it may do everything, and it starts nobody. With the machine's own configuration it
/// starts a keychain for whoever asks before this one's has come, which is locked for ever and keeps the name.
const BUS: &str = r#"<busconfig>
  <type>session</type>
  <listen>unix:path=ROOT/bus</listen>
  <policy context="default">
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
    <allow own="*"/>
  </policy>
</busconfig>
"#;

/// The programs that it needs, and the packages that have them.
const NEEDED: [&str; 2] = ["dbus-daemon", "gnome-keyring-daemon"];

/// A running keychain; it ends when dropped.
pub struct Keychain {
    address: String,
    env: Vec<(String, String)>,
    bus: Child,
    service: Child,
}

impl Keychain {
    /// Starts one whose password is known to it, or one that is locked. Nothing where the machine has none, which is said.
    pub async fn start(dirs: &Dirs, unlocked: bool) -> Option<Self> {
        if let Some(missing) = NEEDED.iter().find(|program| !has(program)) {
            assert!(std::env::var_os("CI").is_none(), "install dbus and gnome-keyring");
            eprintln!("not run: this machine has no {missing} (packages dbus and gnome-keyring)");
            return None;
        }
        let mut env = dirs.env();
        let config = dirs.root().join("bus.conf");
        std::fs::write(&config, BUS.replace("ROOT", &dirs.root().display().to_string()))
            .expect("the bus's configuration");
        let mut bus = command("dbus-daemon", &env);
        let bus = bus.arg("--config-file").arg(config).args(["--nofork", "--print-address"]).stdout(Stdio::piped());
        let mut bus = bus.spawn().expect("dbus-daemon can be run");
        let mut address = String::new();
        let stdout = bus.stdout.take().expect("stdout is a pipe");
        BufReader::new(stdout).read_line(&mut address).expect("dbus-daemon says where it is");
        let address = address.trim().to_owned();
        env.push(("DBUS_SESSION_BUS_ADDRESS".to_owned(), address.clone()));
        let service = service(&env, unlocked);
        let mut keychain = Self { address, env, bus, service };
        keychain.is_there(unlocked).await;
        Some(keychain)
    }

    /// Locks it: another one takes its place that does not know the password.
    pub async fn lock(&mut self) {
        end(&mut self.service);
        self.service = service(&self.env, false);
        self.is_there(false).await;
    }

    /// Unlocks it again.
    pub async fn unlock(&mut self) {
        end(&mut self.service);
        self.service = service(&self.env, true);
        self.is_there(true).await;
    }

    /// The variable by which programs find it.
    pub fn env(&self) -> (String, String) {
        ("DBUS_SESSION_BUS_ADDRESS".to_owned(), self.address.clone())
    }

    async fn is_there(&mut self, unlocked: bool) {
        let program = &super::programs().daemon;
        let env = self.env.clone();
        let does = |task: &str, account: &str| {
            let mut helper = command(program.to_str()?, &env);
            let output = helper.args(["--keychain", task, account]).stdout(Stdio::piped()).output().ok()?;
            (output.stdout == b"\"done\"\n").then_some(())
        };
        until("the keychain is there", async || does("check", "")).await;
        if unlocked {
            // It is there a moment before it has taken its password.
            until("the keychain is open", async || does("set", "probe").and_then(|()| does("remove", "probe"))).await;
        }
    }
}

impl Drop for Keychain {
    fn drop(&mut self) {
        end(&mut self.service);
        end(&mut self.bus);
    }
}

fn service(env: &[(String, String)], unlocked: bool) -> Child {
    let mut command = command("gnome-keyring-daemon", env);
    command.args(["--foreground", "--components=secrets"]).args(unlocked.then_some("--unlock"));
    let mut child = command.stdin(Stdio::piped()).spawn().expect("gnome-keyring-daemon can be run");
    // Its end says that this is all of the password.
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    if unlocked {
        stdin.write_all(b"password").expect("it reads its password");
    }
    child
}

#[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
fn command(program: &str, env: &[(String, String)]) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(env.iter().cloned()).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn end(child: &mut Child) {
    // It may have ended by itself.
    let _gone = child.kill();
    let _status = child.wait();
}

#[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}
