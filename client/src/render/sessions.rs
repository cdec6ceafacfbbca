//! Sessions as rows, for people.

use linger_protocol::message::{StopReason, Usage};
use linger_protocol::session::{Background, Info, ProviderWait, State};

use super::money;
use super::table::{age, columns, size};
use crate::environment::short_path;
use crate::terminal::clean_line;

/// Sessions as aligned lines; `now` in Unix milliseconds.
pub(crate) fn listing(rows: &[Info], now: u64) -> Vec<String> {
    let row = |info: &Info| {
        let title = info.name.clone().or_else(|| info.title.clone()).unwrap_or_default();
        let agent = info.agent.as_ref().map(|agent| format!("[{agent}] ")).unwrap_or_default();
        let title = agent + &title;
        let title: String = title.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).take(40).collect();
        vec![
            info.session.to_string(),
            state(info),
            age(info.updated_at, now),
            size(info.size),
            spent(&info.usage),
            money::fill(info.context_tokens, info.context_window).unwrap_or_default(),
            title,
            short_path(&info.cwd),
        ]
    };
    let lines = columns(&rows.iter().map(row).collect::<Vec<_>>());
    let below = rows.iter().map(|info| {
        let wait = info.provider_wait.as_ref().map(|wait| waiting(wait, now));
        wait.into_iter().chain(info.background.iter().map(move |job| background(job, now)))
    });
    lines.into_iter().zip(below).flat_map(|(line, below)| std::iter::once(line).chain(below)).collect()
}

/// A line about a wait for a provider: why, since when, and the next try.
fn waiting(wait: &ProviderWait, now: u64) -> String {
    let reason = clean_line(&wait.reason);
    let next = match wait.until_at.saturating_sub(now) {
        0 => "tries again within 30 s".to_owned(),
        _ => format!("next try in {}", age(now, wait.until_at)),
    };
    format!("  {reason}; waiting for {}, {next}", age(wait.since_at, now))
}

/// A line about a command in the background.
fn background(job: &Background, now: u64) -> String {
    let command: String = clean_line(&job.command).chars().take(60).collect();
    format!("  {}: {command}, in the background for {}", job.background, age(job.started_at, now))
}

/// Tokens and their cost, in one cell.
fn spent(usage: &Usage) -> String {
    if usage.is_uncounted() {
        return money::cost(usage);
    }
    let tokens = money::tokens(usage.input_tokens.saturating_add(usage.output_tokens));
    format!("{tokens} tokens, {}", money::cost(usage))
}

/// The state of a session, in a word or two.
fn state(info: &Info) -> String {
    let mut text = doing(info);
    if info.queued > 0 {
        text += &format!(", {} queued", info.queued);
    }
    if !info.background.is_empty() {
        text += &format!(", {} in background", info.background.len());
    }
    text
}

fn doing(info: &Info) -> String {
    match (info.state, info.stop_reason) {
        _ if info.damaged.is_some() => "damaged".to_owned(),
        _ if info.unwritten.is_some() => "stalled".to_owned(),
        (State::Running, _) if info.provider_wait.is_some() => "waiting: provider".to_owned(),
        (State::Running, _) => "running".to_owned(),
        (State::Waiting, _) if info.questions.is_empty() => "waiting: key".to_owned(),
        (State::Waiting, _) => format!("waiting: {}", info.questions.len()),
        (State::Offered, _) => "offered".to_owned(),
        (State::Idle, None) => "idle".to_owned(),
        (State::Idle, Some(StopReason::Cancelled)) => "cancelled".to_owned(),
        (State::Idle, Some(StopReason::EndTurn)) => "done".to_owned(),
        (State::Idle, Some(reason)) => {
            let word = match reason {
                StopReason::MaxTokens => "max_tokens",
                StopReason::MaxSteps => "max_steps",
                StopReason::Refusal => "refusal",
                _ => "error",
            };
            format!("failed({word})")
        }
    }
}
