//! Tests of the daemon as a whole: the order of its rooms, and every way in which it reads a file.

mod layers;
mod reading;
