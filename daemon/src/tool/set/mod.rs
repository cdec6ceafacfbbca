//! Sets of tools: which tools a session has, found by name, and what models are told of them.
//!
//! A [`ToolSet`] never changes. [`Tools`] holds the one that counts now and can be given another while the daemon runs; a turn
//! takes it between two steps, so that the calls of an answer run with the tools that its request named. Each tool says which
//! sessions have it ([`Tool::offered`]). `find_tools` and `call_tool` stand in for tools of servers that are too large to list.
//! Deliberately absent: where tools come from.

mod call_tool;
mod find_tools;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use linger_protocol::message::HostedTool;
use serde_json::Value;
use tokio::sync::watch;

use super::fit;
use super::invalid::Invalid;
use super::names::PROGRAM_PREFIX;
pub use super::names::{MCP, Names, Takes};
use super::text;
use super::types::{SessionTraits, Tool};
use crate::provider::tools::ToolSpecs;
use crate::provider::{ToolSpec, unwrapped_arguments};
use call_tool::CallTool;
use find_tools::FindTools;

/// Subsets kept in the cache after their last turn; a user's sessions share a few. One takes about 50 KB.
const RECENT: usize = 4;

/// Tool names listed in the error for an unknown tool, at most.
const NAMED: usize = 40;

/// Tools in a stable order, each with a name of its own.
pub struct ToolSet {
    tools: Vec<Arc<dyn Tool>>,
    /// Where each is in `tools`.
    by_name: HashMap<String, usize>,
    /// Tools that only some sessions have. Rules can name them.
    for_some: Vec<Arc<dyn Tool>>,
    specs: ToolSpecs,
    names: Names,
}

impl ToolSet {
    /// These tools, in the order in which a model sees them. Of two with one name the first counts. Those that a usual session does
    /// not have are only in the sets of the sessions that have them, at the end.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        let (tools, for_some) = tools.into_iter().partition(|tool| tool.offered(&SessionTraits::USUAL));
        Self::of(tools, for_some, |_| true)
    }

    /// The same tools with these after them.
    pub fn and(&self, more: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        Self::new(self.tools.iter().cloned().chain(more).chain(self.for_some.iter().cloned()))
    }

    /// The same tools; models are not told of those of servers, and find and call them with two tools more.
    fn with_found(&self) -> Self {
        let found: Vec<Arc<dyn Tool>> = self.iter().filter(|tool| tool.server().is_some()).cloned().collect();
        let tools = self.tools.iter().cloned().chain(two_that_find(found)).collect();
        Self::of(tools, self.for_some.clone(), |tool| tool.server().is_none())
    }

    fn of(tools: Vec<Arc<dyn Tool>>, for_some: Vec<Arc<dyn Tool>>, is_told: impl Fn(&dyn Tool) -> bool) -> Self {
        let (mut kept, mut by_name): (Vec<Arc<dyn Tool>>, HashMap<String, usize>) = Default::default();
        for tool in tools {
            if by_name.contains_key(tool.name()) {
                tracing::warn!(target: "tool", name = tool.name(), "two tools have one name; the second is left out");
                continue;
            }
            by_name.insert(tool.name().to_owned(), kept.len());
            kept.push(tool);
        }
        let spec = |tool: &Arc<dyn Tool>| ToolSpec {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            input_schema: tool.schema(),
        };
        let specs = ToolSpecs::new(kept.iter().filter(|tool| is_told(tool.as_ref())).map(spec).collect());
        let names = kept.iter().chain(&for_some).map(|tool| (tool.name(), tool.pattern())).collect();
        Self { tools: kept, by_name, for_some, specs, names }
    }

    /// The tool with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(*self.by_name.get(name)?)
    }

    /// The tool and the arguments that a call means: those that `call_tool` names, also in a set that lacks it, because a call may
    /// be older than the set. A name or arguments that are right in all but their wrapping are taken.
    pub fn meant(&self, name: String, input: Value) -> Result<(String, Value), Invalid> {
        let name = self.known_name(name);
        let input = match input {
            Value::String(raw) => unwrapped_arguments(&raw).unwrap_or(Value::String(raw)),
            input => input,
        };
        let (name, input) = if name == call_tool::NAME && !input.is_string() {
            let (name, input) = call_tool::meant(&input)?;
            (self.known_name(name), input)
        } else {
            (name, input)
        };
        let input = match self.get(&name) {
            Some(tool) => fit::arguments(&tool.schema(), input),
            None => input,
        };
        Ok((name, input))
    }

    /// The name of a tool that a name means; itself if there is none.
    fn known_name(&self, name: String) -> String {
        if self.by_name.contains_key(&name) || name == call_tool::NAME {
            return name;
        }
        let known = fit::name(&name, self.tools.iter().map(|tool| tool.name()));
        known.map_or(name, str::to_owned)
    }

    /// The tool with this name. The error is for a model that called one which does not exist, or not any more.
    pub fn find(&self, name: &str) -> Result<&Arc<dyn Tool>, Invalid> {
        self.get(name).ok_or_else(|| {
            let server = name.strip_prefix(MCP).and_then(|rest| rest.split("__").next()).unwrap_or_default();
            let prefix = format!("{MCP}{server}__");
            if !server.is_empty() && !self.tools.iter().any(|tool| tool.name().starts_with(&prefix)) {
                let (name, server) = (text::brief(name), text::brief(server));
                return Invalid(format!(
                    "there is no tool `{name}`: the MCP server {server} has none here; it may not be running"
                ));
            }
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
            let near = text::did_you_mean(name, &names);
            let names: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
            let shown = names.get(..NAMED).unwrap_or(&names).join(", ");
            let more = names.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Invalid(format!("there is no tool `{}`{near} (the tools are {shown}{more})", text::brief(name)))
        })
    }

    /// The descriptions that models are told.
    pub fn specs(&self) -> &ToolSpecs {
        &self.specs
    }

    /// The tools that rules can name.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The tools, in the order in which a model sees them.
    pub fn iter(&self) -> std::slice::Iter<'_, Arc<dyn Tool>> {
        self.tools.iter()
    }
}

impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tools.iter().map(|tool| tool.name())).finish()
    }
}

/// The set that counts now; all clones of a [`Tools`] are one.
#[derive(Clone, Debug)]
pub struct Tools(Arc<SharedTools>);

#[derive(Debug)]
struct SharedTools {
    current: watch::Sender<Arc<ToolSet>>,
    /// The subsets that sessions have; sessions with the same tools share one.
    subsets: Mutex<Subsets>,
}

/// The digest of the whole set, the places of the chosen ones among all its tools, and whether those of servers are found.
type SubsetKey = (String, Vec<usize>, bool);

/// The subsets that sessions have.
#[derive(Debug, Default)]
struct Subsets {
    all: HashMap<SubsetKey, Weak<ToolSet>>,
    /// The ones used last, the latest at the end. Between two turns no session holds its subset, and to make and render one takes
    /// longer than all else that a prompt costs.
    recent: VecDeque<Arc<ToolSet>>,
}

impl Subsets {
    fn keep(&mut self, subset: &Arc<ToolSet>) {
        self.recent.retain(|recent| !Arc::ptr_eq(recent, subset));
        self.recent.push_back(subset.clone());
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }
}

impl Tools {
    /// Begins with this set.
    pub fn new(set: ToolSet) -> Self {
        Self(Arc::new(SharedTools { current: watch::Sender::new(Arc::new(set)), subsets: Mutex::default() }))
    }

    /// The set as it is now.
    pub fn current(&self) -> Arc<ToolSet> {
        self.0.current.borrow().clone()
    }

    /// The tools of this session, from the set as it is now; each of `ready` takes the place of the tool with its name. If those of
    /// servers would take more than `capacity` bytes of each request, models are told how to find them in place of what they are.
    pub fn of(&self, session: &SessionTraits<'_>, ready: &[Arc<dyn Tool>], capacity: usize) -> Arc<ToolSet> {
        let whole = self.current();
        let ready = |tool: &Arc<dyn Tool>| ready.iter().find(|it| it.name() == tool.name()).unwrap_or(tool).clone();
        let all = whole.tools.iter().chain(&whole.for_some).map(ready).enumerate();
        let (places, chosen): (Vec<usize>, Vec<Arc<dyn Tool>>) = all.filter(|(_, tool)| tool.offered(session)).unzip();
        let is_found = served_size(&whole, &places) > capacity;
        if !is_found && places.len() == whole.tools.len() && places.iter().enumerate().all(|(nth, place)| nth == *place)
        {
            return whole;
        }
        let key = (whole.specs().digest().to_owned(), places, is_found);
        let mut subsets = self.0.subsets.lock().unwrap_or_else(PoisonError::into_inner);
        let known = subsets.all.get(&key).and_then(Weak::upgrade);
        let subset = known.unwrap_or_else(|| {
            let subset = ToolSet::of(chosen, whole.for_some.clone(), |_| true);
            let subset = Arc::new(if is_found { subset.with_found() } else { subset });
            subsets.all.retain(|_, subset| subset.strong_count() > 0);
            subsets.all.insert(key, Arc::downgrade(&subset));
            subset
        });
        subsets.keep(&subset);
        subset
    }

    /// Why a session cannot have `only` these tools; absent if it can. A server's tools may come later than the session.
    pub fn unknown(&self, only: &[String]) -> Option<String> {
        let whole = self.current();
        let own = whole.tools.iter().map(|tool| tool.name());
        let for_some = whole.for_some.iter().map(|tool| tool.name());
        let names: Vec<&str> = own.chain(HostedTool::ALL.map(HostedTool::name)).chain(for_some).collect();
        let comes_later = |it: &str| it == "*" || it.starts_with(MCP) || it.starts_with(PROGRAM_PREFIX);
        let unknown = only.iter().find(|it| !comes_later(it) && !names.contains(&it.as_str()))?;
        let near = text::did_you_mean(unknown, &names);
        Some(format!("there is no tool `{}`{near} (the tools are {})", text::one_line(unknown), names.join(", ")))
    }

    /// Every turn takes this set before its next step.
    pub fn replace(&self, set: ToolSet) {
        self.0.current.send_replace(Arc::new(set));
    }

    /// Hears when the set is replaced.
    pub fn subscribe(&self) -> watch::Receiver<Arc<ToolSet>> {
        self.0.current.subscribe()
    }
}

/// `find_tools` for these tools, and `call_tool`.
pub(super) fn two_that_find(found: Vec<Arc<dyn Tool>>) -> [Arc<dyn Tool>; 2] {
    [Arc::new(FindTools::new(found)), Arc::new(CallTool)]
}

/// About how many bytes of a request the tools of servers at these places take, if models are told of all tools.
fn served_size(whole: &ToolSet, places: &[usize]) -> usize {
    let sizes: Vec<usize> = whole.specs.sizes().collect();
    let served = places.iter().filter(|place| whole.tools.get(**place).is_some_and(|tool| tool.server().is_some()));
    served.filter_map(|place| sizes.get(*place)).fold(0, |sum: usize, size| sum.saturating_add(*size))
}

#[cfg(test)]
mod tests {
    use linger_protocol::message::{ContentBlock, Role};

    use super::*;
    use crate::provider::catalogue::{ProviderKind, codec};
    use crate::provider::compat::Compat;
    use crate::provider::support::request;
    use crate::provider::{Encoding, Message, Request};
    use crate::tool::builtin;

    const SKILLED: SessionTraits<'static> = SessionTraits { has_skills: true, ..SessionTraits::USUAL };

    /// The tools of a usual session that has only these.
    fn subset(tools: &Tools, only: Option<&[String]>, capacity: usize) -> Arc<ToolSet> {
        tools.of(&SessionTraits { only, ..SessionTraits::USUAL }, &[], capacity)
    }

    #[test]
    fn the_first_request_with_all_tools_of_the_daemon_is_small_in_each_format() {
        let tools = ToolSet::new(builtin());
        let content = vec![ContentBlock::text("hello")];
        let messages = [Message { role: Role::User, content, origin: None }];
        for kind in [
            ProviderKind::Anthropic,
            ProviderKind::Openai,
            ProviderKind::OpenaiResponses,
            ProviderKind::Gemini,
            ProviderKind::Ollama,
        ] {
            let codec = codec(kind, Compat::NONE).unwrap();
            let system = include_str!("../../session/env/system.md");
            let request = Request { system, tools: tools.specs(), ..request(&messages) };
            let size = Encoding::default().encode(codec.as_ref(), &request).body.len();
            assert!(size < 10 << 10, "{size} bytes: {}", kind.name());
        }
    }

    #[test]
    fn an_unknown_tool_is_answered_with_the_nearest_name() {
        let set = ToolSet::new(builtin());
        let error = set.find("raed").err().unwrap().0;
        assert!(error.starts_with("there is no tool `raed`; did you mean `read`? (the tools are bash, "), "{error}");
        assert_eq!(set.find("grep").unwrap().name(), "grep");
    }

    #[test]
    fn sessions_that_have_the_same_part_of_the_tools_share_one_set() {
        let tools = Tools::default();
        let only = ["grep", "read", "mcp__files__*"].map(str::to_owned);
        let part = subset(&tools, Some(&only), usize::MAX);
        let names: Vec<&str> = part.iter().map(|tool| tool.name()).collect();
        assert_eq!(names, ["read", "grep"], "in the order of the whole set");
        assert!(Arc::ptr_eq(&part, &subset(&tools, Some(&only), usize::MAX)));
        assert!(Arc::ptr_eq(&subset(&tools, None, 0), &tools.current()), "no server has a tool");
        assert_eq!(tools.unknown(&only), None);
        let unknown = tools.unknown(&["web_search".to_owned(), "raed".to_owned()]).unwrap();
        assert!(
            unknown.starts_with("there is no tool `raed`; did you mean `read`? (the tools are bash, "),
            "{unknown}"
        );
    }

    #[test]
    fn only_a_session_with_skills_has_the_tool_that_reads_them() {
        let tools = Tools::default();
        let read = ["read".to_owned()];
        assert!(tools.current().get("skill").is_none());
        assert_eq!(tools.of(&SKILLED, &[], 0).iter().last().unwrap().name(), "skill");
        assert!(tools.of(&SessionTraits { only: Some(&read), ..SKILLED }, &[], 0).get("skill").is_none());
        assert_eq!(tools.current().names().takes("skill"), Some(Takes::Path));
        assert_eq!(tools.unknown(&["skill".to_owned()]), None);
    }

    #[test]
    fn a_part_that_no_turn_has_is_not_made_again_for_the_next() {
        let tools = Tools::default();
        let first = Arc::downgrade(&tools.of(&SKILLED, &[], usize::MAX));
        let next = tools.of(&SKILLED, &[], usize::MAX);
        assert!(first.upgrade().is_some_and(|first| Arc::ptr_eq(&first, &next)));
        drop(next);
        // Others push it out, and so bound what is kept.
        for n in 0..=RECENT {
            let other = tools.current().iter().nth(n).unwrap().name().to_owned();
            subset(&tools, Some(&[other]), usize::MAX);
        }
        let parts = tools.0.subsets.lock().unwrap();
        assert_eq!((parts.recent.len(), parts.all.len()), (RECENT, RECENT + 1));
        assert_eq!(parts.all.values().filter(|part| part.strong_count() > 0).count(), RECENT);
    }

    #[test]
    fn a_session_that_may_not_delegate_has_no_such_tool() {
        let tools = Tools::default();
        assert!(subset(&tools, None, usize::MAX).get("delegate").is_some());
        let deep = tools.of(&SessionTraits::default(), &[], usize::MAX);
        assert_eq!((deep.get("delegate").is_none(), deep.iter().count()), (true, tools.current().iter().count() - 1));
    }

    #[test]
    fn tools_of_servers_that_take_too_much_are_found_and_called() {
        let served = (0..500).map(|n| crate::tool::tests::served(&format!("mcp__big__tool{n}"), "does much"));
        let tools = Tools::new(ToolSet::new(builtin().into_iter().chain(served)));
        let whole = tools.current();
        let size = served_size(&whole, &(0..whole.tools.len()).collect::<Vec<_>>());
        assert!(Arc::ptr_eq(&subset(&tools, None, size), &tools.current()), "it fits");
        let found = subset(&tools, None, size - 1);
        assert!(Arc::ptr_eq(&found, &subset(&tools, None, 0)));
        let told: Vec<&str> = found.specs().iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(
            (told.len(), told[0], &told[told.len() - 2..]),
            (Tools::default().current().iter().count() + 2, "bash", &["find_tools", "call_tool"][..])
        );
        let size: usize = found.specs().sizes().sum();
        assert!(size < 10 << 10, "{size}");
        assert_eq!(found.find("mcp__big__tool7").unwrap().name(), "mcp__big__tool7");
        let none = found.find("mcp__big__tol7").err().unwrap().0;
        assert!(none.contains("did you mean `mcp__big__tool7`?") && !none.contains("mcp__big__tool9"), "{none}");
        let part = subset(&tools, Some(&["read".to_owned(), "mcp__big__tool1".to_owned()]), 0);
        assert!(part.get("mcp__big__tool1").is_some() && part.get("mcp__big__tool2").is_none());
        let more = crate::tool::tests::served("mcp__big__more", "does more");
        tools.replace(tools.current().and([more]));
        assert_eq!(subset(&tools, None, 0).specs().digest(), found.specs().digest(), "the prefix of a request stays");
    }

    #[test]
    fn of_two_tools_with_one_name_the_first_counts() {
        let set = ToolSet::new(builtin().into_iter().chain(builtin()));
        assert_eq!(set.specs().digest(), ToolSet::new(builtin()).specs().digest());
        assert_eq!(set.iter().count(), ToolSet::new(builtin()).iter().count());
    }
}
