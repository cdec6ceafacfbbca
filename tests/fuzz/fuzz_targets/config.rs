//! See `linger_fuzz::config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linger_fuzz::config(data));
