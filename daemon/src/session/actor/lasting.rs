//! Decisions that last: the rules that they add to the session and, with `always`, to the configuration.
//!
//! They are those of the question, one for each thing that the call touches, or those that the answer names in their place: a
//! person may have written them otherwise.

use linger_protocol::question::Answer;

use super::*;
use crate::config::Settled;
use crate::question::permission::{self, CallInfo, Rule, Verdict};
use crate::session::state::QuestionState;
use crate::tool::Access;

/// The most rules that an answer may name: a person writes few.
const MAX_RULES: usize = 32;

/// The rules of a question, for people.
pub(super) fn in_words(rules: &[String]) -> String {
    rules.join(" and ")
}

/// Whether the rules of an answer refuse, and the rules, if the answer is one for always.
pub(super) fn rules_for_always(asked: &QuestionState, answer: &Answer) -> Option<(bool, Vec<String>)> {
    asked.grant()?;
    let refuses = match Decision::answer(&answer.answer)? {
        Decision::AllowAlways => false,
        Decision::RejectAlways => true,
        _ => return None,
    };
    Some((refuses, rules_of(asked, answer)))
}

/// The rule for exactly a command line, for an answer that refuses one which has a rule for each of its commands.
fn rule_for_line(line: &str) -> String {
    let line = line.trim_matches([' ', '\t', '\n']);
    // With a blank behind it the star is one, and not the beginning of more.
    if line.ends_with(":*") { format!("bash({line} )") } else { format!("bash({line})") }
}

fn rules_of(asked: &QuestionState, answer: &Answer) -> Vec<String> {
    if answer.rules.is_empty() { asked.rules() } else { answer.rules.clone() }
}

impl Actor {
    /// The rules that an answer for a call may add: of a line of several commands, for those that would ask.
    pub(super) fn offered_rules(&self, request: &PermissionRequest) -> Vec<String> {
        let all = permission::grants_for(&request.info(), &request.resolved);
        if all.len() < 2 || request.effects.access.command().is_none() {
            return all;
        }
        let asks = |rule: &&String| {
            let text = rule.strip_prefix("bash(").and_then(|rule| rule.strip_suffix(')')).unwrap_or(rule);
            let command = text.strip_suffix(":*").unwrap_or(text).to_owned();
            let info = CallInfo { access: Access::Command(command), ..request.info() };
            !matches!(self.verdict_on(&info, request), Verdict::Allow { .. })
        };
        let asking: Vec<String> = all.iter().filter(asks).cloned().collect();
        if asking.is_empty() { all } else { asking }
    }

    /// An answer that refuses a line of several commands for always refuses that line, and not each of its commands.
    pub(super) fn refuse_line(&self, asked: &QuestionState, answer: &mut Answer) {
        let refuses = Decision::answer(&answer.answer) == Some(Decision::RejectAlways);
        if !refuses || !answer.rules.is_empty() || asked.grant().is_none() {
            return;
        }
        let request = self.running().and_then(|running| running.request(&asked.id));
        let Some(request) = request else { return };
        if let Access::Command(line) = &request.effects.access
            && permission::is_several(line)
        {
            answer.rules = vec![rule_for_line(line)];
        }
    }

    /// Checks the rules that an answer adds: those that it names must be rules that can match, and there must be room for them.
    pub(super) fn check_rules(&self, asked: &QuestionState, answer: &Answer) -> Result<(), RpcError> {
        let decision = asked.grant().and_then(|_| Decision::answer(&answer.answer)).filter(|decision| decision.lasts());
        let Some(decision) = decision else {
            let named = answer.rules.first();
            return named.map_or(Ok(()), |rule| {
                let text = format!("the answer {} adds no rule, and so not `{rule}`", answer.answer);
                let lasting = Decision::ANSWERS.into_iter().filter(|decision| decision.lasts()).map(Decision::name);
                let hint = format!("rules go with {}", lasting.collect::<Vec<_>>().join(", "));
                Err(RpcError::new(Code::BadRule, text).hint(hint))
            });
        };
        if answer.rules.len() > MAX_RULES {
            return Err(RpcError::new(Code::TooMuch, format!("an answer may name {MAX_RULES} rules")));
        }
        let tools = self.env.toolbox.servers.tools_in(self.workspace.rules_root(), self.id.as_str()).current();
        let mut named = Vec::new();
        for text in &answer.rules {
            let bad = |why: String| RpcError::new(Code::BadRule, why).hint("correct the rule, or allow it once");
            let rule = Rule::parse(text, tools.names()).map_err(|error| bad(error.to_string()))?;
            if let Some(warning) = rule.warning(decision.allows(), tools.names()) {
                return Err(bad(warning));
            }
            named.push(rule);
        }
        self.check_coverage(asked, named, decision.allows())?;
        let had = if decision.allows() { &self.state.settings.grants } else { &self.state.settings.denied };
        let rules = rules_of(asked, answer);
        let new: Vec<&String> = rules.iter().filter(|rule| !had.contains(rule)).collect();
        if had.len() + new.len() > MAX_GRANTS || new.iter().any(|rule| rule.len() > MAX_GRANT) {
            let limit = format!("a session may have {MAX_GRANTS} rules of {MAX_GRANT} bytes each from answers");
            return Err(RpcError::new(Code::TooMuch, limit).hint("decide on this call alone"));
        }
        Ok(())
    }

    /// Fails if the rules that an answer names do not decide on the very call that it is for: a mistake, as what was shown does.
    /// Those in force may allow the rest of it. The call of an interrupted turn is not known yet, so any rule is taken then.
    fn check_coverage(&self, asked: &QuestionState, named: Vec<Rule>, allows: bool) -> Result<(), RpcError> {
        let request = self.running().and_then(|running| running.request(&asked.id));
        let Some(request) = request.filter(|_| !named.is_empty()) else { return Ok(()) };
        let texts: Vec<String> = named.iter().map(|rule| format!("`{rule}`")).collect();
        let with_those_in_force: Vec<String> =
            self.state.settings.grants.iter().cloned().chain(named.iter().map(Rule::to_string)).collect();
        if permission::covers(named, allows, &request.info(), &request.resolved) {
            return Ok(());
        }
        let settled = Settled { grants: &with_those_in_force, ..self.state.settings.settled() };
        let verdict = self.env.policy.decide(settled, &request.info(), &request.resolved, &self.workspace);
        if allows && matches!(verdict, Verdict::Allow { .. }) {
            return Ok(());
        }
        let (does, do_not) = if allows { ("allow", "does not allow") } else { ("refuse", "does not refuse") };
        let verb = if texts.len() > 1 { format!("do not {does}") } else { do_not.to_owned() };
        let text = format!("{} {verb} this call; no rule is stored", in_words(&texts));
        Err(RpcError::new(Code::BadRule, text).hint(format!("`{}` does", in_words(&asked.rules()))))
    }
}
