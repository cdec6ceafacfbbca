//! See `linger_fuzz::rule`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linger_fuzz::rule(data));
