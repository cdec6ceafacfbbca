//! A list to choose from: what is typed narrows it, the arrows and Tab move in it, Enter takes what is marked. Pure.

use super::files::{rank, score};
use super::menu::Choice;

#[derive(Clone, Debug, Default)]
pub(crate) struct Picker {
    /// The noun in the prompt, such as `model`.
    pub(crate) title: String,
    choices: Vec<Choice>,
    /// The typed filter.
    typed: String,
    /// Choices that match the filter, best first.
    fitting: Vec<Choice>,
    chosen: usize,
}

impl Picker {
    /// A list of all choices; `current` is marked.
    pub(crate) fn new(title: &str, choices: Vec<Choice>, current: Option<&str>) -> Self {
        let chosen = choices.iter().position(|choice| Some(choice.text.as_str()) == current).unwrap_or_default();
        Self { title: title.to_owned(), fitting: choices.clone(), choices, typed: String::new(), chosen }
    }

    /// Narrows it to what fits a text, if that is another one than before; whether it is.
    pub(crate) fn narrow(&mut self, text: &str) -> bool {
        let changed = self.typed != text;
        if changed {
            self.typed = text.to_owned();
            self.filter(text);
        }
        changed
    }

    /// Narrows it to what fits a text.
    fn filter(&mut self, text: &str) {
        let text = text.trim();
        let fits = |choice: &Choice| {
            // A match of its note counts less.
            rank(text, &choice.text).or_else(|| score(text, &choice.note).map(|cost| (u8::MAX, cost)))
        };
        let mut fitting: Vec<_> = self.choices.iter().filter_map(|choice| Some((fits(choice)?, choice))).collect();
        if !text.is_empty() {
            fitting.sort_by_key(|(cost, _)| *cost);
        }
        self.fitting = fitting.into_iter().map(|(_, choice)| choice.clone()).collect();
        self.chosen = 0;
    }

    /// Moves the mark by this many choices and wraps around.
    pub(crate) fn step(&mut self, by: isize) {
        let count = self.fitting.len().max(1);
        self.chosen = self.chosen.saturating_add(count).saturating_add_signed(by) % count;
    }

    /// The listed choices, and the index of the marked one.
    pub(crate) fn list(&self) -> (&[Choice], Option<usize>) {
        (&self.fitting, (!self.fitting.is_empty()).then_some(self.chosen))
    }

    /// Whether there are choices, and what was typed fits none.
    pub(crate) fn fits_nothing(&self) -> bool {
        self.fitting.is_empty() && !self.choices.is_empty()
    }

    /// The text of the marked choice.
    pub(crate) fn chosen(&self) -> Option<&str> {
        self.fitting.get(self.chosen).map(|choice| choice.text.as_str())
    }

    /// The list with numbers, for a terminal whose cursor cannot be moved.
    pub(crate) fn numbered(&self) -> Vec<String> {
        let row = |(n, choice): (usize, &Choice)| {
            let mark = if n == self.chosen { "*" } else { " " };
            format!("{mark} {} {}  {}", n + 1, choice.text, choice.note).trim_end().to_owned()
        };
        self.choices.iter().enumerate().map(row).collect()
    }

    /// The choice that a line names: by its number in the list or by its letters; `None` if it is neither.
    pub(crate) fn find(&self, line: &str) -> Option<String> {
        let line = line.trim();
        if let Some(choice) = self.choices.iter().find(|choice| choice.text == line) {
            return Some(choice.text.clone());
        }
        if let Ok(n) = line.parse::<usize>() {
            return self.choices.get(n.checked_sub(1)?).map(|choice| choice.text.clone());
        }
        let mut narrowed = self.clone();
        narrowed.filter(line);
        narrowed.chosen().map(str::to_owned).filter(|_| !line.is_empty() && narrowed.fitting.len() == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picker() -> Picker {
        let choices = [("mock/large", "dear"), ("mock/small", "cheap"), ("other/large", "")];
        Picker::new("model", choices.map(|(text, note)| Choice::new(text, note)).to_vec(), Some("mock/small"))
    }

    #[test]
    fn the_exact_name_comes_first_then_names_that_begin_so_then_the_rest() {
        let names = ["my-api-two", "api-server", "x/api", "api-2", "a-p-i", "api"];
        let mut picker = Picker::new("session", names.map(|name| Choice::new(name, "")).to_vec(), None);
        picker.filter("api");
        let found: Vec<&str> = picker.list().0.iter().map(|choice| choice.text.as_str()).collect();
        assert_eq!(found, ["api", "x/api", "api-2", "api-server", "my-api-two", "a-p-i"]);
        picker.filter("API");
        assert_eq!(picker.chosen(), Some("api"));
    }

    #[test]
    fn what_is_typed_narrows_the_list_and_the_mark_moves_in_it() {
        let mut picker = picker();
        assert_eq!(picker.chosen(), Some("mock/small"));
        picker.step(1);
        picker.step(1);
        assert_eq!(picker.chosen(), Some("mock/large"));
        picker.step(-1);
        assert_eq!(picker.chosen(), Some("other/large"));
        picker.filter("mla");
        assert_eq!((picker.chosen(), picker.list().0.len()), (Some("mock/large"), 1));
        picker.filter("cheap");
        assert_eq!(picker.chosen(), Some("mock/small"));
        picker.filter("nothing of it");
        assert_eq!((picker.chosen(), picker.list().1), (None, None));
        picker.step(1);
        picker.filter("");
        assert_eq!(picker.chosen(), Some("mock/large"));
    }

    #[test]
    fn a_line_means_a_number_or_the_letters_of_one_thing() {
        let picker = picker();
        assert_eq!(picker.numbered(), ["  1 mock/large  dear", "* 2 mock/small  cheap", "  3 other/large"]);
        let meant = |line: &str| picker.find(line);
        assert_eq!(meant(" 2 ").as_deref(), Some("mock/small"));
        assert_eq!(meant("other/large").as_deref(), Some("other/large"));
        assert_eq!(meant("small").as_deref(), Some("mock/small"));
        for line in ["", "0", "4", "large", "gone"] {
            assert_eq!(meant(line), None, "{line}");
        }
    }
}
