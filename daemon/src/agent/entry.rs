//! A file that is in use: neither broken, nor hidden, nor waiting for a person.

use linger_protocol::agent::Problem;

use super::find::FoundFile;

/// A file that is in use.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<T> {
    /// From the header, or else from the path.
    pub name: String,
    /// Where it is, and its digest.
    pub found: FoundFile,
    /// Warnings about the file; errors keep it out of use.
    pub problems: Vec<Problem>,
    /// Its parsed content.
    pub item: T,
}
