//! See `linger_fuzz::cursor`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linger_fuzz::cursor(data));
