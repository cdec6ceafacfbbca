//! Text from models, tools, files and servers, made safe for a terminal (I12). Pure.
//!
//! Deliberately absent: styles, widths and wrapping.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar as _;

/// Makes text safe to show: only printing characters, line feeds and tabs are left.
///
/// Works character by character, so the result does not depend on how a text was cut into pieces.
/// Control characters become visible signs; marks that reorder text become their numbers; invisible
/// tags are dropped, and so is CR, which would let a line overwrite itself.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    clean_with(text, false)
}

/// As [`clean`], for text that has to stay on one line: a line feed becomes a visible sign.
pub(crate) fn clean_line(text: &str) -> Cow<'_, str> {
    clean_with(text, true)
}

/// As [`clean_exact`], for text that has to stay on one line.
pub(crate) fn clean_exact_line(text: &str) -> String {
    clean_line(&clean_exact(text)).into_owned()
}

/// As [`clean`], for text that a person is asked to allow: no character is left out, and a character
/// without width, such as a combining one, is shown by its number.
pub(crate) fn clean_exact(text: &str) -> String {
    let show = |c: char| match c {
        '\r' => "␍".to_owned(),
        c if tag(c) || unseen(c) => format!("<{:04x}>", u32::from(c)),
        c => c.to_string(),
    };
    clean(&text.chars().map(show).collect::<String>()).into_owned()
}

fn clean_with(text: &str, one_line: bool) -> Cow<'_, str> {
    #[cfg(feature = "faults")] // A planted bug, for the test that shows that it is caught.
    if std::env::var("LINGER_BUG").is_ok_and(|bug| bug == "I12") {
        return Cow::Borrowed(text);
    }
    let safe = |c: char| match c {
        '\n' => !one_line,
        '\t' => true,
        ' '..='~' => true,
        c => c >= '\u{a0}' && !reorders(c) && !tag(c),
    };
    if text.chars().all(safe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if safe(c) => out.push(c),
            '\r' => {}
            c if tag(c) => {}
            '\n' => out.push('⏎'),
            '\u{7f}' => out.push('␡'),
            '\0'..='\u{1f}' => out.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}')),
            c => out.push_str(&format!("<{:04x}>", u32::from(c))),
        }
    }
    Cow::Owned(out)
}

/// Whether `c` changes the order in which its neighbours are shown, or hides them.
fn reorders(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fff9}'..='\u{fffb}' | '\u{2028}' | '\u{2029}')
}

/// Whether `c` has no width, or looks like a space without being one.
fn unseen(c: char) -> bool {
    let takes_no_room = !c.is_control() && c.width() == Some(0);
    takes_no_room
        || matches!(c,
        '\u{a0}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{2000}'..='\u{200f}' | '\u{202f}' | '\u{205f}'..='\u{206f}' | '\u{2800}' | '\u{3000}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}')
}

/// Whether `c` is one of the invisible tags.
fn tag(c: char) -> bool {
    matches!(c, '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_that_steers_a_terminal_is_left() {
        let evil = "a\x1b[2Jb\u{9b}31mc\x07\x7f\r\nd\te\u{202e}f\u{e0041}é漢";
        assert_eq!(clean(evil), "a␛[2Jb<009b>31mc␇␡\nd\te<202e>fé漢");
        assert_eq!(clean_line("rm\n-rf\r"), "rm⏎-rf");
        assert!(matches!(clean("plain\n"), Cow::Borrowed(_)));
        assert_eq!(clean_exact("e\u{301}\u{1d173}\u{200b}\r\n"), "e<0301><1d173><200b>␍\n");
        assert_eq!(clean_exact_line("e\u{301}\nx é漢"), "e<0301>⏎x é漢");
    }

    proptest! {
        #[test]
        fn only_what_prints_is_left(text in any::<String>()) {
            for c in clean(&text).chars() {
                prop_assert!(c == '\n' || c == '\t' || !c.is_control(), "{c:?}");
                prop_assert!(!reorders(c) && !tag(c), "{c:?}");
            }
            prop_assert!(!clean_line(&text).contains('\n'));
        }

        #[test]
        fn it_does_not_matter_how_a_text_is_cut(text in "[\\x00-\\x9f\u{2020}-\u{2070}é\r\n]{0,40}", cut in 0usize..80) {
            let at = (0..=cut.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let (left, right) = text.split_at(at);
            prop_assert_eq!(format!("{}{}", clean(left), clean(right)), clean(&text));
            let once = clean(&text);
            prop_assert_eq!(clean(&once), once.as_ref());
        }
    }
}
