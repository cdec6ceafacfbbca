//! Races: see `linger_tests::races`. A sample of what `torture --ordinary` does; more by `LINGER_TEST_RACES=1000000`, from
//! `LINGER_TEST_SEED`.

use linger_tests::races::{attachments, permissions};

use crate::wanted;

/// Races in the ordinary run of the tests.
const RACES: u64 = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_clients_that_answer_a_permission_at_once_one_wins_and_all_are_told_who() {
    permissions(wanted("LINGER_TEST_RACES", RACES), wanted("LINGER_TEST_SEED", 1)).await.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_come_and_go_read_what_one_reads_that_stays() {
    attachments(wanted("LINGER_TEST_RACES", RACES), wanted("LINGER_TEST_SEED", 1)).await.assert_clean();
}
