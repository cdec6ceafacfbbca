//! See `linger_fuzz::ollama`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linger_fuzz::ollama(data));
