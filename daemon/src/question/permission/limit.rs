//! Limits: what a skill lets a turn do that has read it. Pure.
//!
//! A limit narrows and never allows: rules and mode decide on a call that it covers as on any other. It covers a call as strictly as
//! an allow rule matches one. Calls that only read are free.

use super::rule::{Effect, Rule};
use super::{CallInfo, ResolvedAccess, allow_each, is_read_only};
use crate::tool::delegate::NAME as DELEGATE;
use crate::tool::{Access, text};

/// How much of the rules a refusal shows, in bytes: some lines.
const SHOWN: usize = 1000;

/// The calls that a turn may make once it has read a skill.
#[derive(Clone, Debug)]
pub struct Limit {
    /// The skill's name.
    pub skill: String,
    /// Rules that cover calls which are not read-only.
    pub allowed: Vec<Rule>,
}

/// Why these limits of a turn refuse a call, for the model; `None` if they cover it: a rule of any is enough.
pub fn refuses(limits: &[Limit], call: &CallInfo<'_>, resolved: &ResolvedAccess) -> Option<String> {
    let rules = limits.iter().flat_map(|limit| &limit.allowed);
    let is_covered = resolved.each(call).all(|(call, part)| {
        let matches = |rule: &Rule| rule.matches(&call, part.target.as_ref(), None, &resolved.bases, Effect::Widen);
        is_free(&call) || rules.clone().any(matches) || allow_each(rules.clone(), &call, part).is_some()
    });
    if limits.is_empty() || is_covered {
        return None;
    }
    let skills: Vec<String> = limits.iter().map(|limit| format!("`{}`", text::one_line(&limit.skill))).collect();
    let (noun, verb) = if skills.len() == 1 { ("skill", "limits") } else { ("skills", "limit") };
    let mut allowed = String::new();
    for rule in rules {
        let rule = format!("`{}`", text::one_line(&rule.to_string()));
        if allowed.len() + rule.len() > SHOWN {
            allowed.push_str(", others");
            break;
        }
        allowed.push_str(if allowed.is_empty() { "" } else { ", " });
        allowed.push_str(&rule);
    }
    let and = if allowed.is_empty() { "" } else { " and " };
    let hint = match call.access.command() {
        Some(_) if !allowed.is_empty() => "; each command of a line must be one that is listed, in plain words",
        _ => "",
    };
    let skills = skills.join(" and ");
    Some(format!("the {noun} {skills} {verb} this turn to {allowed}{and}calls that only read{hint}"))
}

/// Whether no skill limits the call: it only reads, or touches nothing. What a child does may be anything.
fn is_free(call: &CallInfo<'_>) -> bool {
    call.tool != DELEGATE && (is_read_only(call) || call.access == Access::Nothing)
}
