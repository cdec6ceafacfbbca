//! Power cuts: see `linger_tests::power`. A sample of what `torture --ordinary` does; more by `LINGER_TEST_CUTS=5000`, from
//! `LINGER_TEST_SEED`.

use linger_tests::power::power;

use crate::wanted;

/// Cuts in the ordinary run of the tests.
const CUTS: u64 = 20;

#[test]
fn what_was_acknowledged_survives_a_power_cut_at_any_moment() {
    let report = power(wanted("LINGER_TEST_CUTS", CUTS), wanted("LINGER_TEST_SEED", 1));
    report.assert_clean();
}
