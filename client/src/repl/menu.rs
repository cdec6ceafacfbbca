//! The rows of a listing above the prompt: what Tab offers, and what a picker lets one choose from. Pure.

use crate::render::style::Style;
use crate::terminal::{cut, width};

/// Rows of a listing; more would push the text away that is being answered.
const ROWS: usize = 8;

/// The narrowest a column of names is laid out.
const NARROW: usize = 4;

/// Something that can be chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The text that it puts into the line.
    pub(crate) text: String,
    /// A few words about it.
    pub(crate) note: String,
}

impl Choice {
    /// A name and a note about it; both are clean.
    pub(crate) fn new(text: impl Into<String>, note: impl Into<String>) -> Self {
        Self { text: text.into(), note: note.into() }
    }
}

/// The rows of these choices, on a terminal of so many columns; the chosen one is marked, and always among them. As what others
/// named they stand behind a gutter.
pub(super) fn rows(choices: &[Choice], chosen: Option<usize>, columns: usize, style: &Style) -> Vec<String> {
    let mark = if style.unicode { "▸" } else { ">" };
    let cell = |at: usize, choice: &Choice| {
        let is = chosen == Some(at);
        let text = format!("{}{}", if is { mark } else { " " }, choice.text);
        if is { style.bold(&text) } else { text }
    };
    let widest = choices.iter().map(|choice| width(&choice.text) + 1).max().unwrap_or_default();
    let per_row = if choices.iter().all(|choice| choice.note.is_empty()) {
        (columns / (widest + 2).max(NARROW)).max(1)
    } else {
        1
    };
    let lines = choices.len().div_ceil(per_row);
    // The window moves by whole pages, so that rows do not slide with each key.
    let page = chosen.map_or(0, |at| at / per_row / ROWS);
    let (from, to) = (page * ROWS, (page * ROWS + ROWS).min(lines));
    let mut rows: Vec<String> = (from..to)
        .map(|line| {
            let row = choices.iter().enumerate().skip(line * per_row).take(per_row);
            let cells = row.map(|(at, choice)| {
                let cell = cell(at, choice);
                let padding = " ".repeat(widest.saturating_sub(width(&cell)));
                let note =
                    if choice.note.is_empty() { String::new() } else { format!("  {}", style.dim(&choice.note)) };
                format!("{cell}{padding}{note}")
            });
            let row = format!(" {}", cells.collect::<Vec<_>>().join("  "));
            cut(row.trim_end(), columns.saturating_sub(1))
        })
        .collect();
    let shown = ((to - from) * per_row).min(choices.len() - from * per_row);
    if shown < choices.len() {
        let first = from * per_row;
        let what = format!("  {} to {} of {}", first + 1, first + shown, choices.len());
        rows.push(style.dim(&what));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_columns_and_the_chosen_one_is_in_sight() {
        let style = Style { color: false, unicode: true };
        let names: Vec<_> = (1..=30).map(|n| Choice::new(format!("name{n}"), "")).collect();
        let rows20 = rows(&names, None, 20, &style);
        assert_eq!(rows20[0], "  name1    name2");
        assert_eq!((rows20.len(), rows20[8].as_str()), (9, "  1 to 16 of 30"));
        let rows20 = rows(&names, Some(17), 20, &style);
        assert_eq!((rows20[0].as_str(), rows20[7].as_str()), ("  name17  ▸name18", "  17 to 30 of 30"));
        let noted = [Choice::new("/help", "this list"), Choice::new("/mode", "what runs")];
        assert_eq!(rows(&noted, Some(0), 80, &style), [" ▸/help  this list", "  /mode  what runs"]);
        assert!(rows(&[], None, 80, &style).is_empty());
        assert!(rows(&noted, None, 12, &style).iter().all(|row| width(row) < 12));
    }
}
