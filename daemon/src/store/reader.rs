//! The reading thread: one query after the other, none of which reads more than a page.
//!
//! Small queries and pages wait in lanes of their own, so that a client that replays a long history, or a turn that reads one,
//! delays nobody by more than a page. A query that nobody waits for any more is not run.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

use rusqlite::Connection;

/// Small queries in a row before a page has its turn: it must not starve either.
const QUICK_IN_A_ROW: usize = 16;

/// How a query waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// It reads a few rows.
    Quick,
    /// It reads a page of a log, or many sessions.
    Page,
}

/// A query, which looks itself whether anybody still waits for it.
pub(super) type Query = Box<dyn FnOnce(&Connection) + Send>;

/// Runs queries until all who could send any are gone.
pub(super) fn run(connection: &Connection, queries: &Receiver<(Lane, Query)>) {
    let (mut quick, mut pages) = (VecDeque::new(), VecDeque::new());
    let mut in_a_row = 0;
    loop {
        let first = if quick.is_empty() && pages.is_empty() { queries.recv().ok() } else { None };
        for (lane, query) in first.into_iter().chain(queries.try_iter()) {
            match lane {
                Lane::Quick => quick.push_back(query),
                Lane::Page => pages.push_back(query),
            }
        }
        let page = if quick.is_empty() || in_a_row >= QUICK_IN_A_ROW { pages.pop_front() } else { None };
        in_a_row = if page.is_some() { 0 } else { in_a_row + 1 };
        match page.or_else(|| quick.pop_front()) {
            Some(query) => query(connection),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// The order in which queries with these names are run that were all there at once.
    fn order(sent: &[(Lane, &'static str)]) -> Vec<&'static str> {
        let (sender, queries) = mpsc::channel::<(Lane, Query)>();
        let (done, ran) = mpsc::channel();
        for (lane, name) in sent.iter().copied() {
            let done = done.clone();
            sender.send((lane, Box::new(move |_: &Connection| done.send(name).unwrap()))).unwrap();
        }
        drop((sender, done));
        run(&Connection::open_in_memory().unwrap(), &queries);
        ran.iter().collect()
    }

    #[test]
    fn small_queries_overtake_pages_and_each_lane_keeps_its_order() {
        use Lane::{Page, Quick};
        let sent = [(Page, "p1"), (Page, "p2"), (Quick, "q1"), (Page, "p3"), (Quick, "q2")];
        assert_eq!(order(&sent), ["q1", "q2", "p1", "p2", "p3"]);
    }

    #[test]
    fn pages_do_not_starve() {
        let mut sent = vec![(Lane::Quick, "q"); QUICK_IN_A_ROW * 2 + 1];
        sent.extend([(Lane::Page, "p"); 2]);
        let ran = order(&sent);
        let pages: Vec<usize> = ran.iter().enumerate().filter(|(_, name)| **name == "p").map(|(at, _)| at).collect();
        assert_eq!(pages, [QUICK_IN_A_ROW, QUICK_IN_A_ROW * 2 + 1]);
    }
}
