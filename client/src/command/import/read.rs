//! Reads the files of other programs, as they document them. An unreadable file is reported; the others are still imported.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use linger_protocol::variable::looks_secret;
use serde_json::{Map, Value};

use super::found::{Importable, MAX_FILE, Server};
use super::rules;

/// Files of one kind that are read, at most.
const MAX_FILES: usize = 500;

/// Nesting of directories of commands and skills, at most.
const MAX_DEPTH: usize = 4;

/// Bytes of a settings file, at most: Claude Code keeps its history in the file with the servers.
const MAX_SETTINGS: u64 = 64 << 20;

/// Reads a regular file of at most `most` bytes. Fails for a pipe or a device.
pub(super) fn content(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let file = std::fs::metadata(path)?;
    if !file.is_file() || file.len() > most {
        return Err(std::io::Error::other(format!("not a regular file of at most {most} bytes")));
    }
    let mut content = Vec::new();
    std::fs::File::open(path)?.take(most).read_to_end(&mut content)?;
    Ok(content)
}

/// Claude Code: `~/.claude.json`, and `settings.json`, `agents`, `commands` and `CLAUDE.md` in `~/.claude`.
pub(super) fn claude(home: &Path, dir: Option<&Path>, cwd: &Path) -> Importable {
    let mut found = Importable::default();
    let (dir, state) = match dir {
        Some(dir) => (dir.to_path_buf(), dir.join(".claude.json")),
        None => (home.join(".claude"), home.join(".claude.json")),
    };
    if let Some(value) = found.json(&state, MAX_SETTINGS) {
        found.servers_of(value.get("mcpServers"), &state);
        let here = value.get("projects").and_then(|projects| projects.get(&*cwd.to_string_lossy()));
        // Only for that project, while linger's servers run in every workspace: so it gets that directory.
        found.servers_in(here.and_then(|here| here.get("mcpServers")), &state, Some(cwd));
    }
    let settings = dir.join("settings.json");
    if let Some(value) = found.json(&settings, MAX_FILE) {
        for kind in ["allow", "ask", "deny"] {
            let listed = value.pointer(&format!("/permissions/{kind}")).and_then(Value::as_array);
            for rule in listed.into_iter().flatten().filter_map(Value::as_str) {
                found.rule(kind, rule, rules::claude(rule, kind == "allow"));
            }
        }
        if value.pointer("/permissions/additionalDirectories").is_some() {
            found.left_out.push("additionalDirectories: use `linger run --add-dir DIR` or /add-dir".to_owned());
        }
        if let Some(mode) = value.pointer("/permissions/defaultMode").and_then(Value::as_str) {
            found.left_out.push(format!("defaultMode {mode}: use `linger config set mode MODE`"));
        }
        if value.get("hooks").and_then(Value::as_object).is_some_and(|hooks| !hooks.is_empty()) {
            found.left_out.push("hooks: see `linger help hooks`".to_owned());
        }
    }
    found.markdown(&dir.join("agents"), "agents");
    found.markdown(&dir.join("commands"), "commands");
    if dir == home.join(".claude") && dir.join("skills").is_dir() {
        found.sources.push(dir.join("skills"));
        found.left_out.push(format!("{}: linger reads this directory in place", dir.join("skills").display()));
    } else {
        found.skills(&dir.join("skills"));
    }
    found.instructions(&dir.join("CLAUDE.md"));
    found
}

/// Codex: `config.toml`, `prompts`, `skills` and `AGENTS.md` in `~/.codex`.
pub(super) fn codex(dir: &Path) -> Importable {
    let mut found = Importable::default();
    let config = dir.join("config.toml");
    if let Some(text) = found.text(&config, MAX_FILE) {
        match text.parse::<toml::Table>() {
            Ok(table) => {
                let mut value = serde_json::json!(table);
                let servers = value.get_mut("mcp_servers").and_then(Value::as_object_mut);
                servers.into_iter().flatten().for_each(|(_, server)| codex_variables(server));
                found.servers_of(value.get("mcp_servers"), &config);
                for key in ["approval_policy", "sandbox_mode"] {
                    if let Some(word) = value.get(key).and_then(Value::as_str) {
                        let text = format!("{key} {word}: use `linger config set mode MODE`");
                        found.left_out.push(text);
                    }
                }
            }
            Err(error) => found.left_out.push(format!("{}: {}", config.display(), error.message())),
        }
    }
    if dir.join("rules").is_dir() {
        found
            .left_out
            .push(format!("{}: write these rules as described in `linger help rules`", dir.join("rules").display()));
    }
    found.markdown(&dir.join("prompts"), "commands");
    found.skills(&dir.join("skills"));
    let own = [dir.join("AGENTS.override.md"), dir.join("AGENTS.md")];
    if let Some(file) = own.iter().find(|file| file.is_file()) {
        found.instructions(file);
    }
    found
}

/// opencode: `opencode.json` (or `.jsonc`), agents, commands, skills and `AGENTS.md` in `~/.config/opencode`.
pub(super) fn opencode(dir: &Path) -> Importable {
    let mut found = Importable::default();
    let files = ["opencode.jsonc", "opencode.json", "config.json"].map(|name| dir.join(name));
    for file in files.iter().filter(|file| file.is_file()) {
        let Some(mut value) = found.json(file, MAX_FILE) else { continue };
        if let Some(servers) = value.get_mut("mcp") {
            opencode_variables(servers);
        }
        found.servers_of(value.get("mcp"), file);
        for (tool, rules) in value.get("permission").and_then(Value::as_object).into_iter().flatten() {
            let rules: Vec<(String, String)> = match rules {
                Value::String(word) => vec![("*".to_owned(), word.clone())],
                Value::Object(rules) => rules
                    .iter()
                    .filter_map(|(pattern, word)| Some((pattern.clone(), word.as_str()?.to_owned())))
                    .collect(),
                _ => Vec::new(),
            };
            for (kind, pattern, translated) in rules::opencode(tool, &rules) {
                found.rule(kind, &format!("{tool} {pattern}"), translated);
            }
        }
        for (key, about) in [("agent", "agents"), ("command", "commands")] {
            if value.get(key).and_then(Value::as_object).is_some_and(|all| !all.is_empty()) {
                found
                    .left_out
                    .push(format!("`{key}` in {}: linger reads {about} only from Markdown files", file.display()));
            }
        }
    }
    for (name, to) in [("agents", "agents"), ("agent", "agents"), ("commands", "commands"), ("command", "commands")] {
        found.markdown(&dir.join(name), to);
    }
    found.skills(&dir.join("skills"));
    found.instructions(&dir.join("AGENTS.md"));
    found
}

impl Importable {
    /// Adds a rule, or the reason why it is left out.
    fn rule(&mut self, kind: &'static str, written: &str, translated: rules::Translated) {
        match translated {
            Ok(rule) => self.rules.push((kind, rule)),
            Err(why) => self.left_out.push(format!("{kind} {written}: {why}")),
        }
    }

    /// The text of a file; `None` if it does not exist or cannot be read.
    fn text(&mut self, file: &Path, most: u64) -> Option<String> {
        if !file.exists() {
            return None;
        }
        self.sources.push(file.to_path_buf());
        match content(file, most).and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other)) {
            Ok(text) => Some(text),
            Err(error) => {
                self.left_out.push(format!("{}: {error}", file.display()));
                None
            }
        }
    }

    /// The JSON of a file, with comments and trailing commas allowed.
    fn json(&mut self, file: &Path, most: u64) -> Option<Value> {
        let text = self.text(file, most)?;
        match serde_json::from_str(&plain(&text)) {
            Ok(value) => Some(value),
            Err(error) => {
                self.left_out.push(format!("{}:{}: {error}", file.display(), error.line()));
                None
            }
        }
    }

    /// Adds servers, in the form that all three programs use.
    fn servers_of(&mut self, servers: Option<&Value>, file: &Path) {
        self.servers_in(servers, file, None);
    }

    /// Adds servers that run in `cwd` unless they name another directory.
    fn servers_in(&mut self, servers: Option<&Value>, file: &Path, cwd: Option<&Path>) {
        for (name, server) in servers.and_then(Value::as_object).into_iter().flatten() {
            let Some(server) = server.as_object() else { continue };
            match self.server(name, server) {
                Ok(mut server) => {
                    if server.command.is_some() && server.cwd.is_none() {
                        server.cwd = cwd.map(|cwd| cwd.display().to_string());
                    }
                    self.servers.entry(name.clone()).or_insert(server);
                }
                Err(why) => self.left_out.push(format!("MCP server {name} of {}: {why}", file.display())),
            }
        }
    }

    fn server(&mut self, name: &str, table: &Map<String, Value>) -> Result<Server, &'static str> {
        let text = |key: &str| table.get(key).and_then(Value::as_str).map(str::to_owned);
        let is = |key: &str, value: bool| table.get(key).and_then(Value::as_bool) == Some(value);
        if is("enabled", false) || is("disabled", true) {
            return Err("it is disabled");
        }
        if text("type").as_deref() == Some("sse") {
            return Err("its transport (sse) belongs to an older protocol");
        }
        let list = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut args = table.get("args").map(list).unwrap_or_default();
        let command = match table.get("command") {
            Some(Value::String(command)) => Some(command.clone()),
            // opencode puts program and arguments into one list.
            Some(words) => {
                let mut words = list(words);
                let first = if words.is_empty() { None } else { Some(words.remove(0)) };
                args = words;
                first
            }
            None => None,
        };
        let url = text("url");
        if command.is_none() && url.is_none() {
            return Err("it has no command and no url");
        }
        // Not shown either: terminals keep their output.
        if may_have_secret(command.iter().chain(&args).chain(&url).map(String::as_str)) {
            return Err("an argument may be a secret; add it yourself, with ${NAME}");
        }
        let env = self.values(name, table.get("env").or_else(|| table.get("environment")));
        let headers = self.values(name, table.get("headers").or_else(|| table.get("http_headers")));
        if table.get("disabled_tools").is_some() {
            self.left_out.push(format!("disabled_tools of MCP server {name}: add deny rules mcp__{name}__TOOL"));
        }
        let tools = table.get("enabled_tools").map(list).unwrap_or_default();
        Ok(Server { command, args, env, cwd: text("cwd"), url, headers, tools })
    }

    /// The variables or headers of a server, without secrets: these stay in the environment.
    fn values(&mut self, server: &str, values: Option<&Value>) -> BTreeMap<String, String> {
        let mut kept = BTreeMap::new();
        for (name, value) in values.and_then(Value::as_object).into_iter().flatten() {
            let Some(value) = value.as_str() else { continue };
            if (is_secret(name) || looks_secret(value)) && !value.contains("${") {
                let variable: String = name
                    .chars()
                    .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
                    .collect();
                self.left_out.push(format!(
                    "{name} of MCP server {server}: it may be a secret; put it into your environment, and use \
                     \"${{{variable}}}\" in [mcp.{server}]"
                ));
                continue;
            }
            kept.insert(name.clone(), value.to_owned());
        }
        kept
    }

    /// Adds the Markdown files below a directory.
    fn markdown(&mut self, dir: &Path, to: &str) {
        let mut files = Vec::new();
        walk(dir, Path::new(""), &mut files);
        for below in files.into_iter().filter(|file| file.extension().is_some_and(|it| it == "md")) {
            self.sources.push(dir.join(&below));
            // linger has no nested directories here.
            let name = below.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("-");
            self.files.push((dir.join(&below), Path::new(to).join(name)));
        }
    }

    /// Adds skills: each is a directory with all its files.
    fn skills(&mut self, dir: &Path) {
        let mut files = Vec::new();
        walk(dir, Path::new(""), &mut files);
        let has_skill = |file: &Path| {
            let first = file.components().next().map(|part| dir.join(part.as_os_str()).join("SKILL.md"));
            first.is_some_and(|skill| skill.is_file())
        };
        for below in files.into_iter().filter(|file| has_skill(file)) {
            self.sources.push(dir.join(&below));
            self.files.push((dir.join(&below), Path::new("skills").join(below)));
        }
    }

    fn instructions(&mut self, file: &Path) {
        if file.is_file() {
            self.sources.push(file.to_path_buf());
            self.files.push((file.to_path_buf(), PathBuf::from("AGENTS.md")));
        }
    }
}

/// Replaces Codex's lists of variable names, for a server's environment and headers, by `${NAME}` values.
fn codex_variables(server: &mut Value) {
    let Some(table) = server.as_object_mut() else { return };
    let variable = |name: &str| format!("${{{name}}}");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let names = table.get("env_vars").and_then(Value::as_array).into_iter().flatten().filter_map(text);
    let env: Vec<_> = names.map(|name| (name.clone(), variable(&name))).collect();
    let listed = table.get("env_http_headers").and_then(Value::as_object).into_iter().flatten();
    let mut headers: Vec<_> =
        listed.filter_map(|(header, name)| Some((header.clone(), variable(name.as_str()?)))).collect();
    let bearer = table.get("bearer_token_env_var").and_then(text);
    headers.extend(bearer.map(|name| ("Authorization".to_owned(), format!("Bearer {}", variable(&name)))));
    for (key, values) in [("env", env), ("http_headers", headers)] {
        if values.is_empty() {
            continue;
        }
        if let Some(there) = table.entry(key).or_insert_with(|| Value::Object(Map::new())).as_object_mut() {
            for (name, value) in values {
                there.entry(name).or_insert(Value::from(value));
            }
        }
    }
}

/// Replaces opencode's `{env:NAME}` by `${NAME}`.
fn opencode_variables(value: &mut Value) {
    match value {
        Value::String(text) => {
            let mut parts = text.split("{env:");
            let mut out = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                match part.split_once('}') {
                    Some((name, rest)) => out.push_str(&format!("${{{name}}}{rest}")),
                    None => out.push_str(&format!("{{env:{part}")),
                }
            }
            *text = out;
        }
        Value::Array(list) => list.iter_mut().for_each(opencode_variables),
        Value::Object(table) => table.values_mut().for_each(opencode_variables),
        _ => {}
    }
}

/// Whether a variable or header with this name may be a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "AUTH", "CREDENTIAL", "COOKIE", "PRIVATE"]
        .iter()
        .any(|word| name.contains(word))
}

/// Whether a command or address may contain a secret: after an option (`--api-key X`), in a header (`Authorization: X`), in a
/// query (`?token=X`), or by its look. Words with `${` contain none.
fn may_have_secret<'a>(words: impl Iterator<Item = &'a str>) -> bool {
    let mut is_value = false;
    for text in words {
        if has_named_secret(text) || (looks_secret(text) && !text.contains("${")) {
            return true;
        }
        // One word may be a whole shell command.
        for word in text.split_whitespace() {
            let is_option = word.starts_with('-');
            if is_value && !is_option && !word.contains("${") {
                return true;
            }
            is_value = is_option && !word.contains(['=', ':']) && is_secret(word);
        }
    }
    false
}

/// Whether a text gives a value to a secret name: `name=value`, `Name: value`, or credentials in a header.
fn has_named_secret(text: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let lower = text.to_ascii_lowercase();
    let has_credentials = ["bearer ", "basic "]
        .iter()
        .any(|scheme| lower.split_once(scheme).is_some_and(|(_, rest)| !rest.trim().is_empty()));
    if has_credentials && !text.contains("${") {
        return true;
    }
    text.split(['?', '&', '#', ';']).any(|part| {
        part.match_indices(['=', ':']).any(|(at, sign)| {
            let before = part.get(..at).unwrap_or_default().trim_end_matches(['"', '\'', ' ']);
            let value = part.get(at + 1..).unwrap_or_default().trim();
            let name = before.rsplit(|c: char| !is_of_name(c)).next().unwrap_or_default();
            // In an address or path, a colon follows a host or directory.
            let is_place =
                sign == ":" && before.strip_suffix(name).is_some_and(|start| start.ends_with(['/', '.', '@']));
            is_secret(name) && !is_place && !value.is_empty() && !value.contains("${")
        })
    })
}

/// Collects the regular files below a directory, as sorted relative paths. Does not follow links.
fn walk(dir: &Path, below: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir.join(below)) else { return };
    let mut names: Vec<_> = entries.flatten().take(MAX_FILES).collect();
    names.sort_by_key(std::fs::DirEntry::file_name);
    for entry in names {
        let path = below.join(entry.file_name());
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !hidden && path.components().count() < MAX_DEPTH => walk(dir, &path, files),
            Ok(kind) if kind.is_file() && !hidden && files.len() < MAX_FILES => files.push(path),
            _ => {}
        }
    }
}

/// Removes comments and trailing commas from JSON.
fn plain(text: &str) -> String {
    let (mut out, mut chars, mut in_string) = (String::with_capacity(text.len()), text.chars().peekable(), false);
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', _) if in_string => {
                out.push(c);
                out.extend(chars.next());
            }
            ('"', _) => {
                in_string = !in_string;
                out.push(c);
            }
            ('/', Some('/')) if !in_string => while chars.next_if(|c| *c != '\n').is_some() {},
            ('/', Some('*')) if !in_string => {
                let mut last = ' ';
                for c in chars.by_ref().skip(1) {
                    // Lines are counted in errors.
                    if c == '\n' {
                        out.push(c);
                    }
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            (']' | '}', _) if !in_string => {
                let end = out.trim_end().len();
                if out.trim_end().ends_with(',') {
                    out.replace_range(end - 1..end, " ");
                }
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, name: &str, text: &str) {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn json_with_comments_is_read() {
        let text = "{ // one\n \"a\": \"//no /* \\\" */\", /* two\n lines */ \"b\": [1, 2,\n], }";
        let value: Value = serde_json::from_str(&plain(text)).unwrap();
        assert_eq!(value, serde_json::json!({ "a": "//no /* \" */", "b": [1, 2] }));
    }

    #[test]
    fn the_files_of_claude_code_are_read() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        write(
            home,
            ".claude.json",
            r#"{"numStartups": 7, "mcpServers": {
                "docs": {"type": "stdio", "command": "npx", "args": ["-y", "docs"], "env": {"LEVEL": "1", "API_KEY": "sk-1"}},
                "web": {"type": "http", "url": "https://mcp.example.org/mcp", "headers": {"Authorization": "Bearer ${T}"}},
                "old": {"type": "sse", "url": "https://x"}},
              "projects": {"/p": {"mcpServers": {"here": {"command": "./srv"}}}, "/q": {"mcpServers": {"not": {"command": "x"}}}}}"#,
        );
        write(
            home,
            ".claude/settings.json",
            r#"{"permissions": {"allow": ["Bash(npm run test:*)", "Task"], "deny": ["Read(./.env)"], "defaultMode": "bypassPermissions", "additionalDirectories": ["../x"]},
               "hooks": {"PreToolUse": []}}"#,
        );
        write(home, ".claude/agents/reviewer.md", "---\nname: reviewer\n---\nReview.\n");
        write(home, ".claude/commands/git/fix.md", "Fix it");
        write(home, ".claude/CLAUDE.md", "Be brief.");
        write(home, ".claude/skills/notes/SKILL.md", "---\nname: notes\n---\n");
        let found = claude(home, None, Path::new("/p"));
        assert_eq!(found.servers.keys().collect::<Vec<_>>(), ["docs", "here", "web"]);
        assert_eq!(found.servers["docs"].env, [("LEVEL".to_owned(), "1".to_owned())].into());
        assert_eq!(found.servers["web"].headers["Authorization"], "Bearer ${T}");
        // One of a project runs there.
        assert_eq!((found.servers["here"].cwd.as_deref(), &found.servers["docs"].cwd), (Some("/p"), &None));
        assert_eq!(found.rules, [("allow", "bash(npm run test:*)".to_owned()), ("deny", "read(.env)".to_owned())]);
        let to: Vec<String> = found.files.iter().map(|(_, to)| to.display().to_string()).collect();
        assert_eq!(to, ["agents/reviewer.md", "commands/git-fix.md", "AGENTS.md"]);
        let left = found.left_out.join("\n");
        for said in [
            "API_KEY of MCP server docs",
            "sse",
            "Task",
            "bypassPermissions",
            "additionalDirectories",
            "hooks",
            "skills",
        ] {
            assert!(left.contains(said), "{said}: {left}");
        }
        assert!(!left.contains("sk-1"), "{left}");
    }

    #[test]
    fn a_server_whose_arguments_may_have_a_secret_is_left_out() {
        let check = |words: &[&str], expect: bool| {
            assert_eq!(may_have_secret(words.iter().copied()), expect, "{words:?}");
        };
        check(&["npx", "srv", "--api-key", "hunter2"], true);
        check(&["srv", "--api-key=hunter2"], true);
        check(&["npx", "mcp-remote", "--header", "Authorization: hunter2"], true);
        check(&["mcp-remote", "--header=Authorization:hunter2"], true);
        check(&["mcp-remote", "--header", "X-Custom: Bearer hunter2"], true);
        check(&["https://x.example/mcp?a=${A}&token=hunter2"], true);
        check(&["https://me:hunter2@x.example/mcp"], true);
        check(&["docker", "run", "-e", "API_KEY=hunter2", "srv"], true);
        check(&["sh", "-c", "srv --token hunter2"], true);
        check(&["srv", "sk-ant-0123456789abcdef"], true);
        check(&["srv", "--api-key", "${API_KEY}", "--token=${TOKEN}"], false);
        check(&["mcp-remote", "--header", "Authorization: Bearer ${T}"], false);
        check(&["https://x.example/mcp?token=${T}"], false);
        check(&["http://keycloak:8080/mcp"], false);
        check(&["https://auth.example.org:8443/mcp?level=1"], false);
        check(&["docker", "run", "-e", "API_KEY", "-v", "/home/me/keys:/keys", "srv"], false);
        check(&["npx", "-y", "@scope/auth-server@1.0", "--no-auth", "--verbose"], false);
        let dir = tempfile::tempdir().unwrap();
        write(
            dir.path(),
            ".claude.json",
            r#"{"mcpServers": {
                "one": {"command": "npx", "args": ["one", "--api-key", "hunter2"], "env": {"API_KEY": "hunter2"}},
                "two": {"type": "http", "url": "https://x.example/mcp?token=hunter2"},
                "ok": {"command": "npx", "args": ["ok", "--api-key", "${KEY}"]}}}"#,
        );
        let found = claude(dir.path(), None, Path::new("/p"));
        assert_eq!(found.servers.keys().collect::<Vec<_>>(), ["ok"]);
        let left = found.left_out.join("\n");
        assert_eq!(left.matches("an argument may be a secret; add it yourself, with ${NAME}").count(), 2, "{left}");
        assert!(!left.contains("hunter2"), "{left}");
    }

    #[test]
    fn the_files_of_codex_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(
            dir,
            "config.toml",
            "model = \"gpt-5\"\napproval_policy = \"never\"\n[mcp_servers.docs]\ncommand = \"docs\"\nargs = [\"a\"]\n\
             [mcp_servers.docs.env]\nLEVEL = \"1\"\n[mcp_servers.off]\ncommand = \"x\"\nenabled = false\n\
             [mcp_servers.web]\nurl = \"https://x.example\"\nbearer_token_env_var = \"T\"\nenv_http_headers = {X-B = \"B\"}\n\
             [mcp_servers.few]\ncommand = \"few\"\nenv_vars = [\"F\"]\nenabled_tools = [\"read\"]\ndisabled_tools = [\"rm\"]\n",
        );
        write(dir, "prompts/review.md", "Review $1");
        write(dir, "skills/notes/SKILL.md", "---\nname: notes\n---\n");
        write(dir, "skills/notes/scripts/run.sh", "true");
        write(dir, "skills/.system/x/SKILL.md", "no");
        write(dir, "AGENTS.md", "Be brief.");
        let found = codex(dir);
        assert_eq!(found.servers.keys().collect::<Vec<_>>(), ["docs", "few", "web"]);
        assert_eq!(found.servers["docs"].args, ["a"]);
        let few = "[mcp.\"few\"]\ncommand = \"few\"\nenv = { \"F\" = \"${F}\" }\ntools = [\"read\"]\n";
        assert_eq!(found.servers["few"].toml("few"), few);
        let headers = [("Authorization".to_owned(), "Bearer ${T}".to_owned()), ("X-B".to_owned(), "${B}".to_owned())];
        assert_eq!(found.servers["web"].headers, headers.into());
        assert!(found.left_out.iter().any(|text| text.starts_with("disabled_tools of MCP server few")));
        let to: Vec<String> = found.files.iter().map(|(_, to)| to.display().to_string()).collect();
        assert_eq!(to, ["commands/review.md", "skills/notes/SKILL.md", "skills/notes/scripts/run.sh", "AGENTS.md"]);
        assert!(found.left_out.iter().any(|text| text.contains("approval_policy never")));
        write(dir, "config.toml", "broken = ");
        assert!(codex(dir).left_out[0].contains("config.toml"));
    }

    #[test]
    fn the_files_of_opencode_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(
            dir,
            "opencode.jsonc",
            r#"{ // mine
              "mcp": {"files": {"type": "local", "command": ["npx", "-y", "{env:F}/x{env:"], "environment": {"A": "1"}},
                      "web": {"type": "remote", "url": "https://x.example/mcp", "enabled": true, "headers": {"Authorization": "Bearer {env:T}"}}},
              "permission": {"edit": "ask", "bash": {"*": "ask", "git status": "allow", "rm *": "deny"}, "webfetch": "allow"},
              "agent": {"x": {}},
            }"#,
        );
        write(dir, "agent/docs.md", "---\ndescription: d\n---\n");
        write(dir, "command/team/review.md", "Review");
        write(dir, "AGENTS.md", "Be brief.");
        let found = opencode(dir);
        assert_eq!(found.servers["files"].command.as_deref(), Some("npx"));
        assert_eq!(found.servers["web"].url.as_deref(), Some("https://x.example/mcp"));
        assert_eq!(found.servers["web"].headers["Authorization"], "Bearer ${T}");
        assert_eq!(found.servers["files"].args, ["-y", "${F}/x{env:"]);
        let mut rules = found.rules.clone();
        rules.sort();
        let expect = [("allow", "bash(git status)"), ("allow", "fetch"), ("deny", "bash(rm:*)")];
        assert_eq!(rules, expect.map(|(kind, rule)| (kind, rule.to_owned())));
        let to: Vec<String> = found.files.iter().map(|(_, to)| to.display().to_string()).collect();
        assert_eq!(to, ["agents/docs.md", "commands/team-review.md", "AGENTS.md"]);
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        let dir = tempfile::tempdir().unwrap();
        for found in [claude(dir.path(), None, dir.path()), codex(dir.path()), opencode(dir.path())] {
            assert_eq!(found, Importable::default());
        }
    }
}
