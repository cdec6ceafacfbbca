//! The login of the daemon's own user: home directory and the variables that a login gives, for sessions of clients on other
//! machines. Nothing else of the daemon's environment is read here, and no shell is run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The variables of a login; all others of the daemon's own environment stay its own.
const NAMES: [&str; 9] = ["HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ"];

/// The search path of a login without one.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// The longest file of users that is read, in bytes: a large site has ten thousand lines of a hundred.
const MAX_USERS: u64 = 4 << 20;

/// The home directory of the daemon's user.
pub fn home() -> Option<PathBuf> {
    variables().get("HOME").map(PathBuf::from)
}

/// `~` and `~/DIR` as a directory of the daemon's user; any other path as it is.
pub fn expand(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), home()) {
        (Ok(rest), Some(home)) if rest.as_os_str().is_empty() => home,
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_path_buf(),
    }
}

/// The login variables: as the daemon was started with them, else as the system's file of users has them.
pub fn variables() -> BTreeMap<String, String> {
    from(|name| std::env::var(name).ok().filter(|value| !value.is_empty()), &users())
}

fn from(own: impl Fn(&str) -> Option<String>, users: &str) -> BTreeMap<String, String> {
    let uid = rustix::process::getuid().as_raw();
    let mut lines = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let user = lines.find(|fields| fields.get(2).and_then(|field| field.parse().ok()) == Some(uid));
    let field = |at: usize| {
        let fields = user.as_ref()?;
        fields.get(at).filter(|field| !field.is_empty()).map(|field| (*field).to_owned())
    };
    let usual = |name: &str| match name {
        "HOME" => field(5),
        "USER" | "LOGNAME" => field(0),
        "SHELL" => field(6),
        "PATH" => Some(PATH.to_owned()),
        _ => None,
    };
    NAMES.iter().filter_map(|name| Some(((*name).to_owned(), own(name).or_else(|| usual(name))?))).collect()
}

/// The system's file of users, as passwd(5) has it; empty if it cannot be read.
fn users() -> String {
    use std::io::Read as _;
    let mut text = Vec::new();
    let read = std::fs::File::open("/etc/passwd").and_then(|file| file.take(MAX_USERS).read_to_end(&mut text));
    read.map(|_| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_has_its_own_variables_and_what_the_system_says_of_the_user() {
        let uid = rustix::process::getuid();
        let users = format!("other:x:77777:1::/other:/bin/other\nme:x:{uid}:5:Me:/home/me:/bin/zsh\n");
        let given = |own: &[(&str, &str)]| {
            let own: BTreeMap<_, _> = own.iter().copied().collect();
            from(|name| own.get(name).map(|value| (*value).to_owned()), &users)
        };
        let bare = given(&[]);
        let names = ["HOME", "LOGNAME", "USER", "SHELL", "PATH", "LANG"].map(|name| bare.get(name).map(String::as_str));
        assert_eq!(names, [Some("/home/me"), Some("me"), Some("me"), Some("/bin/zsh"), Some(PATH), None]);
        let own =
            given(&[("HOME", "/h"), ("PATH", "/p"), ("LANG", "C"), ("AWS_SECRET_ACCESS_KEY", "x"), ("EDITOR", "vi")]);
        assert_eq!((own["HOME"].as_str(), own["PATH"].as_str(), own["LANG"].as_str()), ("/h", "/p", "C"));
        assert!(own.keys().all(|name| NAMES.contains(&name.as_str())), "{own:?}");
        assert!(from(|_| None, "nonsense\n::\n").keys().eq(["PATH"]));
    }

    #[test]
    fn a_tilde_is_the_home_directory_and_a_name_that_begins_with_one_is_not() {
        let home = home().unwrap();
        for (path, expect) in
            [("~", home.clone()), ("~/src/x", home.join("src/x")), ("~other", "~other".into()), ("/a/~", "/a/~".into())]
        {
            assert_eq!(expand(Path::new(path)), expect, "{path}");
        }
    }
}
