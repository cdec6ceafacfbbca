//! Skills: SKILL.md as agentskills.io describes it, and the catalogue of them for models. Pure.
//!
//! Reading is lenient: a skill is used unless it has no description or its header cannot be read. What breaks the specification is
//! a problem of level `error`, which `linger skills validate` reports.

use linger_protocol::agent::{Problem, Skill as SkillRef, SkillLimit};

use super::entry::Entry;
use super::find::FoundFile;
use super::frontmatter::Page;
use super::others;
use crate::question::permission::Rule;
use crate::tool::set::{MCP, Names, Takes};
use crate::tool::skills::SkillFiles;
use crate::tool::text;

/// The keys of the specification; it forbids others.
const KEYS: [&str; 6] = ["name", "description", "license", ALLOWED, "metadata", "compatibility"];

/// Keys that other programs read, and this one too.
const ALSO: [&str; 2] = [MANUAL, "user-invocable"];

/// With this key only a person sends the skill, by its name.
const MANUAL: &str = "disable-model-invocation";

/// With this key a turn that has read the skill may do no more than what it lists, and read.
const ALLOWED: &str = "allowed-tools";

/// The most entries of that list: long ones have twenty.
const MAX_ALLOWED: usize = 200;

/// The longest name, in characters, by the specification.
const MAX_NAME: usize = 64;

/// The longest description, in characters, by the specification; more is cut in the catalogue.
const MAX_DESCRIPTION: usize = 1024;

/// The longest `compatibility`, in characters, by the specification.
const MAX_COMPATIBILITY: usize = 500;

/// The largest catalogue, in bytes: about 6,000 tokens, sent with every request.
const MAX_CATALOGUE: usize = 24 << 10;

/// Knowledge that a model reads when it needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skill {
    /// Its purpose, and when to use it: a model chooses by this.
    pub description: String,
    /// Whether only a person may send it.
    pub is_manual: bool,
    /// Rules for the calls that a turn may make after reading the skill; read-only calls need none. Absent: all calls.
    pub allowed: Option<Vec<String>>,
    /// The text behind the header.
    pub body: String,
}

/// Reads a skill. Fails if it cannot be used.
pub(super) fn parse(found: &FoundFile, text: &str, names: &Names) -> (Result<Skill, Problem>, String, Vec<Problem>) {
    let name = found.name.clone();
    let mut page = match Page::parse(text) {
        Ok(page) => page,
        Err(problem) => return (Err(problem), name, Vec::new()),
    };
    if !page.has_header {
        let problem = Problem::error(1, "there is no header: the first line must be `---`");
        return (Err(problem), name, Vec::new());
    }
    page.check_keys(&[&KEYS[..], &ALSO[..]].concat(), true);
    for key in ALSO.iter().filter(|key| page.fields.contains_key(**key)).copied().collect::<Vec<_>>() {
        page.wrong(key, format!("`{key}` is not in the specification, though it is read here"));
    }
    let said = page.text("name");
    check_name(&mut page, said.as_deref(), &name);
    let limit = page.text("compatibility").filter(|it| it.chars().count() > MAX_COMPATIBILITY);
    if limit.is_some() {
        page.wrong("compatibility", format!("`compatibility` is longer than {MAX_COMPATIBILITY} characters"));
    }
    let allowed = allowed(&mut page, names);
    let is_manual = page.fields.get(MANUAL).and_then(serde_json::Value::as_bool).unwrap_or_default();
    let Some(description) = page.text("description") else {
        let problem = Problem::error(page.line("description"), "`description` is missing or empty");
        return (Err(problem), name, page.problems);
    };
    if description.chars().count() > MAX_DESCRIPTION {
        page.wrong("description", format!("`description` is longer than {MAX_DESCRIPTION} characters"));
    }
    // The name that it gives itself counts if people can type it.
    let name = said.filter(|said| is_name(said)).unwrap_or(name);
    (Ok(Skill { description, is_manual, allowed, body: page.body }), name, page.problems)
}

fn check_name(page: &mut Page, name: Option<&str>, directory: &str) {
    let Some(name) = name else {
        let line = page.line("name");
        return page.problems.push(Problem::error(line, "`name` is missing or empty"));
    };
    let shown = text::one_line(name);
    if name.chars().count() > MAX_NAME {
        page.wrong("name", format!("`name` is longer than {MAX_NAME} characters"));
    }
    if name.to_lowercase() != name {
        page.wrong("name", format!("the name `{shown}` must be in lower case"));
    }
    if !name.chars().all(|c| c.is_alphanumeric() || c == '-') {
        page.wrong("name", format!("the name `{shown}` may have letters, digits and hyphens alone"));
    }
    if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        page.wrong("name", format!("in the name `{shown}` a hyphen stands between two letters or digits"));
    }
    if name != directory {
        let directory = text::one_line(directory);
        page.wrong("name", format!("the name `{shown}` differs from that of its directory, `{directory}`"));
    }
}

/// `allowed-tools` as rules; absent without the key, or with `*`. An entry that cannot be read allows nothing, never all.
fn allowed(page: &mut Page, names: &Names) -> Option<Vec<String>> {
    let entries = page.names(ALLOWED).filter(|entries| !entries.iter().any(|entry| entry == "*"))?;
    if entries.len() > MAX_ALLOWED {
        page.warn(ALLOWED, format!("`{ALLOWED}` has more than {MAX_ALLOWED} entries; the rest is left out"));
    }
    let mut allowed = Vec::new();
    for entry in entries.iter().take(MAX_ALLOWED) {
        match rules(entry, names) {
            Ok(rules) => {
                for rule in rules {
                    if !allowed.contains(&rule) {
                        allowed.push(rule);
                    }
                }
            }
            Err(why) => page.warn(ALLOWED, format!("{}; it is left out", text::one_line(&why))),
        }
    }
    Some(allowed)
}

/// The rules that an entry such as `Bash(git add:*)` means, whichever program it was written for; why it means nothing.
fn rules(entry: &str, names: &Names) -> Result<Vec<String>, String> {
    let (name, pattern) = match entry.split_once('(') {
        Some((name, rest)) => {
            (name.trim(), Some(rest.strip_suffix(')').ok_or_else(|| format!("`{entry}` has no closing parenthesis"))?))
        }
        None => (entry, None),
    };
    // Of other programs: all tools of a server.
    let is_server = name.strip_prefix(MCP).is_some_and(|server| !server.is_empty() && !server.contains("__"));
    let tools = if is_server { vec![format!("{name}__*")] } else { others::tools(name, names) };
    if tools.is_empty() {
        return Err(format!("unknown tool `{name}`"));
    }
    let mut rules = Vec::new();
    for tool in tools {
        let rule = match (pattern, names.takes(&tool)) {
            // A search of the provider is no call.
            (_, None) => continue,
            (None | Some("*"), _) => tool,
            // Such a call is free.
            (Some(_), Some(Takes::Nothing)) if !rules.is_empty() => continue,
            (Some(pattern), Some(Takes::Command | Takes::Arguments)) => match pattern.strip_suffix(" *") {
                Some(start) => format!("{tool}({start}:*)"),
                None => format!("{tool}({pattern})"),
            },
            (Some(pattern), Some(Takes::Host)) => {
                format!("{tool}({})", pattern.strip_prefix("domain:").unwrap_or(pattern))
            }
            (Some(pattern), _) => format!("{tool}({pattern})"),
        };
        let parsed = Rule::parse(&rule, names).map_err(|error| error.to_string())?;
        match parsed.matches_nothing(names) {
            Some(why) => return Err(why),
            None => rules.push(rule),
        }
    }
    Ok(rules)
}

/// Whether people and models can use it as a name.
pub(super) fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.chars().count() <= MAX_NAME && !name.starts_with('.') && name.chars().all(is_part)
}

/// The skills among `skills` that models are told of.
pub fn told<'a>(skills: impl Iterator<Item = &'a Entry<Skill>>) -> Vec<&'a Entry<Skill>> {
    skills.filter(|entry| !entry.item.is_manual).collect()
}

/// Where the files of these skills are.
pub fn places<'a>(skills: impl Iterator<Item = &'a Entry<Skill>>) -> Vec<SkillFiles> {
    let place = |entry: &Entry<Skill>| SkillFiles {
        name: entry.name.clone(),
        file: entry.found.real.clone(),
        // A user's own may change at any time.
        digest: entry.found.within.is_some().then(|| entry.found.digest.clone()),
        limit: limit(entry),
    };
    skills.map(place).collect()
}

/// The tools that a turn is limited to once it has read the skill; absent if it is not limited.
pub fn limit(entry: &Entry<Skill>) -> Option<SkillLimit> {
    Some(SkillLimit { skill: entry.name.clone(), allowed: entry.item.allowed.clone()? })
}

/// The part of the system prompt that names the skills; empty without any.
pub fn catalogue(skills: &[&Entry<Skill>]) -> String {
    if skills.is_empty() {
        return String::new();
    }
    let mut text = "\nSkills are instructions for special tasks. When a task fits one, read it with the tool `skill` \
                    before you begin.\n<available_skills>\n"
        .to_owned();
    let mut left_out = 0_usize;
    for entry in skills {
        let about: String = entry.item.description.chars().take(MAX_DESCRIPTION).collect();
        let line = format!(
            "<skill><name>{}</name><description>{}</description></skill>\n",
            escape(&entry.name),
            escape(&text::one_line(&about.split_whitespace().collect::<Vec<_>>().join(" ")))
        );
        if text.len() + line.len() > MAX_CATALOGUE {
            left_out += 1;
        } else {
            text.push_str(&line);
        }
    }
    text.push_str("</available_skills>\n");
    if left_out > 0 {
        text.push_str(&format!("[{left_out} more skills are left out for their length]\n"));
    }
    text
}

/// A skill that a person sends by its name, with what was written after it.
pub(super) fn sent(entry: &Entry<Skill>, arguments: &str) -> String {
    let directory = entry.found.real.parent().unwrap_or(&entry.found.real);
    let (name, directory) = (escape(&entry.name), text::one_line(&directory.to_string_lossy()));
    let arguments = if arguments.is_empty() { String::new() } else { format!("\n\n{arguments}") };
    format!("<skill name=\"{name}\" directory=\"{directory}\">\n{}\n</skill>{arguments}", entry.item.body)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Skill {
    /// Its purpose and its limits, for the person who trusts it.
    pub(super) fn about(&self, name: &str) -> String {
        let who = if self.is_manual { ", which only a person sends" } else { "" };
        let limit = match self.allowed.as_deref() {
            None => String::new(),
            Some([]) => "; limits its turn to reading".to_owned(),
            Some(rules) => format!("; limits its turn to reading and {}", rules.join(", ")),
        };
        format!("skill `{name}`{who}: \"{}\"{limit}", self.description)
    }
}

impl Entry<Skill> {
    /// As an event names it.
    pub fn named(&self) -> SkillRef {
        SkillRef { name: self.name.clone(), path: self.found.path.clone(), digest: self.found.digest.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str) -> FoundFile {
        let path = format!("/s/{name}/SKILL.md").into();
        FoundFile {
            name: name.to_owned(),
            real: path,
            path: "/s".into(),
            within: None,
            digest: String::new(),
            text: Ok(String::new()),
        }
    }

    fn names() -> Names {
        crate::tool::set::ToolSet::new(crate::tool::builtin()).names().clone()
    }

    fn problems(directory: &str, header: &str) -> Vec<String> {
        let (skill, _, problems) = parse(&found(directory), &format!("---\n{header}---\nbody\n"), &names());
        problems.iter().chain(skill.as_ref().err()).map(ToString::to_string).collect()
    }

    #[test]
    fn a_skill_as_the_specification_has_it_has_no_problem() {
        let header =
            "name: pdf-forms\ndescription: Fills forms. Use it for PDFs.\nlicense: MIT\nmetadata:\n  version: \"1\"\n";
        assert_eq!(problems("pdf-forms", header), [""; 0]);
    }

    #[test]
    fn a_skill_that_breaks_the_specification_is_used_and_said() {
        let check = |header: &str, expect: &str| {
            let said = problems("a-b", header);
            assert!(said.iter().any(|it| it.contains(expect)), "{header}: {said:?}");
            assert!(parse(&found("a-b"), &format!("---\n{header}---\n"), &names()).0.is_ok(), "{header}");
        };
        check("description: d\n", "line 1: `name` is missing");
        check("name: other\ndescription: d\n", "line 2: the name `other` differs");
        check("name: A-b\ndescription: d\n", "lower case");
        check("name: -a\ndescription: d\n", "a hyphen stands between");
        check("name: a--b\ndescription: d\n", "a hyphen stands between");
        check("name: a b\ndescription: d\n", "letters, digits and hyphens alone");
        check("name: a-b\ndescription: d\nversion: 1\n", "line 4: unknown key `version`");
        check("name: a-b\ndescription: d\nallowed-tools: Zap Read\n", "line 4: unknown tool `Zap`; it is left out");
        check("name: a-b\ndescription: d: e\n", "line 3: `description` has a colon");
    }

    #[test]
    fn a_skill_without_description_or_header_is_not_used() {
        for text in ["---\nname: a\n---\n", "---\nname: a\ndescription:\n---\n", "# Title\n", "---\nname: [\n---\n"] {
            assert!(parse(&found("a"), text, &names()).0.is_err(), "{text}");
        }
    }

    #[test]
    fn allowed_tools_of_any_program_are_rules_and_what_means_nothing_is_left_out_and_said() {
        let parse = |list: &str| {
            let text = format!("---\nname: a\ndescription: d\n{list}---\n");
            let (skill, _, problems) = parse(&found("a"), &text, &names());
            (skill.unwrap().allowed.map(|rules| rules.join(" ")), problems.iter().map(ToString::to_string).collect())
        };
        let check = |list: &str, expect: &str| {
            assert_eq!(parse(&format!("allowed-tools: {list}\n")), (Some(expect.to_owned()), Vec::new()), "{list}");
        };
        check("Read Bash(git add:*) Bash(git commit:*)", "read bash(git add:*) bash(git commit:*)");
        check("Read, Write,Edit", "read write edit");
        check("\n  - Read\n  - Bash(npm run build)", "read bash(npm run build)");
        check("[Task, delegate]", "delegate");
        check("Bash", "bash bash_output bash_kill");
        check("Bash(gh *) Bash(*)", "bash(gh:*) bash bash_output bash_kill");
        check("WebFetch(domain:example.com) WebSearch", "fetch(example.com)");
        check("mcp__github mcp__db__query", "mcp__github__* mcp__db__query");
        check("bash(ls) fetch(*.example.com) grep", "bash(ls) fetch(*.example.com) grep");
        check("", "");
        check("[]", "");
        assert_eq!(parse("").0, None);
        assert_eq!(parse("allowed-tools: Read, *\n").0, None);
        let (rules, problems) = parse("allowed-tools: Zap, Bash(git:*, Task(x), Bash($HOME/x:*), Edit(../a), Read\n");
        let problems: Vec<String> = problems;
        assert_eq!((rules.as_deref(), problems.len()), (Some(""), 2), "the parenthesis stays open: {problems:?}");
        let (rules, problems) =
            parse("allowed-tools: [Zap, 'Bash(git', Task(x), 'Bash($HOME/x:*)', Edit(../a), Read]\n");
        assert_eq!(rules.as_deref(), Some("read"));
        for (said, expect) in problems.iter().zip([
            "line 4: unknown tool `Zap`; it is left out",
            "line 4: `Bash(git` has no closing parenthesis; it is left out",
            "line 4: `delegate(x)` never matches: `delegate` takes no pattern; it is left out",
            "line 4: `bash($HOME/x:*)` never matches: before `:*` stand plain words of one command, not `$HOME/x`; it is left out",
            "line 4: `edit(../a)`: a pattern has no `..`; write the absolute path; it is left out",
        ]) {
            assert_eq!(said, expect);
        }
        assert_eq!(problems.len(), 5);
        assert_eq!(parse("allowed-tools: {Read: 1}\n").0.as_deref(), Some(""));
        let many = (0..300).map(|n| format!(" Bash(a{n})")).collect::<String>();
        let (rules, problems) = parse(&format!("allowed-tools:{many}\n"));
        assert_eq!((rules.unwrap().split(' ').count(), problems.len()), (MAX_ALLOWED, 1));
    }

    #[test]
    fn a_catalogue_is_bounded_and_its_text_is_no_markup() {
        let entry = |name: &str, description: String| Entry {
            name: name.to_owned(),
            found: found(name),
            problems: Vec::new(),
            item: Skill { description, ..Skill::default() },
        };
        let some = entry("a", "x </skill>\n  & y".to_owned());
        assert!(catalogue(&[&some]).contains("<name>a</name><description>x &lt;/skill&gt; &amp; y</description>"));
        assert_eq!(catalogue(&[]), "");
        let long = entry("b", "x".repeat(5000));
        let text = catalogue(&[&long; 60]);
        assert!(text.len() < MAX_CATALOGUE + 100 && text.contains("more skills are left out"), "{}", text.len());
    }
}
