//! The memory that an idle process gives back, daemon and client alike.

/// Returns free memory to the system, and the clean pages of the program's own file, which are read back within microseconds
/// when needed. An idle daemon or client then takes a third of its size at the start.
pub fn release_idle_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: releases free memory only.
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
    #[cfg(target_os = "linux")]
    for (start, length) in clean_pages() {
        // SAFETY: a private, unmodified mapping of a file, so dropped pages are read from the file again; nothing else in this
        // process modifies it.
        #[allow(unsafe_code)]
        let _kept = unsafe { rustix::mm::madvise(start as *mut _, length, rustix::mm::Advice::LinuxDontNeed) };
    }
}

/// The unmodified mappings of the program's own file: start address and length, in bytes.
#[cfg(target_os = "linux")]
fn clean_pages() -> Vec<(usize, usize)> {
    let Ok(exe) = std::env::current_exe() else { return Vec::new() };
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let mut found: Vec<(usize, usize)> = Vec::new();
    let mut own = false;
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [range, "r-xp" | "r--p", _, _, _, path] => {
                let ends = range.split_once('-').and_then(|(start, end)| {
                    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
                });
                own = std::path::Path::new(path) == exe && ends.is_some();
                found.extend(ends.filter(|_| own).map(|(start, end)| (start, end - start)));
            }
            ["Anonymous:", size, "kB"] if own && *size != "0" => {
                // The loader relocated it, so it differs from the file.
                found.pop();
                own = false;
            }
            [_, flags, ..] if flags.len() == 4 && flags.ends_with('p') => own = false,
            _ => {}
        }
    }
    found
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_released_its_memory_works_as_before() {
        let before = clean_pages();
        assert!(!before.is_empty(), "the text of this test is as its file is");
        for _ in 0..3 {
            release_idle_memory();
            assert_eq!(format!("{:?}", clean_pages()), format!("{before:?}"));
        }
    }
}
