//! Questions: what is shown, which key means which answer, which questions are open.
//!
//! Only what was shown can be allowed: of a long permission the beginning and the end are shown, and the keys that allow it do
//! nothing until `v` has shown the rest. Deliberately absent: kinds that a terminal cannot show, which are left to other clients.

mod form;
mod one;
mod open;
mod shown;
#[cfg(test)]
mod tests;

pub(crate) use one::{Press, Question, answer_text, too_late, unknown_kind};
pub(crate) use open::Questions;
