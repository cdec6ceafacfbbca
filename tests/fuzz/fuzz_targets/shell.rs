//! See `linger_fuzz::shell`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linger_fuzz::shell(data));
