//! The known name that somebody may have meant.

/// The name that is most like `name`, if one is at least so much like it; of two that are equally like it the first by letters.
/// How much is twice the letters that both have in the same order, as a share of all: 0 to 1.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>, least: f32) -> Option<&'a str> {
    let wanted: Vec<char> = name.chars().collect();
    let like = |known: &str| likeness(&wanted, &known.chars().collect::<Vec<_>>(), least);
    let names = names.into_iter().map(|known| (like(known), known)).filter(|(like, _)| *like >= least);
    let best = names.max_by(|(a, known), (b, other)| a.total_cmp(b).then_with(|| other.cmp(known)));
    best.map(|(_, known)| known)
}

fn likeness(one: &[char], other: &[char], least: f32) -> f32 {
    let share = |letters: usize| 2.0 * letters as f32 / (one.len() + other.len()).max(1) as f32;
    // All that they can have in common; most names are told apart by that.
    let most = share(one.len().min(other.len()));
    if most < least { most } else { share(common(one, other)) }
}

/// The length of the longest common subsequence.
fn common(one: &[char], other: &[char]) -> usize {
    let mut row = vec![0; other.len()];
    for a in one {
        let (mut diagonal, mut left) = (0, 0);
        for (b, cell) in other.iter().zip(&mut row) {
            let above = std::mem::replace(cell, if a == b { diagonal + 1 } else { left.max(*cell) });
            (diagonal, left) = (above, *cell);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_has_most_letters_in_common_is_meant() {
        fn check(name: &str, names: &[&str], expect: Option<&str>) {
            assert_eq!(nearest(name, names.iter().copied(), 0.5), expect, "{name} of {names:?}");
        }
        check("raed", &["write", "read", "bash"], Some("read"));
        check("sonnet", &["claude-opus-5", "claude-sonnet-5"], Some("claude-sonnet-5"));
        check("ab", &["bb", "aa"], Some("aa"));
        check("abcd", &["ad"], Some("ad"));
        check("abcd", &["dcba"], None);
        check("grep", &["schedule", ""], None);
        check("", &["a"], None);
        check("äé", &["äe"], Some("äe"));
    }

    #[test]
    fn letters_in_common_are_counted_in_their_order() {
        let count =
            |one: &str, other: &str| common(&one.chars().collect::<Vec<_>>(), &other.chars().collect::<Vec<_>>());
        assert_eq!(
            [count("abcbdab", "bdcaba"), count("abc", "abc"), count("abc", "xyz"), count("", "a")],
            [4, 3, 0, 0]
        );
    }
}
