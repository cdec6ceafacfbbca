//! A file that is in use: neither broken, nor hidden, nor waiting for a person.

use linger_protocol::agent::Problem;

use super::find::Found;

/// A file that is in use.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<T> {
    /// Its name.
    pub name: String,
    /// Its file.
    pub found: Found,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
    /// What it says.
    pub item: T,
}
