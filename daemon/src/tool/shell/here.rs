//! Redirections and here-documents.

use super::parser::{Parser, PendingDocument, Read};
use super::types::{Fd, Operator, Redirection, Word};

/// The operators, the longest first.
const OPERATORS: [(&str, Operator); 12] = [
    ("<<<", Operator::HereString),
    ("<<-", Operator::HereDocument),
    ("&>>", Operator::BothAppend),
    ("<<", Operator::HereDocument),
    ("<&", Operator::DuplicateInput),
    ("<>", Operator::ReadWrite),
    (">>", Operator::Append),
    (">&", Operator::DuplicateOutput),
    (">|", Operator::Clobber),
    ("&>", Operator::Both),
    ("<", Operator::Read),
    (">", Operator::Write),
];

impl Parser<'_, '_> {
    /// Whether `<(` or `>(` is next.
    pub(super) fn begins_substitution(&self) -> bool {
        matches!((self.peek(), self.peek_at(1)), (Some(b'<' | b'>'), Some(b'(')))
    }

    /// The redirection that is next, if one is.
    pub(super) fn redirection(&mut self) -> Read<Option<Redirection>> {
        let start = self.at;
        let Some(fd) = self.descriptor() else {
            self.at = start;
            return Ok(None);
        };
        let found = OPERATORS.into_iter().find(|(text, _)| self.eat(text));
        let Some((text, operator)) = found else {
            self.at = start;
            return Ok(None);
        };
        self.skip_blanks();
        if self.peek().is_none_or(super::parser::is_meta) && !self.begins_substitution() {
            return self.unsure("a redirection has no file");
        }
        let word_at = self.at;
        let target = self.word()?;
        if operator == Operator::HereDocument {
            let written = self.text.get(word_at..self.at).unwrap_or_default();
            let Some(delimiter) = target.literal.clone().filter(|_| !written.contains(['$', '`', '\n'])) else {
                return self.unsure("the end of a here-document is not plain");
            };
            self.pending.push(PendingDocument { delimiter, is_quoted: target.is_quoted, strips_tabs: text == "<<-" });
        }
        Ok(Some(Redirection { text: self.place(start), fd, operator, target, body: None }))
    }

    /// The descriptor in front of an operator; absent if no operator follows.
    fn descriptor(&mut self) -> Option<Fd> {
        if self.begins_substitution() {
            return None;
        }
        if matches!(self.peek(), Some(b'<' | b'>')) || self.rest().starts_with('&') {
            return Some(Fd::Usual);
        }
        let rest = self.rest();
        let fd = if let Some(inner) = rest.strip_prefix('{') {
            let name = inner.split('}').next()?;
            let is_name = !name.is_empty()
                && !name.starts_with(|c: char| c.is_ascii_digit())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !is_name {
                return None;
            }
            self.at += name.len() + 2;
            Fd::Variable(name.to_owned())
        } else {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                return None;
            }
            let number = rest.get(..digits)?.parse().unwrap_or(u32::MAX);
            self.at += digits;
            Fd::Number(number)
        };
        (matches!(self.peek(), Some(b'<' | b'>')) && !self.begins_substitution()).then_some(fd)
    }

    /// The texts of here-documents, which begin here, behind a line end.
    pub(super) fn here_documents(&mut self) -> Read<()> {
        for pending in std::mem::take(&mut self.pending) {
            let start = self.at;
            let end = self.here_document_end(&pending)?;
            let after = self.at;
            let text = self.text.get(start..end).unwrap_or_default();
            let documents = self.out.commands.iter_mut().flat_map(|command| &mut command.redirections);
            let is_it = |it: &&mut Redirection| {
                it.operator == Operator::HereDocument
                    && it.body.is_none()
                    && it.target.literal.as_deref() == Some(&pending.delimiter)
            };
            if let Some(document) = documents.chain(&mut self.out.redirections).find(is_it) {
                document.body = Some(text.to_owned());
            }
            if !pending.is_quoted {
                let whole = self.text;
                self.text = whole.get(..end).unwrap_or_default();
                self.at = start;
                self.deeper(|this| this.here_text(&mut Word::default()))?;
                self.text = whole;
            }
            self.at = after;
        }
        Ok(())
    }

    /// Where the text of a here-document ends; moves behind the line with its delimiter.
    fn here_document_end(&mut self, pending: &PendingDocument) -> Read<usize> {
        loop {
            let start = self.at;
            if start >= self.text.len() {
                return self.unsure("a here-document has no end");
            }
            let mut line = String::new();
            loop {
                let part = self.rest().split('\n').next().unwrap_or_default();
                let is_last = self.at + part.len() >= self.text.len();
                self.at = (self.at + part.len() + 1).min(self.text.len());
                let backslashes = part.bytes().rev().take_while(|byte| *byte == b'\\').count();
                if pending.is_quoted || backslashes % 2 == 0 || is_last {
                    line.push_str(part);
                    break;
                }
                line.push_str(part.strip_suffix('\\').unwrap_or(part));
            }
            let line = if pending.strips_tabs { line.trim_start_matches('\t') } else { line.as_str() };
            if line == pending.delimiter {
                return Ok(start);
            }
        }
    }
}
