//! `linger mcp login`: the browser's part of a login to an MCP server.
//!
//! The daemon finds the page and gets the tokens. This opens the page and receives the browser's redirect on a local port.
//! Deliberately absent: tokens. The code that passes through here is worthless without the daemon's secret.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use linger_protocol::mcp::{FinishLogin, Login, LoginPage, Named};
use linger_protocol::method::{McpFinishLogin, McpLogin};

use crate::connect::{Client, start};
use crate::error::{Exit, Failure};
use crate::terminal::{Terminal, clean_line};

/// Timeout for the browser; then the daemon forgets the login.
const PATIENCE: Duration = Duration::from_secs(600);

/// Timeout for the daemon, which asks other servers.
const ANSWER: Duration = Duration::from_secs(150);

/// Bytes of a request that are read, at most; codes have a few hundred.
const MAX_REQUEST: u64 = 16 << 10;

/// How long a connection may take to send its request, so that a silent one blocks nothing.
const SILENCE: Duration = Duration::from_secs(5);

/// Logs in to a server.
pub(super) fn run(client: &mut Client, named: &Named, paste: bool) -> Result<(), Failure> {
    let Named { server, cwd, session } = named;
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let redirect = format!("http://127.0.0.1:{}/callback", listener.local_addr()?.port());
    let begin = McpLogin(Login { server: server.clone(), cwd: cwd.clone(), session: session.clone(), redirect });
    let LoginPage { login, page } = client.call_within(&begin, ANSWER)?;
    let mut terminal = Terminal::new();
    terminal.say(&format!("open this page in a browser to log in:\n{}", clean_line(&page)))?;
    let query = if paste {
        terminal.say("then paste the address where the browser ends up (the page may not load):")?;
        pasted()?
    } else {
        if !start::open_browser(&page) {
            terminal.say("note: cannot start a browser here; use `--paste` for a browser on another machine")?;
        }
        received(listener)?
    };
    let value = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    if let Some(error) = value("error") {
        let about = value("error_description").map(|text| format!(": {text}")).unwrap_or_default();
        return Err(Failure::new(Exit::FAILED, format!("the server refused: {}", clean_line(&(error + &about)))));
    }
    let (Some(code), Some(state)) = (value("code"), value("state")) else {
        return Err(
            Failure::new(Exit::FAILED, "that address has no code").hint("try again, and copy the whole address")
        );
    };
    let (server, cwd, session) = (server.clone(), cwd.clone(), session.clone());
    let done = format!("logged in to {server}");
    let finish = FinishLogin { login, server, cwd, session, code, state, issuer: value("iss") };
    let logged_in = client.call_within(&McpFinishLogin(finish), ANSWER)?;
    terminal.say(&done)?;
    if let Some(why) = logged_in.no_keychain {
        terminal.say(&format!("note: the login only lasts until the daemon stops: {}", clean_line(&why)))?;
    }
    Ok(())
}

/// The query of the address that the user pastes.
fn pasted() -> Result<Vec<(String, String)>, Failure> {
    let mut line = String::new();
    std::io::stdin().lock().take(MAX_REQUEST).read_line(&mut line)?;
    Ok(query(line.trim()))
}

/// Waits for the browser's redirect. Other requests get a 404.
fn received(listener: TcpListener) -> Result<Vec<(String, String)>, Failure> {
    let (sender, answers) = mpsc::channel();
    // It ends with this process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Some(query) = answer(stream)
                && sender.send(query).is_err()
            {
                return;
            }
        }
    });
    let until = Instant::now() + PATIENCE;
    answers
        .recv_timeout(until.saturating_duration_since(Instant::now()))
        .map_err(|_| Failure::new(Exit::FAILED, "the browser did not come back within ten minutes").hint("try again"))
}

/// Reads and answers a request; returns its query if it is the login's redirect.
fn answer(stream: TcpStream) -> Option<Vec<(String, String)>> {
    stream.set_read_timeout(Some(SILENCE)).ok()?;
    let mut line = String::new();
    let mut reader = BufReader::new(stream.try_clone().ok()?.take(MAX_REQUEST));
    reader.read_line(&mut line).ok()?;
    let target = line.strip_prefix("GET ")?.split(' ').next()?;
    let found = target.strip_prefix("/callback?").map(|_| query(target));
    // Read the rest, or the answer could be lost with the connection.
    let mut header = String::new();
    while reader.read_line(&mut header).is_ok_and(|read| read > 2) {
        header.clear();
    }
    let (status, body) = match &found {
        Some(_) => ("200 OK", "Logged in. You can close this page."),
        None => ("404 Not Found", "not found"),
    };
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}", body.len());
    let _gone = (&stream).write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes());
    found
}

/// The decoded query of an address.
fn query(address: &str) -> Vec<(String, String)> {
    let query = address.split_once('?').map(|(_, query)| query.split('#').next().unwrap_or_default());
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let hex = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match (first, after) {
            (b'+', _) => bytes.push(b' '),
            (b'%', [high, low, after @ ..]) => match (hex(high), hex(low)) {
                (Some(high), Some(low)) => {
                    bytes.push(high * 16 + low);
                    rest = after;
                }
                _ => bytes.push(b'%'),
            },
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_browser_is_read() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let address = "http://127.0.0.1:1/callback?code=a%2Fb%2&state=x+y&iss=https%3A%2F%2Fh#end";
        assert_eq!(query(address), [pair("code", "a/b%2"), pair("state", "x y"), pair("iss", "https://h")]);
        assert_eq!(query("nonsense"), []);
    }
}
