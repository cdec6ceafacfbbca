//! The torture in the size that every change pays for: what `cargo run -p linger-tests --bin torture` does by the thousand.

use linger_tests::harness::{faulty, programs};
use linger_tests::torture;

/// How many random kills.
const KILLS: u64 = 200;

/// Lives at once: they wait more than they work.
const JOBS: usize = 4;

#[test]
fn two_hundred_kills_at_random_moments_lose_nothing() {
    torture::kills(KILLS, 1, 2).assert_clean();
}

#[test]
fn a_kill_at_any_crash_point_loses_nothing() {
    torture::points(1, JOBS).assert_clean();
}

#[test]
fn a_store_operation_that_fails_loses_nothing_whichever_it_is() {
    let report = torture::store_faults(false, JOBS);
    report.assert_clean();
    assert!(report.count > 100, "a life has more operations: {}", report.detail);
}

#[test]
fn the_bug_planted_for_each_invariant_is_caught() {
    let report = torture::bugs();
    report.assert_clean();
    assert_eq!(report.count, 14, "one for each invariant");
}

#[test]
fn an_ordinary_build_has_no_faults_in_it() {
    let words = ["LINGER_CRASH", "LINGER_POINTS", "LINGER_STORE_FAULT", "LINGER_BUG", "no such fault"];
    let has = |program: &std::path::Path, word: &str| {
        let bytes = std::fs::read(program).unwrap();
        bytes.windows(word.len()).any(|window| window == word.as_bytes())
    };
    for program in [&programs().daemon, &programs().client] {
        let found: Vec<_> = words.iter().filter(|word| has(program, word)).collect();
        assert!(found.is_empty(), "{} has {found:?}", program.display());
    }
    // And whoever looks so would find them.
    assert!(words.iter().all(|word| has(&faulty().daemon, word)));
    assert!(has(&faulty().client, "LINGER_BUG"));
}

#[tokio::test]
async fn a_fault_that_is_not_understood_does_not_look_like_one_that_was_survived() {
    use linger_tests::harness::{Daemon, Setup};
    use linger_tests::model::ModelServer;
    let model = ModelServer::start();
    let daemon = Daemon::prepare(&model, Setup { faulty: true, ..Setup::default() });
    for (name, value) in [
        ("LINGER_CRASH", "no.such.point:1"),
        ("LINGER_CRASH", "daemon.ready"),
        ("LINGER_STORE_FAULT", "1:odd:1"),
        ("LINGER_BUG", "I99"),
    ] {
        let started = daemon.try_launch(&[(name.to_owned(), value.to_owned())]).await;
        assert!(!started, "{name}={value}");
        assert_eq!(daemon.ended(), Some(2), "{name}={value}");
    }
}
