//! Scripts of sed that only print: addresses and `p`. Pure.

/// Whether a script has nothing but `p` with addresses, separated by `;`.
pub(super) fn only_prints(script: &str) -> bool {
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches([' ', ';']);
        if rest.is_empty() {
            return true;
        }
        let Some(after) = command(rest) else { return false };
        rest = after;
        if !(rest.is_empty() || rest.starts_with(';')) {
            return false;
        }
    }
}

/// The rest behind a command `[ADDRESS[,ADDRESS]][!]p`.
fn command(script: &str) -> Option<&str> {
    let mut rest = script;
    if let Some(after) = address(rest) {
        rest = after.trim_start_matches(' ');
        if let Some(second) = rest.strip_prefix(',') {
            let second = second.trim_start_matches(' ');
            let counted = second.strip_prefix(['+', '~']).map(digits);
            rest = counted.unwrap_or_else(|| address(second))?.trim_start_matches(' ');
        }
    }
    let rest = rest.strip_prefix('!').unwrap_or(rest).trim_start_matches(' ');
    Some(rest.strip_prefix('p')?.trim_start_matches(' '))
}

/// The rest behind an address: `5`, `2~3`, `$`, `/RE/`, `/RE/I`.
fn address(text: &str) -> Option<&str> {
    if let Some(rest) = text.strip_prefix('$') {
        return Some(rest);
    }
    if let Some(rest) = text.strip_prefix('/') {
        let mut is_escaped = false;
        let end = rest.find(|c| {
            let is_end = c == '/' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_end
        })?;
        let (pattern, rest) = (rest.get(..end)?, rest.get(end + 1..)?);
        // Some implementations end a pattern behind a bracket alone.
        if pattern.contains('\n') || pattern.matches('[').count() != pattern.matches(']').count() {
            return None;
        }
        return Some(rest.strip_prefix('I').unwrap_or(rest));
    }
    let rest = digits(text)?;
    match rest.strip_prefix('~') {
        Some(step) => digits(step),
        None => Some(rest),
    }
}

/// The rest behind at least one digit.
fn digits(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    (rest.len() < text.len()).then_some(rest)
}
