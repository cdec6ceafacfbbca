//! The allocator: how this process takes memory from the system and returns it.
//!
//! Deliberately absent: bounds on what the daemon keeps; each room bounds its own memory.

/// In bytes: larger blocks (prompts with images, large results) return to the system as soon as they are freed.
/// By default glibc raises this threshold with each such block and keeps the memory.
#[cfg(target_env = "gnu")]
const RETURN_THRESHOLD: libc::c_int = 256 << 10;

/// Makes the allocator return freed memory to the system, so that an idle daemon is as small as a new one.
/// Call it at the start, before other threads exist.
pub fn tune_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: only sets allocator options, while there is one thread; an unknown option changes nothing.
    #[allow(unsafe_code)]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, RETURN_THRESHOLD);
        libc::mallopt(libc::M_TRIM_THRESHOLD, RETURN_THRESHOLD);
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// The memory of another process, in bytes; `None` if it is gone, and on systems without `/proc`. Blocks on the kernel.
pub fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
