//! The arguments of `find`: directories, and tests and actions that only print. Pure.

use super::arguments::{Opened, is_format, is_modest};

/// Tests, operators and actions without an argument.
const PLAIN: &str = "-P -empty -not ! ( ) -a -and -o -or , -print -print0 -prune -depth -xdev -mount -ls -true -false -quit \
                     -readable -writable -executable -nouser -nogroup -daystart -noleaf -nowarn";

/// Tests and actions with one argument, which is no file.
const WITH_VALUE: &str = "-name -iname -path -ipath -wholename -iwholename -type -xtype -maxdepth -mindepth -size -mtime -mmin \
                          -atime -amin -ctime -cmin -regex -iregex -regextype -perm -user -group -uid -gid -links -inum -printf";

/// The files that it opens: all below its directories.
pub(super) fn read(args: &[String]) -> Option<Opened> {
    let has = |list: &str, word: &str| list.split_whitespace().any(|it| it == word);
    let is_expression = |arg: &String| arg.starts_with('-') || ["(", ")", "!", ","].contains(&arg.as_str());
    let mut rest = args.iter().peekable();
    let mut paths = Vec::new();
    while rest.next_if(|arg| *arg == "-P").is_some() {}
    while let Some(path) = rest.next_if(|arg| !is_expression(arg)) {
        paths.push(path.clone());
    }
    while let Some(arg) = rest.next() {
        if has(PLAIN, arg) {
            continue;
        }
        if arg == "-newer" {
            paths.push(rest.next()?.clone());
            continue;
        }
        if !has(WITH_VALUE, arg) {
            return None;
        }
        let value = rest.next()?;
        if arg == "-printf" && !is_format(value) || !is_modest(value) {
            return None;
        }
    }
    if paths.is_empty() {
        paths.push(".".to_owned());
    }
    Some(Opened { paths, others: Vec::new(), walks: true })
}
