//! Usage: a row per day, session and model, updated in the transaction of the answer, so that sums need no log.
//!
//! A removed session leaves its rows, without its id.

use linger_protocol::message::Usage;
use linger_protocol::usage::{By, Sum, Sums};
use rusqlite::{Connection, Row, params};

use super::append::Spent;
use super::error::StoreError;
use super::handle::Store;
use super::reader::Lane;
use crate::sys::clock;

/// The largest number in a row: beyond any real cost, and two of them can be added.
const MOST: i64 = 9_000_000_000_000_000;

/// The most rows of one list: the days of three years.
const ROWS: usize = 1000;

/// The columns that are summed.
const TOKENS: [&str; 5] = ["input", "output", "cached", "cache_write", "reasoning"];

impl Store {
    /// Sums of usage since the beginning of a day.
    pub async fn sums(&self, since_day: u64, by: By) -> Result<Sums, StoreError> {
        self.read_in(Lane::Page, move |connection| sums(connection, since_day, by)).await
    }
}

/// Adds the usage of answers to their day.
pub(crate) fn add(connection: &Connection, session: &str, spent: &Spent) -> rusqlite::Result<usize> {
    let Spent { day, model, answers, usage } = spent;
    connection
        .prepare_cached(&format!(
            "INSERT INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) {}",
            or_add()
        ))?
        .execute(params![
            held(*day),
            session,
            model,
            held(*answers),
            held(usage.input_tokens),
            held(usage.output_tokens),
            held(usage.cached_tokens),
            held(usage.cache_write_tokens),
            held(usage.reasoning_tokens),
            usage.cost_micros.map(held),
            usage.costs_more(),
        ])
}

/// The usage of each session, up to the first unreadable row.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<(String, Spent)>> {
    let mut statement = connection.prepare("SELECT * FROM usage")?;
    let rows = statement.query_map([], |row| {
        let (day, answers) = (number(row, "day")?, number(row, "answers")?);
        Ok((row.get("session")?, Spent { day, model: row.get("model")?, answers, usage: tokens(row)? }))
    })?;
    Ok(rows.map_while(Result::ok).collect())
}

/// Removes the id of a removed session from its rows.
pub(crate) fn release(connection: &Connection, session: &str) -> rusqlite::Result<()> {
    let copy = format!(
        "INSERT INTO usage SELECT day, '', model, answers, input, output, cached, cache_write, reasoning, cost, at_least
         FROM usage WHERE session = ? {}",
        or_add()
    );
    connection.execute(&copy, [session])?;
    connection.execute("DELETE FROM usage WHERE session = ?", [session])?;
    Ok(())
}

/// The SQL that adds a row to an existing one.
fn or_add() -> String {
    let add = |column: &str| format!(", {column} = min({column} + excluded.{column}, {MOST})");
    let tokens: String = TOKENS.map(add).concat();
    format!(
        "ON CONFLICT (day, session, model) DO UPDATE SET answers = answers + excluded.answers{tokens},
         cost = min(coalesce(cost + excluded.cost, cost, excluded.cost), {MOST}),
         at_least = max(at_least, excluded.at_least)"
    )
}

fn sums(connection: &Connection, since_day: u64, by: By) -> rusqlite::Result<Sums> {
    let (key, order) = match by {
        By::Day => ("day", "key DESC"),
        By::Model => ("model", "cost DESC, input DESC, key"),
        By::Session => ("usage.session", "cost DESC, input DESC, key"),
    };
    let sum = |column: &str| format!("CAST(min(total({column}), {MOST}) AS INTEGER) AS {column}");
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {key} AS key, max(session.name) AS name, sum(answers) AS answers, {},
                iif(count(cost) > 0, CAST(min(total(cost), {MOST}) AS INTEGER), NULL) AS cost, max(at_least) AS at_least
         FROM usage LEFT JOIN session ON session.id = usage.session
         WHERE day >= ? GROUP BY 1 ORDER BY {order}",
        TOKENS.map(sum).join(", "),
    ))?;
    let mut rows = statement.query([held(since_day)])?;
    let mut sums = Sums::default();
    while let Some(row) = rows.next()? {
        let sum = read(row, by)?;
        sums.total.usage += sum.usage;
        sums.total.answers = sums.total.answers.saturating_add(sum.answers);
        if sums.rows.len() < ROWS {
            sums.rows.push(sum);
        } else {
            sums.left_out += 1;
        }
    }
    if by == By::Day {
        sums.rows.reverse();
    }
    Ok(sums)
}

fn number(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or_default())
}

/// The tokens and the cost of a row.
fn tokens(row: &Row<'_>) -> rusqlite::Result<Usage> {
    let cost: Option<i64> = row.get("cost")?;
    Ok(Usage {
        input_tokens: number(row, "input")?,
        output_tokens: number(row, "output")?,
        cached_tokens: number(row, "cached")?,
        cache_write_tokens: number(row, "cache_write")?,
        reasoning_tokens: number(row, "reasoning")?,
        cost_micros: cost.and_then(|cost| u64::try_from(cost).ok()),
        cost_at_least: row.get("at_least")?,
    })
}

fn read(row: &Row<'_>, by: By) -> rusqlite::Result<Sum> {
    let sum = Sum { answers: number(row, "answers")?, usage: tokens(row)?, ..Sum::default() };
    Ok(match by {
        By::Day => Sum { day: Some(clock::date(number(row, "key")?)), ..sum },
        By::Model => Sum { model: Some(row.get("key")?), ..sum },
        By::Session => {
            let id: String = row.get("key")?;
            Sum { session: (!id.is_empty()).then(|| id.into()), name: row.get("name")?, ..sum }
        }
    })
}

fn held(number: u64) -> i64 {
    i64::try_from(number).map_or(MOST, |number| number.min(MOST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::migrate;

    fn database() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&migrate::sql(0, migrate::SCHEMA)).unwrap();
        connection
    }

    fn spent(day: u64, model: &str, usage: Usage) -> Spent {
        Spent { day, model: model.to_owned(), answers: 1, usage }
    }

    fn usage(input_tokens: u64, cost_micros: Option<u64>) -> Usage {
        Usage { input_tokens, output_tokens: 1, cost_micros, ..Usage::default() }
    }

    /// The rows as text: what they stand for, answers, tokens of requests, cost.
    fn check(connection: &Connection, since_day: u64, by: By, expect: &[&str]) {
        let sums = sums(connection, since_day, by).unwrap();
        let line = |sum: &Sum| {
            let key = sum.day.clone().or_else(|| sum.model.clone()).or_else(|| sum.session.clone().map(|id| id.0));
            let cost = sum.usage.cost_micros.map_or_else(|| "unknown".to_owned(), |cost| cost.to_string());
            let least = if sum.usage.cost_at_least { "+" } else { "" };
            format!("{} {} {} {cost}{least}", key.unwrap_or_default(), sum.answers, sum.usage.input_tokens)
        };
        let got: Vec<String> = sums.rows.iter().chain([&sums.total]).map(line).collect();
        assert_eq!(got, expect, "{by:?}");
    }

    #[test]
    fn answers_are_summed_by_day_model_and_session() {
        let connection = database();
        check(&connection, 0, By::Day, &[" 0 0 unknown"]);
        for (session, day, model, answer) in [
            ("s1", 20_778, "a/x", usage(10, Some(100))),
            ("s1", 20_778, "a/x", usage(20, Some(200))),
            ("s2", 20_778, "b/y", usage(40, None)),
            ("s2", 20_779, "a/x", usage(80, Some(7))),
            ("s2", 20_779, "b/z", Usage::of_answer(None, true)),
        ] {
            add(&connection, session, &spent(day, model, answer)).unwrap();
        }
        check(&connection, 0, By::Day, &["2026-11-21 3 70 300+", "2026-11-22 2 80 7+", " 5 150 307+"]);
        check(&connection, 20_779, By::Day, &["2026-11-22 2 80 7+", " 2 80 7+"]);
        check(&connection, 0, By::Model, &["a/x 3 110 307", "b/y 1 40 unknown+", "b/z 1 0 unknown+", " 5 150 307+"]);
        check(&connection, 0, By::Session, &["s1 2 30 300", "s2 3 120 7+", " 5 150 307+"]);
    }

    #[test]
    fn the_days_of_a_removed_session_stay_without_its_name() {
        let connection = database();
        for session in ["s1", "s2"] {
            add(&connection, session, &spent(20_778, "a/x", usage(10, Some(100)))).unwrap();
            release(&connection, session).unwrap();
        }
        add(&connection, "s3", &spent(20_778, "a/x", usage(10, None))).unwrap();
        check(&connection, 0, By::Session, &[" 2 20 200", "s3 1 10 unknown+", " 3 30 200+"]);
        release(&connection, "s3").unwrap();
        release(&connection, "s3").unwrap();
        check(&connection, 0, By::Day, &["2026-11-21 3 30 200+", " 3 30 200+"]);
        let rows: i64 = connection.query_row("SELECT count(*) FROM usage", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 1);
    }

    #[test]
    fn numbers_that_nobody_believes_do_not_overflow() {
        let connection = database();
        for _ in 0..3 {
            add(&connection, "s1", &spent(u64::MAX, "a/x", usage(u64::MAX, Some(u64::MAX)))).unwrap();
            add(&connection, "s2", &spent(0, "a/x", usage(u64::MAX, Some(u64::MAX)))).unwrap();
        }
        let sums = sums(&connection, 0, By::Model).unwrap();
        assert_eq!(sums.total.usage.input_tokens, MOST as u64);
        assert_eq!(sums.total.usage.cost_micros, Some(MOST as u64));
    }

    #[test]
    fn a_list_has_its_bound_and_the_total_is_of_all() {
        let connection = database();
        for n in 0..ROWS as u64 + 5 {
            add(&connection, &format!("s{n}"), &spent(10 + n, "a/x", usage(1, Some(n)))).unwrap();
        }
        let days = sums(&connection, 0, By::Day).unwrap();
        assert_eq!((days.rows.len(), days.left_out, days.total.answers), (ROWS, 5, ROWS as u64 + 5));
        assert_eq!(days.rows.first().and_then(|row| row.day.clone()), Some(clock::date(15)));
        let sessions = sums(&connection, 0, By::Session).unwrap();
        assert_eq!(sessions.rows.first().and_then(|row| row.usage.cost_micros), Some(ROWS as u64 + 4));
    }
}
