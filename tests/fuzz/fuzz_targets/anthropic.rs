//! See `linger_fuzz::anthropic`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linger_fuzz::anthropic(data));
