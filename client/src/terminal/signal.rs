//! Signals of a terminal that draw attention: the bell, and notifications by escape sequences.

use std::io;

use linger_protocol::attention::Signal;

use super::write::write;
use super::{Terminal, clean_line};

impl Terminal {
    /// Signals `text`, by those of the ways that this terminal may know. The cursor stays where it is.
    pub(crate) fn signal(&mut self, signals: &[Signal], escapes: bool, text: &str) -> io::Result<()> {
        let bytes = signals_of(signals, escapes, text);
        if bytes.is_empty() { Ok(()) } else { write(&mut io::stdout().lock(), &bytes) }
    }
}

fn signals_of(signals: &[Signal], escapes: bool, text: &str) -> String {
    // Nothing in it ends the sequence, and a `;` would begin another field.
    let text = clean_line(text).replace(';', ",");
    let one = |signal: &Signal| match signal {
        Signal::Bell => "\x07".to_owned(),
        Signal::Osc9 if escapes => format!("\x1b]9;{text}\x1b\\"),
        Signal::Osc777 if escapes => format!("\x1b]777;notify;linger;{text}\x1b\\"),
        Signal::Osc9 | Signal::Osc777 | Signal::Unknown => String::new(),
    };
    signals.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_the_sequence_that_carries_it() {
        let all = [Signal::Bell, Signal::Osc9, Signal::Osc777, Signal::Unknown];
        let expect = "\u{7}\u{1b}]9;s x\u{1b}\\\u{1b}]777;notify;linger;s x\u{1b}\\";
        assert_eq!(signals_of(&all, true, "s x"), expect);
        assert_eq!(signals_of(&all, false, "s x"), "\u{7}");
        let evil = signals_of(&[Signal::Osc9], true, "a\u{7}b\u{1b}\\c\u{9c};d");
        assert_eq!(evil, "\u{1b}]9;a␇b␛\\c<009c>,d\u{1b}\\");
    }
}
