//! A model server that others wrote: `@copilotkit/aimock`, which speaks all five wire formats as its authors read them.
//!
//! Its answers are what a file of fixtures says. It is no truth about any wire (`model` is byte for byte what the vendors
//! send); it is a second opinion: what it makes of our requests, and what we make of its answers.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{Dirs, profile};

/// Where `.ci/run` puts it, in the target directory, and the variable that names another place.
const PLACE: &str = "aimock";
const VARIABLE: &str = "LINGER_AIMOCK";

/// Its program in that place, which `node` in the same place runs.
const PROGRAM: &str = "node_modules/@copilotkit/aimock/dist/cli.js";

/// A running server; it ends when dropped.
pub struct Aimock {
    url: String,
    child: Child,
}

impl Aimock {
    /// The key that it wants to see with each request.
    pub const KEY: &str = "canary-of-the-other-mock-0123456789";

    /// Starts one with these fixtures, which says seven characters at a time. Nothing where it is not
    /// installed, which is said.
    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    pub fn start(dirs: &Dirs, fixtures: &Value) -> Option<Self> {
        let place = place();
        let program = place.join(PROGRAM);
        if !program.exists() {
            assert!(std::env::var_os("CI").is_none(), "{} is not there: see tests/README.md", program.display());
            eprintln!("not run: {} is not there; tests/README.md says how to install it", program.display());
            return None;
        }
        let file = dirs.root().join("fixtures.json");
        std::fs::write(&file, fixtures.to_string()).expect("the fixtures can be written");
        let mut command = Command::new(place.join("node"));
        command.arg(program).args(["--port", "0", "--chunk-size", "7", "--strict", "--validate-on-load", "--fixtures"]);
        command.arg(file).env_clear().env("AIMOCK_API_KEYS", Self::KEY).current_dir("/");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("node can be run");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines().map_while(Result::ok);
        let mut said = Vec::new();
        let url = lines.by_ref().find_map(|line| {
            let url = line.split_once("listening on ").map(|(_, url)| url.trim().to_owned());
            said.push(line);
            url
        });
        let Some(url) = url else { panic!("the mock has not started: {said:?}") };
        // The rest is read, so that it is not stopped by a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { url, child })
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Aimock {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

fn place() -> PathBuf {
    let profile = profile();
    let target = profile.parent().unwrap_or(Path::new("target")).join(PLACE);
    std::env::var_os(VARIABLE).map_or(target, |place: OsString| PathBuf::from(place))
}
