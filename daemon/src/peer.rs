//! stub
pub fn descends_from(_: u32, _: u32) -> Option<bool> { None }
