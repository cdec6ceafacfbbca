//! The surroundings that decide which program a command's name means and what it does: variables of the session, and the PATH. Blocks on the disk.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::tool::Workspace;

/// Variables that steer the shell or one of these programs: what the words say is then not the whole.
const STEERING: &str = "BASH_ENV ENV SHELLOPTS BASHOPTS GLOBIGNORE CDPATH POSIXLY_CORRECT IFS GREP_OPTIONS RIPGREP_CONFIG_PATH \
                        GCONV_PATH LOCPATH NLSPATH GLIBC_TUNABLES BASH_XTRACEFD PS4 PROMPT_COMMAND FIGNORE EXECIGNORE \
                        LESSOPEN LESSCLOSE TZDIR BASH_COMPAT BASH_LOADABLES_PATH MALLOC_TRACE RESOLV_HOST_CONF TAPE PWD OLDPWD";

/// How such names begin.
const STEERING_START: [&str; 5] = ["BASH_FUNC_", "LD_", "DYLD_", "GIT_", "_RLD"];

/// Directories in which everybody may put a program.
const SHARED: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Whether no variable steers what these commands do.
pub(super) fn are_plain(env: &BTreeMap<String, String>) -> bool {
    let steers = |name: &str| {
        STEERING.split_whitespace().any(|it| it == name) || STEERING_START.iter().any(|start| name.starts_with(start))
    };
    !env.keys().any(|name| steers(name))
}

/// Whether the program that this name means lies outside the workspace and where everybody may write.
pub(super) fn is_foreign(name: &str, workspace: &Workspace) -> bool {
    let Some(path) = workspace.env.get("PATH") else { return false };
    for dir in path.split(':').map(Path::new) {
        // A relative one means another directory with each `cd`.
        if !dir.is_absolute() {
            return false;
        }
        let program = dir.join(name);
        let is_program = program.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0);
        if is_program {
            return program.canonicalize().is_ok_and(|real| {
                !is_all_in_one(&real) && [dir.to_path_buf(), real].iter().all(|place| is_elsewhere(place, workspace))
            });
        }
    }
    false
}

/// Whether it is one program in the place of many, whose options mean something else: `grep -r` follows links.
fn is_all_in_one(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    ["busybox", "toybox"].iter().any(|it| name.contains(it))
}

/// Whether a place is neither in the workspace, nor where everybody may write.
fn is_elsewhere(place: &Path, workspace: &Workspace) -> bool {
    let is_own = workspace.contains(place) || workspace.bound_by.as_ref().is_some_and(|root| place.starts_with(root));
    !is_own && !SHARED.iter().any(|shared| place.starts_with(shared))
}
