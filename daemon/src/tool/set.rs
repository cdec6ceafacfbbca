//! Sets of tools: which there are, found by name, and what models are told of them.
//!
//! A [`ToolSet`] never changes. [`Tools`] holds the one that counts now and can be given another while the daemon runs; a turn
//! takes it between two steps, so that the calls of an answer run with the tools that its request named.
//! Deliberately absent: where tools come from.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use linger_protocol::message::HostedTool;
use serde_json::Value;
use tokio::sync::watch;

use super::apply_patch::{self, ApplyPatch};
use super::call_tool::{self, CallTool};
use super::delegate;
use super::find_tools::FindTools;
use super::image;
use super::memory::{self, Memory};
use super::program::PREFIX;
use super::skill::{self, Skill};
use super::{Invalid, Tool, text};
use super::{edit, write};
use crate::provider::ToolSpec;
use crate::provider::tools::{ToolSpecs, is_among};

/// So many parts of the set are kept though no turn has them: a user's sessions have the same few. One takes about 50 KB.
const RECENT: usize = 4;

/// So many names a model is told that called a tool which does not exist.
const NAMED: usize = 40;

/// What a rule's pattern, `tool(pattern)`, means for a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A glob of paths.
    Path,
    /// A command.
    Command,
    /// The arguments of the program that is called like the tool.
    Arguments,
    /// A host's name or address.
    Host,
    /// A version of a server's tool, `#` and hexadecimal digits: the one that was permitted.
    Version,
    /// Nothing: a rule names the tool alone.
    Nothing,
}

/// What the tools of MCP servers are called: `mcp__server__tool`. They may come after the rules that name them, like those of
/// files ([`PREFIX`]).
pub const MCP: &str = "mcp__";

/// The tools that rules can name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(BTreeMap<String, Takes>);

impl Names {
    /// What a pattern means for the tool, if it is known.
    pub fn takes(&self, tool: &str) -> Option<Takes> {
        let known = self.0.get(tool).copied();
        known.or_else(|| [MCP, PREFIX].iter().any(|it| tool.starts_with(it)).then_some(Takes::Version))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A tool whose name differs by one letter or by case.
    pub fn near(&self, tool: &str) -> Option<&str> {
        let tool = tool.to_lowercase();
        self.0.keys().map(String::as_str).find(|known| strsim::levenshtein(known, &tool) <= 1)
    }
}

impl<S: Into<String>> FromIterator<(S, Takes)> for Names {
    fn from_iter<I: IntoIterator<Item = (S, Takes)>>(names: I) -> Self {
        Self(names.into_iter().map(|(name, takes)| (name.into(), takes)).collect())
    }
}

/// Tools in a stable order, each with a name of its own.
pub struct ToolSet {
    tools: Vec<Arc<dyn Tool>>,
    /// Where each is in `tools`.
    by_name: HashMap<String, usize>,
    specs: ToolSpecs,
    names: Names,
}

impl ToolSet {
    /// These tools, in the order in which a model sees them. Of two with one name the first counts.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        Self::of(tools, |_| true)
    }

    /// The same tools; models are not told of those of servers, and find and call them with two tools more.
    fn with_found(&self) -> Self {
        let found: Vec<Arc<dyn Tool>> = self.iter().filter(|tool| tool.server().is_some()).cloned().collect();
        let two: [Arc<dyn Tool>; 2] = [Arc::new(FindTools::new(found)), Arc::new(CallTool)];
        Self::of(self.tools.iter().cloned().chain(two), |tool| tool.server().is_none())
    }

    fn of(tools: impl IntoIterator<Item = Arc<dyn Tool>>, is_told: impl Fn(&dyn Tool) -> bool) -> Self {
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
        // Sessions that have skills or notes have them, and those whose models write patches.
        let skill = [
            (skill::NAME, Skill.pattern()),
            (memory::NAME, Memory.pattern()),
            (apply_patch::NAME, ApplyPatch.pattern()),
            (image::NAME, Takes::Host),
        ];
        let names = kept.iter().map(|tool| (tool.name(), tool.pattern())).chain(skill).collect();
        Self { tools: kept, by_name, specs, names }
    }

    /// The tool with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(*self.by_name.get(name)?)
    }

    /// The tool and the arguments that a call means: what `call_tool` names, also in a set that lacks it, for a call may be
    /// older than the set.
    pub fn meant(&self, name: String, input: Value) -> Result<(String, Value), Invalid> {
        match name == call_tool::NAME && !input.is_string() {
            true => call_tool::meant(&input),
            false => Ok((name, input)),
        }
    }

    /// About how much of a request the tools of servers among `only` take, in bytes, if models are told of all tools.
    fn served_size(&self, only: Option<&[String]>) -> usize {
        let sized = self.tools.iter().zip(self.specs.sizes());
        let served = sized.filter(|(tool, _)| tool.server().is_some() && is_among(only, tool.name()));
        served.map(|(_, size)| size).fold(0, usize::saturating_add)
    }

    /// The tool with this name, or what a model is told that called one which does not exist, or not any more.
    pub fn find(&self, name: &str) -> Result<&Arc<dyn Tool>, Invalid> {
        self.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
            let near = text::did_you_mean(name, &names);
            let names: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
            let shown = names.get(..NAMED).unwrap_or(&names).join(", ");
            let more = names.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Invalid(format!("there is no tool `{}`{near} (the tools are {shown}{more})", text::brief(name)))
        })
    }

    /// What models are told of the tools.
    pub fn specs(&self) -> &ToolSpecs {
        &self.specs
    }

    /// The tools that rules can name.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// One after the other.
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
pub struct Tools(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    current: watch::Sender<Arc<ToolSet>>,
    /// The parts of a set that sessions have, each shared by all sessions that have the same.
    parts: Mutex<Parts>,
}

/// What a session has of the tools that only some have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Offered {
    /// It has skills, and the tool that reads them.
    pub skills: bool,
    /// It has notes that outlive it, and the tool for them.
    pub notes: bool,
    /// It may delegate.
    pub delegates: bool,
    /// Its model changes files by patches, and so has the tool for them in the place of the two that replace and write.
    pub patches: bool,
    /// A provider makes images for it, and it has the tool for them.
    pub images: bool,
}

/// Whether a session that has `only` these tools has the one for patches; `is_used`: its model changes files by them. It can do
/// what the two together can, and no less.
fn patches(only: Option<&[String]>, is_used: bool) -> bool {
    let Some(named) = only else { return is_used };
    let has = |name: &str| named.iter().any(|it| it == name);
    has(apply_patch::NAME) || is_used && has(edit::NAME) && has(write::NAME)
}

/// The digest of the whole set, the names in a part, whether those of servers are found, and what else the session has.
type PartKey = (String, Option<Vec<String>>, bool, Offered);

/// The parts that sessions have.
#[derive(Debug, Default)]
struct Parts {
    all: HashMap<PartKey, Weak<ToolSet>>,
    /// Those used last, the last one at the end. Between two turns no session holds its part, and to make and render one takes
    /// longer than all else that a prompt costs.
    recent: VecDeque<Arc<ToolSet>>,
}

impl Parts {
    fn keep(&mut self, part: &Arc<ToolSet>) {
        self.recent.retain(|recent| !Arc::ptr_eq(recent, part));
        self.recent.push_back(part.clone());
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }
}

impl Default for Tools {
    /// The tools that come with the daemon.
    fn default() -> Self {
        Self::new(ToolSet::new(super::builtin()))
    }
}

impl Tools {
    /// Begins with this set.
    pub fn new(set: ToolSet) -> Self {
        Self(Arc::new(Shared { current: watch::Sender::new(Arc::new(set)), parts: Mutex::default() }))
    }

    /// The set as it is now.
    pub fn current(&self) -> Arc<ToolSet> {
        self.0.current.borrow().clone()
    }

    /// Of the set as it is now, the tools of a session that has `only` these, as [`is_among`] compares them. If those of servers
    /// would take more than `room` bytes of each request, models are told how to find them in place of what they are.
    pub fn of(&self, only: Option<&[String]>, room: usize, offered: Offered) -> Arc<ToolSet> {
        self.with(only, room, offered, None)
    }

    /// As [`Self::of`]; `image` makes images, if the session has such a tool.
    pub fn with(
        &self,
        only: Option<&[String]>,
        room: usize,
        offered: Offered,
        image: Option<&Arc<dyn Tool>>,
    ) -> Arc<ToolSet> {
        let whole = self.current();
        let is_found = whole.served_size(only) > room;
        let reads_skills = offered.skills && is_among(only, skill::NAME);
        let has_notes = offered.notes && is_among(only, memory::NAME);
        let patches = patches(only, offered.patches);
        let image = image.filter(|_| offered.images && is_among(only, image::NAME));
        let images = image.is_some();
        let offered = Offered { skills: reads_skills, notes: has_notes, patches, images, ..offered };
        if only.is_none() && !is_found && !reads_skills && !has_notes && offered.delegates && !patches && !images {
            return whole;
        }
        let key = (whole.specs().digest().to_owned(), only.map(<[String]>::to_vec), is_found, offered);
        let mut parts = self.0.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = parts.all.get(&key).and_then(Weak::upgrade);
        let part = known.unwrap_or_else(|| {
            let skill = reads_skills.then(|| Arc::new(Skill) as Arc<dyn Tool>);
            let has = |name: &str| match name {
                delegate::NAME => offered.delegates && is_among(only, name),
                edit::NAME | write::NAME => is_among(only, name) && !patches,
                name => is_among(only, name),
            };
            let patch = patches.then(|| Arc::new(ApplyPatch) as Arc<dyn Tool>);
            let part = whole.iter().filter(|tool| has(tool.name())).cloned().chain(patch).chain(image.cloned());
            let notes = has_notes.then(|| Arc::new(Memory) as Arc<dyn Tool>);
            let part = ToolSet::new(part.chain(notes).chain(skill));
            let part = Arc::new(if is_found { part.with_found() } else { part });
            parts.all.retain(|_, part| part.strong_count() > 0);
            parts.all.insert(key, Arc::downgrade(&part));
            part
        });
        parts.keep(&part);
        part
    }

    /// Why a session cannot have `only` these tools; absent if it can. A server's tools may come later than the session.
    pub fn unknown(&self, only: &[String]) -> Option<String> {
        let whole = self.current();
        let hosted = HostedTool::ALL.map(HostedTool::name);
        let names: Vec<&str> = whole
            .iter()
            .map(|tool| tool.name())
            .chain(hosted)
            .chain([skill::NAME, memory::NAME, apply_patch::NAME, image::NAME])
            .collect();
        let is_known =
            |it: &&String| *it == "*" || it.starts_with(MCP) || it.starts_with(PREFIX) || names.contains(&it.as_str());
        let unknown = only.iter().find(|it| !is_known(it))?;
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

#[cfg(test)]
mod tests {
    use linger_protocol::message::{ContentBlock, Role};

    use super::super::builtin;
    use super::*;
    use crate::provider::catalogue::{ProviderKind, codec};
    use crate::provider::compat::Compat;
    use crate::provider::support::request;
    use crate::provider::{Encoding, Message, Request};

    const ALL: Offered = Offered { skills: false, notes: false, delegates: true, patches: false, images: false };
    const SKILLED: Offered = Offered { skills: true, ..ALL };

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
            let system = include_str!("../session/system.md");
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
        let part = tools.of(Some(&only), usize::MAX, ALL);
        let names: Vec<&str> = part.iter().map(|tool| tool.name()).collect();
        assert_eq!(names, ["read", "grep"], "in the order of the whole set");
        assert!(Arc::ptr_eq(&part, &tools.of(Some(&only), usize::MAX, ALL)));
        assert!(Arc::ptr_eq(&tools.of(None, 0, ALL), &tools.current()), "no server has a tool");
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
        assert_eq!(tools.of(None, 0, SKILLED).iter().last().unwrap().name(), "skill");
        assert!(tools.of(Some(&read), 0, SKILLED).get("skill").is_none());
        assert_eq!(tools.current().names().takes("skill"), Some(Takes::Path));
        assert_eq!(tools.unknown(&["skill".to_owned()]), None);
    }

    #[test]
    fn a_part_that_no_turn_has_is_not_made_again_for_the_next() {
        let tools = Tools::default();
        let first = Arc::downgrade(&tools.of(None, usize::MAX, SKILLED));
        let next = tools.of(None, usize::MAX, SKILLED);
        assert!(first.upgrade().is_some_and(|first| Arc::ptr_eq(&first, &next)));
        drop(next);
        // Others push it out, and so bound what is kept.
        for n in 0..=RECENT {
            tools.of(Some(&[format!("mcp__{n}")]), usize::MAX, ALL);
        }
        let parts = tools.0.parts.lock().unwrap();
        assert_eq!((parts.recent.len(), parts.all.len()), (RECENT, RECENT + 1));
        assert_eq!(parts.all.values().filter(|part| part.strong_count() > 0).count(), RECENT);
    }

    #[test]
    fn a_session_that_may_not_delegate_has_no_such_tool() {
        let tools = Tools::default();
        assert!(tools.of(None, usize::MAX, ALL).get("delegate").is_some());
        let deep = tools.of(None, usize::MAX, Offered::default());
        assert_eq!((deep.get("delegate").is_none(), deep.iter().count()), (true, builtin().len() - 1));
    }

    #[test]
    fn tools_of_servers_that_take_too_much_are_found_and_called() {
        let served = (0..500).map(|n| super::super::tests::served(&format!("mcp__big__tool{n}"), "does much"));
        let tools = Tools::new(ToolSet::new(builtin().into_iter().chain(served)));
        let size = tools.current().served_size(None);
        assert!(Arc::ptr_eq(&tools.of(None, size, ALL), &tools.current()), "it fits");
        let found = tools.of(None, size - 1, ALL);
        assert!(Arc::ptr_eq(&found, &tools.of(None, 0, ALL)));
        let told: Vec<&str> = found.specs().iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(
            (told.len(), told[0], &told[told.len() - 2..]),
            (builtin().len() + 2, "bash", &["find_tools", "call_tool"][..])
        );
        let size: usize = found.specs().sizes().sum();
        assert!(size < 10 << 10, "{size}");
        assert_eq!(found.find("mcp__big__tool7").unwrap().name(), "mcp__big__tool7");
        let none = found.find("mcp__big__tol7").err().unwrap().0;
        assert!(none.contains("did you mean `mcp__big__tool7`?") && !none.contains("mcp__big__tool9"), "{none}");
        let part = tools.of(Some(&["read".to_owned(), "mcp__big__tool1".to_owned()]), 0, ALL);
        assert!(part.get("mcp__big__tool1").is_some() && part.get("mcp__big__tool2").is_none());
        let more = super::super::tests::served("mcp__big__more", "does more");
        tools.replace(ToolSet::new(tools.current().iter().cloned().chain([more])));
        assert_eq!(tools.of(None, 0, ALL).specs().digest(), found.specs().digest(), "the prefix of a request stays");
    }

    #[test]
    fn of_two_tools_with_one_name_the_first_counts() {
        let set = ToolSet::new(builtin().into_iter().chain(builtin()));
        assert_eq!(set.specs().digest(), ToolSet::new(builtin()).specs().digest());
        assert_eq!(set.iter().count(), builtin().len());
    }
}
