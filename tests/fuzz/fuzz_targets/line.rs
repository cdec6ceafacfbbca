//! See `linger_fuzz::line`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linger_fuzz::line(data));
