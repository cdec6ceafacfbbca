//! `linger token`: creates, lists and revokes access tokens for other programs and machines.
//!
//! A token is printed once, alone on standard output; everything else goes to standard error, so that
//! `linger token mint NAME > file` stores only the token.

use std::path::absolute;

use linger_protocol::daemon::Empty;
use linger_protocol::method::{TokenList, TokenMint, TokenRevoke};
use linger_protocol::token::{Can, Grant, Mint, Minted, Revoke, Row};
use serde_json::json;

use super::find::resolve;
use super::output::{print_rows, print_value};
use crate::arguments::{Token, TokenMint as Wanted};
use crate::connect::Client;
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::render::table::{age, columns, moment};
use crate::terminal::{Terminal, clean_line};

pub(super) fn run(command: Token) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    match command {
        Token::Mint(wanted) => mint(&mut client, wanted),
        Token::List(args) => list(&mut client, args.json),
        Token::Revoke { token, json } => revoke(&mut client, &token, json),
    }
}

fn mint(client: &mut Client, wanted: Wanted) -> Result<Exit, Failure> {
    // The token passes through this connection.
    client.must_be_proven("so no token is asked for there")?;
    let Wanted { name, can, sessions, dir, mode, days, json } = wanted;
    let sessions =
        sessions.iter().map(|text| Ok(resolve(client, text)?.session)).collect::<Result<Vec<_>, Failure>>()?;
    let minted = client.call(&TokenMint(Mint {
        name,
        can: Some(can).filter(|can| !can.is_empty()),
        sessions: Some(sessions).filter(|sessions| !sessions.is_empty()),
        directory: dir.map(absolute).transpose()?,
        mode,
        days: Some(days),
        once: false,
    }))?;
    if json {
        print_value(&minted)?;
        return Ok(Exit::GOOD);
    }
    let Minted { id, token, grant } = minted;
    let mut terminal = Terminal::new();
    terminal.data(&token)?;
    terminal.say(&format!(
        "token {id} ({}): {}; until {}",
        clean_line(&grant.name),
        allows(&grant),
        moment(grant.expires_at)
    ))?;
    terminal.say(&format!("it is not shown again; `linger token revoke {id}` revokes it"))?;
    Ok(Exit::GOOD)
}

fn list(client: &mut Client, json: bool) -> Result<Exit, Failure> {
    if json {
        print_rows(client, &TokenList(Empty {}))?;
        return Ok(Exit::GOOD);
    }
    let rows = client.call(&TokenList(Empty {}))?;
    let mut terminal = Terminal::new();
    if rows.is_empty() {
        terminal.say("no tokens; `linger token mint NAME` creates one")?;
    }
    let now = now();
    let cells =
        |row: &Row| vec![row.id.0.clone(), row.grant.name.clone(), ends(row, now), used(row, now), allows(&row.grant)];
    for line in columns(&rows.iter().map(cells).collect::<Vec<_>>()) {
        terminal.line(&clean_line(&line))?;
    }
    Ok(Exit::GOOD)
}

fn revoke(client: &mut Client, named: &str, json: bool) -> Result<Exit, Failure> {
    let rows = client.call(&TokenList(Empty {}))?;
    let by_id = rows.iter().find(|row| row.id.as_str() == named);
    let by_name: Vec<&Row> = rows.iter().filter(|row| row.grant.name == named).collect();
    let row = match (by_id, by_name.as_slice()) {
        (Some(row), _) => row,
        (None, [row]) => *row,
        (None, []) => {
            return Err(Failure::new(Exit::FAILED, format!("no token '{}'", clean_line(named)))
                .hint("`linger token list` lists them"));
        }
        (None, several) => {
            let ids: Vec<&str> = several.iter().map(|row| row.id.as_str()).collect();
            return Err(Failure::new(Exit::FAILED, format!("{} tokens are called '{}'", ids.len(), clean_line(named)))
                .hint(format!("use an id: {}", ids.join(", "))));
        }
    };
    client.call(&TokenRevoke(Revoke { id: row.id.clone() }))?;
    if json {
        print_value(&json!({ "id": row.id, "name": row.grant.name }))?;
        return Ok(Exit::GOOD);
    }
    let name = clean_line(&row.grant.name).into_owned();
    Terminal::new().say(&format!("revoked token {} ({name}); its connections are closed", row.id))?;
    Ok(Exit::GOOD)
}

/// When a token expires, in a few words.
fn ends(row: &Row, now: u64) -> String {
    match row.code_until {
        Some(_) => "a code, not used yet".to_owned(),
        None if row.grant.expires_at <= now => "expired".to_owned(),
        None => format!("{} left", age(now, row.grant.expires_at)),
    }
}

/// When a token was last used, in a few words.
fn used(row: &Row, now: u64) -> String {
    row.used_at.map_or_else(|| "never used".to_owned(), |at| format!("used {} ago", age(at, now)))
}

/// The rights and limits of a grant in one line.
fn allows(grant: &Grant) -> String {
    let can: Vec<&str> = grant.can.iter().copied().map(Can::name).collect();
    let mut parts = vec![can.join(", ")];
    match grant.sessions.as_deref() {
        None => {}
        Some([session]) => parts.push(format!("session {session}")),
        Some(sessions) => parts.push(format!("{} sessions", sessions.len())),
    }
    parts.extend(grant.directory.as_ref().map(|dir| format!("in {}", dir.display())));
    parts.extend(grant.mode.map(|mode| format!("up to mode {mode}")));
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use linger_protocol::permission::Mode;

    use super::*;

    #[test]
    fn a_grant_is_a_line() {
        let grant = Grant { can: Can::USUAL.to_vec(), ..Grant::default() };
        assert_eq!(allows(&grant), "observe, speak");
        let sessions = Some(vec!["s1".into()]);
        let grant = Grant { sessions, directory: Some("/w".into()), mode: Some(Mode::Edit), ..grant };
        assert_eq!(allows(&grant), "observe, speak; session s1; in /w; up to mode edit");
    }

    #[test]
    fn a_row_says_when_it_ends_and_when_it_was_used() {
        let grant = Grant { expires_at: 3 * 86_400_000, ..Grant::default() };
        let row = Row { grant, used_at: Some(0), ..Row::default() };
        assert_eq!((ends(&row, 0), used(&row, 120_000)), ("3 d left".to_owned(), "used 2 min ago".to_owned()));
        assert_eq!(ends(&row, 3 * 86_400_000), "expired");
        let code = Row { code_until: Some(1), used_at: None, ..row };
        assert_eq!((ends(&code, 0), used(&code, 0)), ("a code, not used yet".to_owned(), "never used".to_owned()));
    }
}
