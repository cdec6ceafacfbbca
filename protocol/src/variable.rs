//! The environment variables that a client may give to the daemon: which of them the tools of a session get, and which hold keys.
//!
//! Tools get what the user's shell has, but what [`withheld`] names. The client leaves that out before it sends anything, and the
//! daemon does so again. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Variables that every client should give to tools, for clients that send a list of names and not all that [`withheld`] leaves.
pub const TOOL_ENV: [&str; 22] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "SSH_AUTH_SOCK",
    "XDG_RUNTIME_DIR",
    "EDITOR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "JAVA_HOME",
    "VIRTUAL_ENV",
    "NVM_DIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "DBUS_SESSION_BUS_ADDRESS",
];

/// The variables by which a program finds the desktop of the person that started it.
pub const DESKTOP: [&str; 5] =
    ["DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XAUTHORITY", "XDG_RUNTIME_DIR"];

/// The variables with the keys of the providers that need no configuration.
pub const PROVIDER_KEYS: [&str; 15] = [
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "OPENROUTER_API_KEY",
    "DEEPSEEK_API_KEY",
    "MISTRAL_API_KEY",
    "DASHSCOPE_API_KEY",
    "GROQ_API_KEY",
    "XAI_API_KEY",
    "TOGETHER_API_KEY",
    "OLLAMA_API_KEY",
    "LM_API_TOKEN",
    "LLAMA_API_KEY",
    "VLLM_API_KEY",
    "LITELLM_API_KEY",
];

/// The value that an event and the database have for a variable with a secret, which is in the daemon's memory alone.
pub const IN_MEMORY: &str = "<in memory>";

/// The longest value of one variable, in bytes: the longest PATH that was seen has a few thousand.
pub const MAX_VALUE: usize = 32 << 10;

/// All variables of a session, names and values, in bytes. A shell has ten thousand or so.
pub const MAX_TOTAL: usize = 128 << 10;

/// Parts of the names of variables with a secret.
const SECRET_NAMES: [&str; 7] = ["KEY", "SECRET", "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL"];

/// Prefixes of well-known services' keys.
pub const SECRET_PREFIXES: [&str; 17] = [
    "sk-",
    "sk_",
    "gsk_",
    "xai-",
    "AIza",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "hf_",
    "ya29.",
    "eyJhbGciOi",
];

/// The shortest value that counts as a key by its prefix, in bytes.
pub const SHORTEST_SECRET: usize = 16;

/// Variables that make a shell, the linker or git run or read something; those that end in `*` are prefixes.
const STEERING: [&str; 10] =
    ["BASH_ENV", "BASH_FUNC_*", "BASHOPTS", "DYLD_*", "ENV", "GIT_*", "LD_*", "PROMPT_COMMAND", "PS4", "SHELLOPTS"];

/// Variables of a terminal or of one shell, which mean nothing to a tool without a terminal.
const OF_TERMINAL: [&str; 26] = [
    "_",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "FORCE_COLOR",
    "GPG_TTY",
    "LINES",
    "OLDPWD",
    "PS1",
    "PS2",
    "PS3",
    "PWD",
    "SHLVL",
    "SSH_TTY",
    "STY",
    "TERM",
    "TERMCAP",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "TERM_SESSION_ID",
    "TMUX",
    "TMUX_PANE",
    "WINDOW",
    "WINDOWID",
    "XDG_SESSION_ID",
];

/// Why a variable is not given to tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Withheld {
    /// It is linger's own.
    Own,
    /// It holds the key of a provider.
    ProviderKey,
    /// Its name or its value looks like a secret.
    Secret,
    /// It steers programs.
    Steers,
    /// It belongs to a terminal or to one shell.
    Terminal,
    /// It is too long, or its name is none that a shell takes.
    Unfit,
    /// The configuration denies it.
    Denied,
}

impl Withheld {
    /// Whether `[env] pass` gives it nevertheless.
    pub fn can_pass(self) -> bool {
        matches!(self, Self::Secret | Self::Steers | Self::Terminal)
    }
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "linger's own",
            Self::ProviderKey => "a provider's key",
            Self::Secret => "looks like a secret",
            Self::Steers => "steers programs",
            Self::Terminal => "belongs to a terminal",
            Self::Unfit => "too long, or no plain name",
            Self::Denied => "denied by the configuration",
        })
    }
}

/// Why a variable is not given to tools, if a configuration says nothing else.
pub fn withheld(name: &str, value: &str) -> Option<Withheld> {
    let is = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == *pattern,
    };
    if name.starts_with("LINGER_") {
        return Some(Withheld::Own);
    }
    if PROVIDER_KEYS.contains(&name) {
        return Some(Withheld::ProviderKey);
    }
    if STEERING.iter().any(is) {
        return Some(Withheld::Steers);
    }
    if !is_name(name) || value.len() > MAX_VALUE || value.contains('\0') {
        return Some(Withheld::Unfit);
    }
    let upper = name.to_ascii_uppercase();
    if SECRET_NAMES.iter().any(|part| upper.contains(part)) || is_secret(value) {
        return Some(Withheld::Secret);
    }
    OF_TERMINAL.contains(&name).then_some(Withheld::Terminal)
}

/// Whether it is a variable's name as shells take it: ASCII letters, digits and `_`, and no digit at the beginning.
pub fn is_name(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
}

/// Whether a value looks like a key, or has a URL with a password in it.
fn is_secret(value: &str) -> bool {
    has_key_prefix(value)
        || (value.contains("-----BEGIN ") && value.contains("PRIVATE KEY"))
        || value.split("://").skip(1).any(has_password)
}

/// Whether a text has a word that looks like a key, a private key, an address with a password, or a value for a name of secrets
/// (`API_KEY=…`).
pub fn looks_secret(text: &str) -> bool {
    let words = text.split(|c: char| c.is_whitespace() || "\"'`(),;<>[]{}".contains(c));
    let is_named = |word: &str| {
        let Some((name, value)) = word.split_once('=') else { return false };
        let upper = name.to_ascii_uppercase();
        let is_value = !value.is_empty() && !value.starts_with('$');
        is_name(name) && is_value && SECRET_NAMES.iter().any(|part| upper.ends_with(part))
    };
    is_secret(text) || words.into_iter().any(|word| is_named(word) || word.split(['=', ':']).any(has_key_prefix))
}

/// Whether it is one word that begins as the keys of well-known services do.
pub fn has_key_prefix(value: &str) -> bool {
    value.len() >= SHORTEST_SECRET
        && !value.contains(char::is_whitespace)
        && SECRET_PREFIXES.iter().any(|prefix| value.starts_with(prefix))
}

/// Whether what follows `://` begins with `user:password@`, or with a key in place of the user.
fn has_password(rest: &str) -> bool {
    let authority = rest.split(['/', '?', '#', ' ']).next().unwrap_or_default();
    let Some((user, _)) = authority.rsplit_once('@') else { return false };
    has_key_prefix(user) || user.split_once(':').is_some_and(|(_, password)| !password.is_empty())
}

/// The choice of variables for tools in a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Given although they are withheld otherwise.
    pub pass: BTreeSet<String>,
    /// Never given.
    pub deny: BTreeSet<String>,
    /// Variables with the keys of configured providers.
    pub keys: BTreeSet<String>,
}

impl Choice {
    /// Why a variable is not given to tools.
    pub fn withheld(&self, name: &str, value: &str) -> Option<Withheld> {
        if self.deny.contains(name) {
            return Some(Withheld::Denied);
        }
        if self.keys.contains(name) {
            return Some(Withheld::ProviderKey);
        }
        withheld(name, value).filter(|why| !(why.can_pass() && self.pass.contains(name)))
    }

    /// Whether a variable is given, and its value must be in memory alone.
    pub fn is_passed_secret(&self, name: &str, value: &str) -> bool {
        self.withheld(name, value).is_none() && withheld(name, value) == Some(Withheld::Secret)
    }

    /// The variables of an environment that tools get, and why they do not get the others. Beyond [`MAX_TOTAL`] the longest are
    /// left out.
    pub fn take(
        &self,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> (BTreeMap<String, String>, BTreeMap<String, Withheld>) {
        let mut others = BTreeMap::new();
        let mut given = Vec::new();
        for (name, value) in environment {
            match self.withheld(&name, &value) {
                Some(why) => drop(others.insert(name, why)),
                None => given.push((name, value)),
            }
        }
        given.sort_by_key(|(name, value)| name.len() + value.len());
        let mut total = 0;
        let mut taken = BTreeMap::new();
        for (name, value) in given {
            total += name.len() + value.len();
            if total <= MAX_TOTAL {
                taken.insert(name, value);
            } else {
                others.insert(name, Withheld::Unfit);
            }
        }
        (taken, others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_a_key_in_it_looks_secret() {
        for text in [
            "use sk-ant-0123456789abcdef",
            "\"ghp_0123456789abcdefghij\"",
            "OPENAI_API_KEY=abc cargo run",
            "header=Bearer:xai-0123456789abcdefghij",
            "see https://me:pass@example.org/",
            "-----BEGIN RSA PRIVATE KEY-----\nabc",
        ] {
            assert!(looks_secret(text), "{text}");
        }
        for text in ["why is API_KEY empty?", "KEY=$OTHER run", "sk-short", "see https://example.org/a@b", "a=b"] {
            assert!(!looks_secret(text), "{text}");
        }
    }

    #[test]
    fn tools_get_what_a_shell_has_but_secrets_and_what_steers_programs() {
        for (name, value, expect) in [
            ("PATH", "/usr/bin", None),
            ("XDG_STATE_HOME", "/s", None),
            ("AWS_PROFILE", "work", None),
            ("KUBECONFIG", "/k", None),
            ("NODE_ENV", "test", None),
            ("HTTPS_PROXY", "http://proxy:3128", None),
            ("https_proxy", "http://me:hunter2@proxy:3128", Some(Withheld::Secret)),
            ("GOPROXY", "https://a,http://u:p@b", Some(Withheld::Secret)),
            ("REMOTE", "ssh://git@host/x", None),
            ("MIRROR", "http://host:80/a@b:c", None),
            ("INDEX", "https://ghp_0123456789abcdef@host", Some(Withheld::Secret)),
            ("ANSWER", "sk-0123456789abcdef", Some(Withheld::Secret)),
            ("ANSWER", "sk-short", None),
            ("PEM", "-----BEGIN RSA PRIVATE KEY-----\nx", Some(Withheld::Secret)),
            ("GH_TOKEN", "x", Some(Withheld::Secret)),
            ("aws_secret_access_key", "x", Some(Withheld::Secret)),
            ("STRIPE_KEY", "x", Some(Withheld::Secret)),
            ("CLIENT_SECRET", "x", Some(Withheld::Secret)),
            ("PGPASSWORD", "x", Some(Withheld::Secret)),
            ("MYSQL_PASSWD", "x", Some(Withheld::Secret)),
            ("PASSPHRASE", "x", Some(Withheld::Secret)),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/f", Some(Withheld::Secret)),
            ("ANTHROPIC_API_KEY", "x", Some(Withheld::ProviderKey)),
            ("LINGER_SOCKET", "/s", Some(Withheld::Own)),
            ("BASH_ENV", "/f", Some(Withheld::Steers)),
            ("ENV", "/f", Some(Withheld::Steers)),
            ("BASH_FUNC_ls%%", "() { :; }", Some(Withheld::Steers)),
            ("LD_PRELOAD", "/f", Some(Withheld::Steers)),
            ("GIT_DIR", "/g", Some(Withheld::Steers)),
            ("PROMPT_COMMAND", "x", Some(Withheld::Steers)),
            ("PS4", "$(x)", Some(Withheld::Steers)),
            ("SHELLOPTS", "xtrace", Some(Withheld::Steers)),
            ("BASHOPTS", "x", Some(Withheld::Steers)),
            ("DYLD_INSERT_LIBRARIES", "/f", Some(Withheld::Steers)),
            ("TERM", "xterm", Some(Withheld::Terminal)),
            ("A-B", "x", Some(Withheld::Unfit)),
            ("1A", "x", Some(Withheld::Unfit)),
            ("LONG", &"x".repeat(MAX_VALUE + 1), Some(Withheld::Unfit)),
        ] {
            assert_eq!(withheld(name, value), expect, "{name}={value}");
        }
    }

    #[test]
    fn a_configuration_passes_secrets_and_never_a_provider_s_key() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let choice = Choice {
            pass: set(&["GH_TOKEN", "TERM", "LINGER_SOCKET", "WORK"]),
            deny: set(&["AWS_PROFILE"]),
            keys: set(&["WORK"]),
        };
        let environment = ["GH_TOKEN", "TERM", "LINGER_SOCKET", "WORK", "AWS_PROFILE", "NPM_TOKEN", "PATH"];
        let (taken, others) = choice.take(environment.map(|name| (name.to_owned(), "x".to_owned())));
        assert_eq!(taken.into_keys().collect::<Vec<_>>(), ["GH_TOKEN", "PATH", "TERM"]);
        let others: Vec<String> = others.into_iter().map(|(name, why)| format!("{name}: {why}")).collect();
        let expect = [
            "AWS_PROFILE: denied by the configuration",
            "LINGER_SOCKET: linger's own",
            "NPM_TOKEN: looks like a secret",
            "WORK: a provider's key",
        ];
        assert_eq!(others, expect);
        assert!(choice.is_passed_secret("GH_TOKEN", "x") && !choice.is_passed_secret("TERM", "x"));
    }

    #[test]
    fn of_too_many_variables_the_longest_are_left_out() {
        let many = (0..9).map(|n| (format!("V{n}"), "x".repeat(MAX_VALUE - n)));
        let (taken, others) = Choice::default().take(many.chain([("PATH".to_owned(), "/bin".to_owned())]));
        assert!(taken.contains_key("PATH") && taken.contains_key("V8") && !taken.contains_key("V0"), "{others:?}");
    }
}
