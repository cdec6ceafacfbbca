//! Texts that end an answer: the answer is cut before the first of them, wherever its pieces were cut. Pure.
//!
//! Providers that have a field for them get them too; this holds for all, and for those that have none.

/// Cuts a text that comes in pieces.
#[derive(Clone, Debug, Default)]
pub(super) struct StopCut {
    /// None is empty.
    stops: Vec<String>,
    /// The end of what came, which may be the beginning of a stop text.
    held: String,
}

impl StopCut {
    /// A cut at each of `stops`.
    pub(super) fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new() }
    }

    /// Takes the next piece; gives what is certain to be part of the answer, and whether the answer ends there.
    pub(super) fn push(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        if let Some(place) = self.place(&self.held) {
            self.held.truncate(place);
            return (std::mem::take(&mut self.held), true);
        }
        let kept = self.stops.iter().map(|stop| begun(&self.held, stop)).max().unwrap_or_default();
        let rest = self.held.split_off(self.held.len() - kept);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// The text that was held back, at the end.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Where a whole text is cut, if it is: before the stop text that is complete first.
    pub(super) fn place(&self, text: &str) -> Option<usize> {
        let found = self.stops.iter().filter_map(|stop| text.find(stop.as_str()).map(|at| (at + stop.len(), at)));
        found.min().map(|(_, at)| at)
    }
}

/// The length of the longest end of `text` that is a beginning of `stop`, and less than all of it.
fn begun(text: &str, stop: &str) -> usize {
    let lengths = stop.char_indices().map(|(at, _)| at);
    lengths.rev().find(|length| stop.get(..*length).is_some_and(|start| text.ends_with(start))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut cut = StopCut::new(stops.iter().map(|stop| (*stop).to_owned()).collect());
        let mut text = String::new();
        for piece in pieces {
            let (said, ends) = cut.push(piece);
            text.push_str(&said);
            if ends {
                return (text, true);
            }
        }
        (text + &cut.finish(), false)
    }

    #[test]
    fn a_stop_text_is_found_across_pieces() {
        let check = |stops: &[&str], pieces: &[&str], expect: &str, ends| {
            assert_eq!(cut(stops, pieces), (expect.to_owned(), ends), "{stops:?} {pieces:?}");
        };
        check(&["\nObservation:"], &["Action: x\nObs", "erv", "ation: y"], "Action: x", true);
        check(&["\nObservation:"], &["Action: x\nObs", "ess"], "Action: x\nObsess", false);
        check(&["ab"], &["aa", "ab", "c"], "aa", true);
        check(&["STOP", "\n\n"], &["one\n", "\ntwo STOP"], "one", true);
        check(&["日本語"], &["これは日", "本", "語です"], "これは", true);
        check(&["🛑"], &["a🛑b"], "a", true);
        check(&["x"], &["", "x"], "", true);
        check(&[], &["a", "b"], "ab", false);
        // The one that is complete first counts, wherever the pieces are cut.
        check(&["abcd", "bc"], &["ab", "cd"], "a", true);
        check(&["abcd", "bc"], &["abcd"], "a", true);
    }

    proptest! {
        #[test]
        fn the_cut_does_not_depend_on_the_pieces(
            text in "[abé]{0,20}", stops in prop::collection::vec("[abé]{1,4}", 0..4), size in 1usize..5,
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let chars: Vec<char> = text.chars().collect();
            let pieces: Vec<String> = chars.chunks(size).map(|piece| piece.iter().collect()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(cut(&stops, &pieces), cut(&stops, &[&text]));
        }
    }
}
