//! See `linger_fuzz::gemini`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linger_fuzz::gemini(data));
