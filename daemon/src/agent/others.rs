//! Names that other programs use for tools, models and modes, with linger's: one table. Data, and pure.
//!
//! A name that is not here means nothing: a tool is left out, a model leaves the session's own. Nothing here allows anything.

use linger_protocol::message::HostedTool;
use linger_protocol::permission::Mode;

use crate::tool::delegate;
use crate::tool::program::PREFIX;
use crate::tool::set::Names;
use crate::tool::skill::NAME as SKILL;

/// Names of tools in lower case without `-` and `_`; several tools where one does the work of more.
const TOOLS: &[(&str, &[&str])] = &[
    ("bash", &["bash", "bash_output", "bash_kill"]),
    ("shell", &["bash", "bash_output", "bash_kill"]),
    ("execute", &["bash", "bash_output", "bash_kill"]),
    ("runcommands", &["bash", "bash_output", "bash_kill"]),
    ("runinterminal", &["bash", "bash_output", "bash_kill"]),
    ("terminal", &["bash", "bash_output", "bash_kill"]),
    ("bashoutput", &["bash_output"]),
    ("killshell", &["bash_kill"]),
    ("killbash", &["bash_kill"]),
    ("read", &["read"]),
    ("readfile", &["read"]),
    ("view", &["read"]),
    ("notebookread", &["read"]),
    ("write", &["write"]),
    ("create", &["write"]),
    ("createfile", &["write"]),
    ("edit", &["edit"]),
    ("editfiles", &["edit", "write"]),
    ("multiedit", &["edit"]),
    ("strreplace", &["edit"]),
    ("patch", &["edit"]),
    ("ls", &["ls"]),
    ("list", &["ls"]),
    ("listdir", &["ls"]),
    ("glob", &["glob"]),
    ("grep", &["grep"]),
    ("search", &["grep", "glob"]),
    ("codebase", &["grep", "glob"]),
    ("findfiles", &["glob"]),
    ("webfetch", &["fetch"]),
    ("fetch", &["fetch"]),
    ("web", &["fetch", "web_search"]),
    ("websearch", &["web_search"]),
    ("todowrite", &["plan"]),
    ("todoread", &["plan"]),
    ("todo", &["plan"]),
    ("todos", &["plan"]),
    ("askuserquestion", &["ask_user"]),
    ("question", &["ask_user"]),
    ("runtests", &["test_run"]),
    ("skill", &[SKILL]),
    ("task", &[delegate::NAME]),
    ("agent", &[delegate::NAME]),
    ("runsubagent", &[delegate::NAME]),
];

/// Families of models of one maker, by the word that other programs use alone, and the model of each that is meant.
const MODELS: &[(&str, &str)] = &[
    ("sonnet", "anthropic/claude-sonnet-5"),
    ("opus", "anthropic/claude-opus-5"),
    ("haiku", "anthropic/claude-haiku-4-5"),
];

/// The provider of a name without one, by its beginning.
const MAKERS: &[(&str, &str)] = &[
    ("claude-", "anthropic"),
    ("gpt-", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("gemini-", "gemini"),
    ("deepseek-", "deepseek"),
    ("mistral-", "mistral"),
];

/// Other programs' names of providers in `provider/model`, with linger's.
const PROVIDERS: &[(&str, &str)] = &[("google", "gemini"), ("qwen", "alibaba")];

/// Other programs' names of modes, with linger's.
const MODES: &[(&str, Mode)] =
    &[("default", Mode::Ask), ("acceptEdits", Mode::Edit), ("bypassPermissions", Mode::Auto), ("dontAsk", Mode::Auto)];

/// Values of `mode` and `model` of other programs that say nothing about modes and models here.
const SILENT: &[&str] = &["primary", "subagent", "all", "inherit", "auto"];

/// The tools that a name means, of another program or of this one; none if it is unknown.
pub(super) fn tools(name: &str, names: &Names) -> Vec<String> {
    let hosted = HostedTool::ALL.map(HostedTool::name);
    let plain = name.to_lowercase().replace(['-', '_'], "");
    match TOOLS.iter().find(|(other, _)| *other == plain) {
        Some((_, here)) => here.iter().map(|tool| (*tool).to_owned()).collect(),
        None if names.takes(name).is_some() || hosted.contains(&name) => vec![name.to_owned()],
        // A tool of a file is called by its own name, too.
        None => names.iter().find(|it| it.strip_prefix(PREFIX) == Some(name)).map(str::to_owned).into_iter().collect(),
    }
}

/// The mode that a name of another program means.
pub(super) fn mode(name: &str) -> Option<Mode> {
    MODES.iter().find(|(other, _)| *other == name).map(|(_, mode)| *mode)
}

/// Whether it says nothing about a mode or model here.
pub(super) fn is_silent(name: &str) -> bool {
    SILENT.contains(&name)
}

/// The `provider/model` that a name of another program means. `opencode`'s variant after `#` is no part of it.
pub(super) fn model(name: &str) -> Option<String> {
    let name = name.split('#').next().unwrap_or(name).trim();
    if let Some((provider, model)) = name.split_once('/') {
        let here = PROVIDERS.iter().find(|(other, _)| *other == provider).map_or(provider, |(_, here)| here);
        return Some(format!("{here}/{model}"));
    }
    // Copilot's pickers write `Claude Sonnet 4.5 (copilot)`.
    let plain = name.split('(').next().unwrap_or(name).trim().to_lowercase().replace(' ', "-");
    if let Some((_, model)) = MODELS.iter().find(|(family, _)| *family == plain) {
        return Some((*model).to_owned());
    }
    let (_, maker) = MAKERS.iter().find(|(start, _)| plain.starts_with(start))?;
    let plain = if *maker == "anthropic" { plain.replace('.', "-") } else { plain };
    Some(format!("{maker}/{plain}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models_mean_a_provider_and_a_model_or_nothing() {
        let check = |name: &str, expect: Option<&str>| assert_eq!(model(name).as_deref(), expect, "{name}");
        check("sonnet", Some("anthropic/claude-sonnet-5"));
        check("claude-opus-4-5", Some("anthropic/claude-opus-4-5"));
        check("Claude Sonnet 4.5 (copilot)", Some("anthropic/claude-sonnet-4-5"));
        check("gpt-5", Some("openai/gpt-5"));
        check("google/gemini-2.5-pro#high", Some("gemini/gemini-2.5-pro"));
        check("ollama/qwen3", Some("ollama/qwen3"));
        check("something", None);
    }

    #[test]
    fn names_of_tools_are_compared_without_case_and_hyphens() {
        let tools = |name: &str| super::tools(name, &Names::default()).join(" ");
        assert_eq!(tools("MultiEdit"), "edit");
        assert_eq!(tools("run_in-Terminal"), "bash bash_output bash_kill");
        assert_eq!(tools("Frobnicate"), "");
    }
}
