//! Known names that are like an unknown one. Pure.

/// At most `count` of `names` that are like `typed`, the nearest first: a fifth of its letters may be wrong. Where a name has a
/// slash, what comes after it may be meant alone.
pub(crate) fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>, count: usize) -> Vec<&'a str> {
    let typed = typed.to_lowercase();
    let allowed = (typed.chars().count() / 5).max(1);
    let far = |name: &str| {
        let name = name.to_lowercase();
        let short = name.split_once('/').map(|(_, short)| distance(&typed, short));
        short.into_iter().chain([distance(&typed, &name)]).min().unwrap_or(usize::MAX)
    };
    let mut near: Vec<_> = names.map(|name| (far(name), name)).filter(|(far, _)| *far <= allowed).collect();
    near.sort_unstable();
    near.into_iter().take(count).map(|(_, name)| name).collect()
}

/// How many letters have to be changed, added or left out to make `b` of `a`.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for ((y, above), diagonal) in b.chars().zip(row.iter().skip(1)).zip(&row) {
            let left = next.last().copied().unwrap_or_default();
            next.push((diagonal + usize::from(x != y)).min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_come_first_and_strange_ones_not_at_all() {
        let names = ["anthropic/claude-sonnet-5", "anthropic/claude-opus-5", "openai/gpt-5", "openai/gpt-5.5"];
        let near = |typed: &str| nearest(typed, names.into_iter(), 2);
        assert_eq!(near("claude-sonet-5"), ["anthropic/claude-sonnet-5"]);
        assert_eq!(near("antropic/claude-opus-5"), ["anthropic/claude-opus-5"]);
        assert_eq!(near("GPT-55"), ["openai/gpt-5", "openai/gpt-5.5"]);
        assert_eq!(near("llama"), [""; 0]);
        assert_eq!(near(""), [""; 0]);
    }
}
