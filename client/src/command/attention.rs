//! Checks the programs that `[attention]` names, for `linger doctor`: can each be run?
//!
//! Searches like the daemon: a name in the PATH of this shell, which becomes the PATH of its sessions; a path as it is, from `/`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use serde_json::Value;

/// The program that the daemon runs for `desktop`.
const NOTIFY_SEND: &str = "notify-send";

/// A program named in the configuration.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Name or path, as written.
    pub(super) name: String,
    /// Why it cannot be run, and how to fix that.
    pub(super) problem: Option<(String, String)>,
}

/// The programs that these settings name.
pub(super) fn programs(settings: &Value) -> Vec<Program> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = settings.pointer("/attention/command/0").and_then(Value::as_str).map(|name| ("attention.command", name));
    let desktop = settings.pointer("/attention/desktop").and_then(Value::as_bool).unwrap_or_default();
    let desktop = desktop.then_some(("attention.desktop", NOTIFY_SEND));
    own.into_iter().chain(desktop).map(|(key, name)| probe(key, name, &path)).collect()
}

fn probe(key: &str, name: &str, path: &OsStr) -> Program {
    let problem = if name.contains('/') {
        let file = Path::new("/").join(name);
        match (file.is_file(), runs(&file)) {
            (_, true) => None,
            (true, false) => Some(("is not executable", format!("run `chmod +x {}`, or set {key}", file.display()))),
            (false, false) => Some(("does not exist", format!("put the program there, or set {key}"))),
        }
    } else {
        let found = std::env::split_paths(path).map(|dir| Path::new("/").join(dir).join(name)).any(|file| runs(&file));
        let hint = format!("install it in a directory of PATH, or set {key}");
        (!found).then_some(("is not in a directory of PATH", hint))
    };
    let problem = problem.map(|(why, hint)| (format!("{key}: {name} {why}"), hint));
    Program { name: name.to_owned(), problem }
}

fn runs(file: &PathBuf) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_program_that_cannot_run_has_a_problem_with_a_fix() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        for (name, mode) in [("runs", 0o755), ("text", 0o644)] {
            fs::write(at(name), "").unwrap();
            fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        }
        let check = |name: &str, expect: Option<(&str, &str)>| {
            let problem = probe("attention.command", name, dir.path().as_os_str()).problem;
            let expect = expect.map(|(why, hint)| {
                (format!("attention.command: {name} {why}"), format!("{hint}, or set attention.command"))
            });
            assert_eq!(problem, expect);
        };
        check("runs", None);
        check(&at("runs"), None);
        let install = "install it in a directory of PATH";
        check("text", Some(("is not in a directory of PATH", install)));
        check("none", Some(("is not in a directory of PATH", install)));
        check(&at("text"), Some(("is not executable", &format!("run `chmod +x {}`", at("text")))));
        check(&at("none"), Some(("does not exist", "put the program there")));
        check(&dir.path().to_string_lossy(), Some(("does not exist", "put the program there")));
    }
}
