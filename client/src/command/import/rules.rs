//! Translates rules of other programs. Pure.
//!
//! An allow rule never becomes broader; if linger cannot express it, it is left out with a reason. Ask and deny rules may become
//! broader.

/// A translated rule, or the reason why it is left out.
pub(super) type Translated = Result<String, &'static str>;

/// A rule of Claude Code, such as `Bash(npm run test:*)`.
pub(super) fn claude(rule: &str, allows: bool) -> Translated {
    if rule.starts_with("mcp__") {
        let parts: Vec<&str> = rule.split("__").collect();
        return match parts.as_slice() {
            [_, _] => Ok(format!("{rule}__*")),
            _ if rule.ends_with('*') && allows && !rule.ends_with("__*") => {
                Err("linger has no patterns within tool names")
            }
            _ => Ok(rule.to_owned()),
        };
    }
    let (tool, what) = match rule.split_once('(') {
        Some((tool, rest)) => (tool, Some(rest.strip_suffix(')').ok_or("the closing parenthesis is missing")?)),
        None => (rule, None),
    };
    match (tool, what) {
        ("Bash", Some(command)) => bash(command, allows),
        ("Bash", None) => Ok("bash".to_owned()),
        ("Read" | "Glob" | "Grep" | "LS", None) => Ok("read(**)".to_owned()),
        ("Read", Some(path)) => path_rule("read", path),
        // Claude Code ignores rules about `Write`.
        ("Edit" | "MultiEdit", Some(path)) => path_rule("edit", path),
        ("Write", Some(path)) if !allows => path_rule("edit", path),
        ("Write", Some(_)) => Err("Claude Code ignores this rule"),
        ("Edit" | "Write" | "MultiEdit", None) => Ok("edit(**)".to_owned()),
        ("WebFetch", Some(what)) => match what.strip_prefix("domain:") {
            Some(host) => Ok(format!("fetch({host})")),
            None => Err("it names no domain"),
        },
        ("WebFetch", None) => Ok("fetch".to_owned()),
        _ => Err("linger has no such tool"),
    }
}

/// Translates a command: exact, or a prefix of words.
fn bash(command: &str, allows: bool) -> Translated {
    let command = command.trim();
    if command.is_empty() || command == "*" || command == ":*" {
        return Ok("bash".to_owned());
    }
    let prefix = command.strip_suffix(":*").or_else(|| command.strip_suffix(" *"));
    let words = prefix.unwrap_or(command);
    if !words.contains(['*', '?']) {
        return Ok(if prefix.is_some() { format!("bash({words}:*)") } else { format!("bash({words})") });
    }
    if allows {
        return Err("linger has no patterns within commands");
    }
    // Broader, which is fine for ask and deny.
    Ok(match words.split(['*', '?']).next().map(str::trim_end) {
        Some(begin) if !begin.is_empty() => format!("bash({begin}:*)"),
        _ => "bash".to_owned(),
    })
}

/// Translates a rule about files. `//x` is absolute; `/x` is relative to the settings file.
fn path_rule(tool: &str, path: &str) -> Translated {
    let path = match path {
        path if path.starts_with("//") => path.get(1..).unwrap_or_default().to_owned(),
        path if path.starts_with('/') => return Err("the path is relative to the settings file"),
        path => path.strip_prefix("./").unwrap_or(path).to_owned(),
    };
    if path.is_empty() { Err("it names no file") } else { Ok(format!("{tool}({path})")) }
}

/// Translates the rules of one tool of opencode: patterns with `allow`, `ask` or `deny`; in opencode the last match wins. Returns
/// list, pattern and translation.
pub(super) fn opencode(tool: &str, rules: &[(String, String)]) -> Vec<(&'static str, String, Translated)> {
    let kind = |word: &str| match word {
        "allow" => Some("allow"),
        "ask" => Some("ask"),
        "deny" => Some("deny"),
        _ => None,
    };
    let mut found: Vec<(&'static str, String, Translated)> = Vec::new();
    for (nth, (pattern, word)) in rules.iter().enumerate() {
        let Some(kind) = kind(word) else {
            found.push(("ask", pattern.clone(), Err("unknown to linger")));
            continue;
        };
        let later = rules.get(nth + 1..).unwrap_or_default();
        // In linger, deny comes before ask, and ask before allow, in any order.
        let is_overruled = match kind {
            "deny" => later.iter().any(|(_, word)| word != "deny"),
            "ask" => later.iter().any(|(_, word)| word == "allow"),
            _ => false,
        };
        let translated = match (tool, pattern.as_str()) {
            _ if kind == "ask" && pattern == "*" => Err("not needed: calls without a rule ask"),
            _ if is_overruled => Err("later rules make exceptions, which linger does not support"),
            ("bash", pattern) => bash(pattern, kind == "allow"),
            ("edit", "*") => Ok("edit(**)".to_owned()),
            ("read", "*") => Ok("read(**)".to_owned()),
            ("edit" | "read", path) => path_rule(tool, path),
            ("webfetch", "*") => Ok("fetch".to_owned()),
            _ => Err("linger has no such tool"),
        };
        found.push((kind, pattern.clone(), translated));
    }
    // If a later, stricter rule is left out, an allow rule before it must not become broader.
    let mut is_later_lost = false;
    for (kind, _, translated) in found.iter_mut().rev() {
        if *kind != "allow" {
            is_later_lost |= translated.is_err();
        } else if is_later_lost && translated.is_ok() {
            *translated = Err("a later ask or deny rule is left out and may be an exception to it");
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_allows_becomes_one_that_allows_no_more() {
        let check = |rule: &str, expect: Option<&str>| assert_eq!(claude(rule, true).ok().as_deref(), expect, "{rule}");
        check("Bash(npm run test:*)", Some("bash(npm run test:*)"));
        check("Bash(npm run *)", Some("bash(npm run:*)"));
        check("Bash(git status)", Some("bash(git status)"));
        check("Bash(git * main)", None);
        check("Bash(ls*)", None);
        check("Bash", Some("bash"));
        check("Read(./src/**)", Some("read(src/**)"));
        check("Read(//etc/hosts)", Some("read(/etc/hosts)"));
        check("Read(/secret)", None);
        check("Edit(docs/**)", Some("edit(docs/**)"));
        check("Write(docs/**)", None);
        check("WebFetch(domain:example.org)", Some("fetch(example.org)"));
        check("mcp__github__search", Some("mcp__github__search"));
        check("mcp__github", Some("mcp__github__*"));
        check("mcp__github__get_*", None);
        check("Task", None);
        check("Bash(unfinished", None);
    }

    #[test]
    fn a_rule_that_denies_may_become_a_wider_one() {
        let check =
            |rule: &str, expect: Option<&str>| assert_eq!(claude(rule, false).ok().as_deref(), expect, "{rule}");
        check("Bash(rm *)", Some("bash(rm:*)"));
        check("Bash(curl * | sh)", Some("bash(curl:*)"));
        check("Bash(*sudo*)", Some("bash"));
        check("Write(.env)", Some("edit(.env)"));
        check("Read(~/.ssh/**)", Some("read(~/.ssh/**)"));
    }

    #[test]
    fn the_last_rule_that_matches_counts_in_opencode_and_exceptions_are_left_out() {
        let rules = |rules: &[(&str, &str)]| -> Vec<(String, String)> {
            rules.iter().map(|(pattern, word)| ((*pattern).to_owned(), (*word).to_owned())).collect()
        };
        let check = |tool: &str, of: &[(&str, &str)], expect: &[Option<(&str, &str)>]| {
            let found = opencode(tool, &rules(of));
            let found: Vec<_> =
                found.iter().map(|(kind, _, rule)| rule.as_deref().ok().map(|rule| (*kind, rule))).collect();
            assert_eq!(found, expect, "{of:?}");
        };
        check(
            "bash",
            &[("*", "ask"), ("git *", "allow"), ("rm *", "deny")],
            &[None, Some(("allow", "bash(git:*)")), Some(("deny", "bash(rm:*)"))],
        );
        check("bash", &[("*", "deny"), ("git status", "allow")], &[None, Some(("allow", "bash(git status)"))]);
        check("edit", &[("*", "deny")], &[Some(("deny", "edit(**)"))]);
        check("webfetch", &[("*", "allow")], &[Some(("allow", "fetch"))]);
        check("doom_loop", &[("*", "allow")], &[None]);
        // What a later rule that is left out may take from it is not allowed.
        check("bash", &[("git *", "allow"), ("*", "ask")], &[None, None]);
        check(
            "bash",
            &[("git *", "allow"), ("git push *", "deny"), ("git push origin", "allow")],
            &[None, None, Some(("allow", "bash(git push origin)"))],
        );
        check(
            "bash",
            &[("git *", "allow"), ("git push *", "ask"), ("git push origin", "allow")],
            &[None, None, Some(("allow", "bash(git push origin)"))],
        );
        check("edit", &[("src/**", "allow"), ("/secret", "deny")], &[None, None]);
        check("bash", &[("git *", "allow"), ("git push *", "never")], &[None, None]);
        check(
            "bash",
            &[("git *", "allow"), ("git push *", "ask"), ("git push -f *", "deny")],
            &[Some(("allow", "bash(git:*)")), Some(("ask", "bash(git push:*)")), Some(("deny", "bash(git push -f:*)"))],
        );
    }
}
