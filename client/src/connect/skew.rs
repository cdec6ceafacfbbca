//! A daemon of another version than this client, whose protocol it speaks all the same.

use crate::terminal::clean_line;

/// The line about a daemon of another version, with what mends it; absent if both are the same. Nothing ends a daemon for it.
pub(super) fn skew(daemon: &str, own: &str) -> Option<String> {
    if daemon == own || daemon.is_empty() {
        return None;
    }
    let numbers = |version: &str| -> Vec<u64> {
        let core = version.split(['-', '+']).next().unwrap_or_default();
        core.split('.').filter_map(|part| part.parse().ok()).collect()
    };
    let remedy = if numbers(daemon) > numbers(own) {
        format!("install linger {daemon} here too")
    } else {
        "`linger daemon restart` starts the new one as soon as no turn is running".to_owned()
    };
    Some(format!("warning: the daemon is version {}, this is linger {own}: {remedy}", clean_line(daemon)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_one_line_with_the_command_that_mends_it() {
        let check = |daemon: &str, remedy: &str| {
            let line = skew(daemon, "0.10.0").unwrap();
            assert!(line.contains(remedy) && line.contains(daemon) && line.lines().count() == 1, "{line}");
        };
        check("0.9.3", "`linger daemon restart`");
        check("0.10.1", "install linger 0.10.1 here too");
        check("1.0.0-rc.1", "install linger 1.0.0-rc.1 here too");
        assert_eq!(skew("0.10.0", "0.10.0"), None);
        assert_eq!(skew("", "0.10.0"), None);
    }
}
