//! Memory runs out: the kernel ends what a tool started before it ends the daemon, the user's editor or a database.

use std::sync::OnceLock;

use rustix::process::Pid;

/// Added to a child's score, in thousandths of the memory (proc_pid_oom_score_adj(5)): what browsers give their pages.
const MORE: i32 = 300;

/// The largest that the kernel takes.
const MAX: i32 = 1000;

/// Makes a child, and what it starts from now on, the more likely to be ended when memory runs out.
/// A child that may not be changed, such as one that runs as another user, is as it is.
pub(super) fn prefer(child: Pid) {
    static SCORE: OnceLock<Option<i32>> = OnceLock::new();
    let own = || std::fs::read_to_string("/proc/self/oom_score_adj").ok()?.trim().parse().ok();
    if let Some(score) = SCORE.get_or_init(|| own().map(raised)) {
        let file = format!("/proc/{}/oom_score_adj", child.as_raw_nonzero());
        let _as_it_is = std::fs::write(file, score.to_string());
    }
}

fn raised(own: i32) -> i32 {
    own.saturating_add(MORE).min(MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_raised_and_never_lowered() {
        for own in [-1000, 0, 200, 900, 1000] {
            assert!((own..=MAX).contains(&raised(own)), "{own}");
        }
    }
}
