//! Sessions: what one conversation is made of.

pub mod instructions;
