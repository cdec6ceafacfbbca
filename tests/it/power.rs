//! Power cuts: see `linger_tests::power`. More of them than usual by `LINGER_TEST_CUTS=5000`, from `LINGER_TEST_SEED`.

use linger_tests::power::{Power, power};

use crate::wanted;

/// Cuts in the ordinary run of the tests.
const CUTS: u64 = 200;

/// Cuts of a disk that lies; few of them hit nothing.
const LIES: u64 = 12;

#[test]
fn what_was_acknowledged_survives_a_power_cut_at_any_moment() {
    let report = power(wanted("LINGER_TEST_CUTS", CUTS), wanted("LINGER_TEST_SEED", 1));
    report.assert_clean();
}

#[test]
fn a_disk_that_forgets_what_it_was_told_to_sync_is_noticed() {
    let report = Power { cuts: LIES, seed: 1, without_syncs: true }.run();
    let lost = report.violations.iter().filter(|what| what.contains("which was acknowledged")).count();
    assert!(lost > 0, "{report}: {:#?}", report.violations);
}
