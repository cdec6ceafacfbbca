//! The program `lingerd`.

fn main() {}
