//! The text of `linger --help`, and the groups in which commands are listed.
//!
//! The first page is written by hand, because it has to fit on a screen; tests hold it against the declaration.

/// The text of `linger --help`.
pub(crate) const HELP: &str = include_str!("help.txt");

/// All listed commands, by group: the five of the first page, and commands for programs.
pub(crate) const GROUPS: [(&str, &[&str]); 6] = [
    ("Work", &["run", "send", "attach", "wait", "inbox", "answer", "cancel", "queue", "merge"]),
    ("Sessions", &["ls", "new", "log", "search", "export", "diff", "undo", "rewind", "fork", "compact", "set", "rm"]),
    (
        "Setup",
        &[
            "init",
            "key",
            "models",
            "usage",
            "config",
            "trust",
            "permissions",
            "import",
            "doctor",
            "completions",
            "help",
        ],
    ),
    ("Extend", &["files", "tools", "mcp", "memory"]),
    ("Serve", &["daemon", "gateway", "acp"]),
    ("For programs", &["status", "events", "token", "artifact"]),
];

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::arguments::Arguments;

    /// The most lines and columns of the first page.
    const SCREEN: (usize, usize) = (40, 80);

    #[test]
    fn the_first_page_fits_on_a_screen() {
        let (rows, columns) = SCREEN;
        assert!(HELP.lines().count() <= rows, "{} lines", HELP.lines().count());
        let wide: Vec<&str> = HELP.lines().filter(|line| line.chars().count() > columns).collect();
        assert_eq!(wide, Vec::<&str>::new());
    }

    #[test]
    fn the_first_page_names_listed_commands_in_their_groups_and_options_that_exist() {
        let mut root = Arguments::command();
        root.build();
        let mut group = "";
        for line in HELP.lines().filter(|line| line.get(8..9) == Some(" ")) {
            let (label, rest) = line.split_at(8);
            if GROUPS.iter().any(|(name, _)| *name == label.trim()) {
                group = label.trim();
            } else if !label.trim().is_empty() {
                group = "";
            }
            let Some((_, names)) = GROUPS.iter().find(|(name, _)| *name == group) else { continue };
            let name = rest.split_whitespace().next().unwrap_or_default();
            assert!(name.is_empty() || names.contains(&name), "{group}: {line}");
        }
        let options = HELP.split(|c: char| c.is_whitespace() || c == ',').filter_map(|word| word.strip_prefix("--"));
        let unknown: Vec<&str> = options
            .filter(|name| *name != "help" && root.get_arguments().all(|option| option.get_long() != Some(name)))
            .collect();
        assert_eq!(unknown, Vec::<&str>::new());
    }

    #[test]
    fn each_listed_command_is_in_one_group() {
        let root = Arguments::command();
        let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
        let mut shown: Vec<&str> = shown.map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, shown);
    }
}
