//! See `linger_fuzz::responses`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linger_fuzz::responses(data));
