//! A test program for `it/retry.rs`: what its tests do is in the variable `PLANTED`, and what they did before in `PLANTED_DIR`.

/// Whether this is planted; `-once` in the name of a fault leaves it out the second time.
fn planted(fault: &str) -> bool {
    if std::env::var("PLANTED").is_ok_and(|planted| planted == fault) {
        let before = std::path::Path::new(&std::env::var("PLANTED_DIR").unwrap()).join(fault);
        let first = !before.exists();
        std::fs::write(before, "").unwrap();
        return first || !fault.ends_with("-once");
    }
    false
}

#[test]
fn first_of_all_passes() {}

#[test]
fn may_fail() {
    println!("a word of the test");
    assert!(!planted("fails-once"), "the first failure");
    assert!(!planted("fails-always"), "the failure that stays");
}

#[test]
fn may_crash() {
    if planted("crashes-once") || planted("crashes-always") {
        std::process::abort();
    }
}

#[test]
fn passes() {}
