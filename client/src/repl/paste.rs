//! Pasted text: one of many lines stands in the line as `[42 lines pasted]`, and is put in its place when the line is complete.

use std::time::{Duration, Instant};

/// Lines of a paste that are shown as they are; more would push the text off the screen that it is about.
const SHOWN_LINES: usize = 5;

/// Characters of a paste that are shown as they are: some rows of a terminal.
const SHOWN_CHARS: usize = 1000;

/// The silence after which a paste whose end did not come has ended: a terminal sends it in one go.
const SILENCE: Duration = Duration::from_secs(1);

/// The silence before Ctrl-C that tells one that was pressed from one that was pasted.
const PAUSE: Duration = Duration::from_millis(100);

/// Text that was pasted into the line being read.
#[derive(Debug, Default)]
pub(super) struct Pastes {
    /// The text that is just coming in, between the terminal's marks.
    coming: Option<String>,
    /// When its last character came.
    last: Option<Instant>,
    /// Placeholders in the line, and the texts they stand for.
    kept: Vec<(String, String)>,
    /// Whether anything was pasted into this line.
    pub(super) any: bool,
}

impl Pastes {
    /// A paste begins.
    pub(super) fn begin(&mut self) {
        self.any = true;
        self.coming = Some(String::new());
        self.last = Some(Instant::now());
    }

    /// Whether a key belongs to no paste, although the end of the one that began did not come: it follows a silence.
    pub(super) fn is_broken_off(&self, is_interrupt: bool) -> bool {
        let least = if is_interrupt { PAUSE } else { SILENCE };
        self.coming.is_some() && self.last.is_some_and(|last| last.elapsed() >= least)
    }

    /// Takes the next character; false if nothing is being pasted.
    pub(super) fn push(&mut self, c: Option<char>) -> bool {
        match &mut self.coming {
            Some(coming) => {
                coming.extend(c);
                self.last = Some(Instant::now());
                true
            }
            None => false,
        }
    }

    /// The paste is complete: what stands in the line for it, of which `line` has others.
    pub(super) fn end(&mut self, line: &str) -> Option<String> {
        // Windows' line ends are one line break.
        let text = self.coming.take()?.replace("\r\n", "\n").replace('\r', "\n");
        let lines = text.lines().count();
        if lines <= SHOWN_LINES && text.chars().count() <= SHOWN_CHARS {
            return Some(text);
        }
        let what = match lines {
            0 | 1 => format!("{} characters", text.chars().count()),
            lines => format!("{lines} lines"),
        };
        let is_taken = |name: &String| line.contains(name.as_str()) || self.kept.iter().any(|(kept, _)| kept == name);
        let names = (2..).map(|n| format!("[{what} pasted, {n}]"));
        let name = std::iter::once(format!("[{what} pasted]")).chain(names).find(|name| !is_taken(name))?;
        self.kept.push((name.clone(), text));
        Some(name)
    }

    /// The last character came this much earlier.
    #[cfg(test)]
    pub(super) fn backdate(&mut self, by: Duration) {
        self.last = self.last.and_then(|last| last.checked_sub(by));
    }

    /// Whether the line ends with the placeholder of a paste, which is deleted as a whole.
    pub(super) fn is_before(&self, line: &str) -> bool {
        self.kept.iter().any(|(name, _)| line.ends_with(name.as_str()))
    }

    /// The line with what was pasted.
    pub(super) fn whole(&self, line: &str) -> String {
        let mut whole = String::new();
        let mut rest = line;
        // From left to right, so that nothing within a paste is taken for the place of another.
        while let Some((at, (name, text))) =
            self.kept.iter().filter_map(|kept| Some((rest.find(kept.0.as_str())?, kept))).min_by_key(|(at, _)| *at)
        {
            whole.push_str(rest.get(..at).unwrap_or_default());
            whole.push_str(text);
            rest = rest.get(at + name.len()..).unwrap_or_default();
        }
        whole + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paste(pastes: &mut Pastes, text: &str, line: &str) -> String {
        pastes.begin();
        text.chars().for_each(|c| assert!(pastes.push(Some(c))));
        pastes.end(line).unwrap()
    }

    #[test]
    fn a_long_paste_is_shown_short_and_sent_whole() {
        let mut pastes = Pastes::default();
        assert!(!pastes.push(Some('x')) && !pastes.any);
        assert_eq!(paste(&mut pastes, "one\r\ntwo", ""), "one\ntwo");
        let long = "line\r".repeat(42);
        assert_eq!(paste(&mut pastes, &long, ""), "[42 lines pasted]");
        assert_eq!(paste(&mut pastes, "[42 lines pasted]\n".repeat(42).as_str(), "x"), "[42 lines pasted, 2]");
        assert_eq!(paste(&mut pastes, &"x".repeat(2000), ""), "[2000 characters pasted]");
        let line = "a [42 lines pasted] b [42 lines pasted, 2] c";
        assert!(pastes.is_before("a [42 lines pasted]") && !pastes.is_before("a [42 lines pasted"));
        let whole = pastes.whole(line);
        assert_eq!(whole, format!("a {} b {} c", "line\n".repeat(42), "[42 lines pasted]\n".repeat(42)));
        assert_eq!(pastes.whole("[41 lines pasted]"), "[41 lines pasted]");
    }
}
