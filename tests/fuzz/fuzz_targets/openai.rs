//! See `linger_fuzz::openai`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linger_fuzz::openai(data));
