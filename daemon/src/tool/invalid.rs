//! The error of arguments that do not fit.

/// Arguments that do not fit; the text is what the model reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);
