//! What is written and what it means; what is wrong and where; the file changing under the daemon.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use linger_protocol::permission::Mode;

use super::*;
use crate::question::permission::Rule;
use crate::tool::set::Tools;

/// Where a configuration lies.
pub(super) struct House {
    _dir: tempfile::TempDir,
    pub(super) places: Places,
}

pub(super) fn house() -> House {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let places = Places { config: at("config"), data: at("data"), state: at("state"), socket: at("state/s") };
    std::fs::create_dir(&places.config).unwrap();
    House { _dir: dir, places }
}

impl House {
    pub(super) fn write(&self, text: &str) {
        std::fs::write(self.places.config_file(), text).unwrap();
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.places.config_file()).unwrap()
    }

    pub(super) fn open(&self) -> ConfigStore {
        let store = ConfigStore::open(self.places.clone(), None, Tools::default());
        store.begin(None, Record(Box::new(|_| Ok(()))));
        store
    }
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    let places = Places { config: "/c".into(), data: "/d".into(), state: "/s".into(), socket: "/s/s".into() };
    Config::parse(text, &places, Some(Path::new("/home/x")), Tools::default().current().names())
}

fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn the_rules_of_contrib_are_rules_that_can_match() {
    let text = include_str!("../../../contrib/deny.toml");
    let config = parse(text).unwrap();
    assert!(config.rules.deny.len() > 30 && config.rules.ask.len() > 15);
    assert_eq!(config.warnings, [""; 0]);
}

#[test]
fn what_the_manual_says_of_providers_is_a_configuration_and_a_service_has_ten_lines() {
    let manual = include_str!("../../manual/providers.md");
    let blocks: Vec<&str> = manual.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let mut services = Vec::new();
    for block in &blocks {
        let config = parse(block).unwrap_or_else(|error| panic!("{error} in\n{block}"));
        assert_eq!(config.warnings, [""; 0], "{block}");
        for table in block.split("\n\n").filter(|table| table.starts_with("[providers.")) {
            assert!(table.lines().count() <= 10, "{table}");
            services.push(table.split(['.', ']']).nth(1).unwrap_or_default());
        }
    }
    for service in ["azure", "claude-vertex", "bedrock", "github", "moonshot", "zai", "cerebras", "fireworks"] {
        assert!(services.contains(&service), "{service} is not among {services:?}");
    }
}

#[test]
fn a_rule_that_is_always_allowed_is_taken_back_where_it_stands() {
    let house = house();
    let text = "mode = \"ask\" # mine\n[workspaces.\"/a\"]\nallow = [\"bash(x)\", \"bash(y)\"]\n[workspaces.\"/b\"]\nallow = [\"bash(x)\"]\n";
    house.write(text);
    let store = house.open();
    assert_eq!(store.revoke(Some(Path::new("/a")), "bash(x)", "me").unwrap(), [("/a".into(), false)]);
    assert_eq!(house.text(), text.replace("[\"bash(x)\", \"bash(y)\"]", "[ \"bash(y)\"]"));
    assert_eq!(store.current().unwrap().always(Path::new("/a")).unwrap().allow.len(), 1);
    assert_eq!(store.revoke(None, "bash(z)", "me").unwrap(), []);
    assert_eq!(store.revoke(None, "bash(x)", "me").unwrap(), [("/b".into(), false)]);
    store.always(Path::new("/b"), true, "bash(rm:*)").unwrap();
    assert_eq!(store.current().unwrap().always(Path::new("/b")).unwrap().deny.len(), 1);
    assert!(house.text().ends_with("[workspaces.\"/b\"]\nallow = []\ndeny = [\"bash(rm:*)\"]\n"), "{}", house.text());
    assert_eq!(store.revoke(None, "bash(rm:*)", "me").unwrap(), [("/b".into(), true)]);
    assert!(store.current().unwrap().always(Path::new("/b")).unwrap().allow.is_empty());
}

#[test]
fn the_line_of_an_added_rule_is_that_of_its_change() {
    let house = house();
    let added = Arc::new(Mutex::new(Vec::new()));
    let store = ConfigStore::open(house.places.clone(), None, Tools::default());
    let seen = added.clone();
    store.begin(
        None,
        Record(Box::new(move |confirmed| {
            seen.lock().unwrap().extend(confirmed.changes);
            Ok(())
        })),
    );
    store.always(Path::new("/a b"), false, "bash(echo \"x\")").unwrap();
    assert_eq!(*added.lock().unwrap(), [always_line("/a b", "bash(echo \"x\")")]);
}

#[test]
fn an_empty_file_means_the_defaults() {
    let config = parse("").unwrap();
    assert_eq!((config.mode, config.max_steps, config.idle_unload_s, config.bash_timeout_s), (Mode::Ask, 200, 60, 120));
    assert!(config.env.pass.is_empty() && config.env.deny.is_empty());
    assert!(config.env.keys.contains("ANTHROPIC_API_KEY"));
    assert_eq!(config.rules.own.get(..3).unwrap(), ["/c", "/d", "/s"].map(PathBuf::from));
    assert!(config.model.is_none() && config.providers.is_empty() && config.warnings.is_empty());
}

#[test]
fn mode_edit_asks_before_a_file_is_changed_that_linger_reaches_by_a_link() {
    use crate::question::permission::{CallInfo, ResolvedAccess, Verdict, decide};
    use crate::tool::{Access, Workspace};

    let house = house();
    let cwd = house.places.config.parent().unwrap().canonicalize().unwrap().join("dots");
    std::fs::create_dir_all(cwd.join("state")).unwrap();
    std::fs::create_dir(&house.places.data).unwrap();
    let link = |to: &str, at: PathBuf| std::os::unix::fs::symlink(cwd.join(to), at).unwrap();
    link("linger.toml", cwd.join("chain"));
    link("chain", house.places.config_file());
    link("mine.md", house.places.config.join("CLAUDE.md"));
    link("db", house.places.database());
    link("pictures", house.places.data.join("blobs"));
    link("state", house.places.state.clone());
    link("keys", cwd.join("state/lingerd.keys"));
    let rules = Config::parse("", &house.places, None, Tools::default().current().names()).unwrap().rules;
    let workspace = Workspace {
        root: cwd.clone(),
        is_seen: true,
        bound_by: None,
        added: Default::default(),
        cwd,
        env: Default::default(),
        secrets: Default::default(),
        seen: Default::default(),
        skills: Default::default(),
        notes: Default::default(),
        timeout_s: 1,
    };
    let asks = |file: &str| {
        let access = Access::Write(workspace.cwd.join(file));
        let resolved = ResolvedAccess::of(&access, &workspace, &rules);
        let call = CallInfo { tool: "write", changes: true, access };
        matches!(decide(&rules, &[], Mode::Edit, &call, &resolved), Verdict::Ask { .. })
    };
    for file in ["linger.toml", "chain", "mine.md", "db", "pictures/ab", "state/new", "keys"] {
        assert!(asks(file), "{file} is changed without a question");
    }
    assert!(!asks("other.toml"));
    // What a link leads to is looked at when it is decided, and not when the rules were read.
    std::fs::remove_file(house.places.config_file()).unwrap();
    std::os::unix::fs::symlink(workspace.cwd.join("other.toml"), house.places.config_file()).unwrap();
    assert!(asks("other.toml") && !asks("linger.toml"));
}

#[test]
fn everything_that_is_written_is_meant() {
    let config = parse(
        r#"
model = "work"
mode = "plan"
max_steps = 3
idle_unload_s = 0
[tools]
bash_timeout_s = 5
[env]
pass = ["GH_TOKEN"]
deny = ["FOO"]
[providers.work]
kind = "openai"
base_url = "http://127.0.0.1:4000/v1"
api_key_env = "WORK_KEY"
[permissions]
allow = ["read(**)", "bash(git status)"]
ask = ["bash(git push:*)"]
deny = ["read(**/.env)"]
[workspaces."/home/x/proj"]
allow = ["bash(make)"]
"#,
    )
    .unwrap();
    assert_eq!(config.model.as_deref(), Some("work"));
    assert_eq!((config.mode, config.max_steps, config.idle_unload_s, config.bash_timeout_s), (Mode::Plan, 3, 0, 5));
    let given = |name: &str| config.env.withheld(name, "x").is_none();
    assert_eq!(["GH_TOKEN", "FOO", "WORK_KEY", "PATH"].map(given), [true, false, false, true]);
    assert_eq!(config.providers["work"].base_url.as_deref(), Some("http://127.0.0.1:4000/v1"));
    let texts = |rules: &[Rule]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(&config.rules.allow), ["read(**)", "bash(git status)"]);
    assert_eq!(texts(&config.rules.ask), ["bash(git push:*)"]);
    assert_eq!(texts(&config.rules.deny), ["read(**/.env)"]);
    assert_eq!(texts(&config.always(Path::new("/home/x/proj")).unwrap().allow), ["bash(make)"]);
    assert!(config.always(Path::new("/home/x")).is_none());
    assert_eq!(config.warnings, [""; 0]);
}

#[test]
fn an_error_names_file_line_and_key() {
    let table = [
        (
            "\nmode = \"foo\"",
            "/c/config.toml:2:1: mode: unknown variant `foo`, expected one of `ask`, `edit`, `auto`, `plan`",
        ),
        ("mode = \"plam\"", "/c/config.toml:1:1: mode: unknown variant `plam`; did you mean `plan`?"),
        ("modle = \"x\"", "/c/config.toml:1:1: modle: unknown field `modle`; did you mean `model`?"),
        (
            "[providers.work]\n  base_ulr = \"x\"",
            "/c/config.toml:2:3: providers.work.base_ulr: unknown field `base_ulr`; did you mean `base_url`?",
        ),
        (
            "[providers.claude]\nkind = \"anthropic\"\nhosted_tools = [\"web_serch\"]",
            "/c/config.toml:3:1: providers.claude.hosted_tools: unknown tool `web_serch`; did you mean `web_search`?",
        ),
        (
            "[providers.anthropic]\nhosted_tools = [\"x\"]",
            "/c/config.toml:2:1: providers.anthropic.hosted_tools: unknown tool `x`: it is web_search or code_execution",
        ),
        (
            "[providers.openai]\nhosted_tools = [\"web_search\"]",
            "/c/config.toml:2:1: providers.openai.hosted_tools: the kind openai has none; the same models have them as kind \
             openai-responses",
        ),
        (
            "[providers.ollama]\nhosted_tools = [\"web_search\"]",
            "/c/config.toml:2:1: providers.ollama.hosted_tools: the kind ollama has none",
        ),
        (
            "[tools]\nbash_timeout_s = \"x\"",
            "/c/config.toml:2:1: tools.bash_timeout_s: invalid type: string \"x\", expected u64",
        ),
        ("[models.gpt-5]", "/c/config.toml:1:9: models.gpt-5: a model is named `provider/model` in quotes"),
        (
            "[models.\"opnai/gpt-5\"]",
            "/c/config.toml:1:9: models.\"opnai/gpt-5\": unknown provider `opnai`; did you mean `openai`?",
        ),
        (
            "[models.\"openai/gpt-5\"]\ninput_price = -1",
            "/c/config.toml:2:1: models.\"openai/gpt-5\".input_price: must be from 0 to 100000, in US dollars per million \
             tokens",
        ),
        (
            "[models.\"openai/gpt-5\"]\noutput_price = nan",
            "/c/config.toml:2:1: models.\"openai/gpt-5\".output_price: must be from 0 to 100000, in US dollars per million \
             tokens",
        ),
        (
            "[models.\"openai/gpt-5\"]\ncontext_window = 0",
            "/c/config.toml:2:1: models.\"openai/gpt-5\".context_window: must be from 1 to 1000000000 tokens",
        ),
        (
            "[models.\"openai/gpt-5\"]\ncontext = 1",
            "/c/config.toml:2:1: models.\"openai/gpt-5\".context: unknown field `context`, expected one of `context_window`, \
             `max_output`, `input_price`, `output_price`, `cache_read_price`, `cache_write_price`, `effort`, `apply_patch`, `headers`, \
             `query`, `body`, `fallback`, `fallback_after`",
        ),
        ("max_steps = 0", "/c/config.toml:1:1: max_steps: must be at least 1"),
        (
            "compact_at = 10",
            "/c/config.toml:1:1: compact_at: must be from 20 to 95 percent of the model's window, or 0 to disable",
        ),
        (
            "compact_at = 100",
            "/c/config.toml:1:1: compact_at: must be from 20 to 95 percent of the model's window, or 0 to disable",
        ),
        ("max_steps = -1", "/c/config.toml:1:1: max_steps: invalid value: integer `-1`, expected u32"),
        ("tools.bash_timeout_s = 0", "/c/config.toml:1:7: tools.bash_timeout_s: must be from 1 to 3600"),
        ("idle_unload_s = 604801", "/c/config.toml:1:1: idle_unload_s: must be at most 604800"),
        ("model = \"a/\"", "/c/config.toml:1:1: model: write `provider/model`, or a provider alone"),
        (
            "providers.w.base_url = \"ftp://x\"",
            "/c/config.toml:1:13: providers.w.base_url: must begin with http:// or https://",
        ),
        (
            "providers.w.base_url = \"x\"",
            "/c/config.toml:1:13: providers.w.base_url: is not a URL: relative URL without a base",
        ),
        (
            "[permissions]\nallow = [\"ls\",\n \"bash(x\"]",
            "/c/config.toml:3:2: permissions.allow[1]: `bash(x` is not a rule: write `tool` or `tool(pattern)`, such as `bash(git status)`",
        ),
        ("[workspaces.\"a b\"]", "/c/config.toml:1:13: workspaces.\"a b\": a workspace is named by its absolute path"),
        ("[env]\npass = [\"A-B\"]", "/c/config.toml:2:9: env.pass[0]: is not the name of a variable"),
        (
            "[env]\npass = [\"LINGER_SOCKET\"]",
            "/c/config.toml:2:9: env.pass[0]: linger's own variables are never passed to a session",
        ),
        (
            "[env]\npass = [\"FOO\", \"ANTHROPIC_API_KEY\"]",
            "/c/config.toml:2:16: env.pass[1]: ANTHROPIC_API_KEY holds the key of the provider `anthropic`, which is never passed to a session: a tool that needs a key gets one from a file, or from a variable of another name",
        ),
        (
            "[env]\npass = [\"WORK_KEY\"]\n[providers.work]\nkind = \"openai\"\nbase_url = \"http://h\"\napi_key_env = \"WORK_KEY\"",
            "/c/config.toml:2:9: env.pass[0]: WORK_KEY holds the key of the provider `work`, which is never passed to a session: a tool that needs a key gets one from a file, or from a variable of another name",
        ),
        ("permissions = 3", "/c/config.toml:1:1: permissions: invalid type: integer `3`, expected a table"),
    ];
    for (text, expected) in table {
        assert_eq!(error(text), expected, "{text}");
    }
}

#[test]
fn a_syntax_error_names_its_line() {
    for (text, start) in [
        ("mode = \"ask\"\nmax_steps =\n", "/c/config.toml:2:"),
        ("[providers.work\nkind = 1", "/c/config.toml:1:"),
        ("x", "/c/config.toml:1:"),
        ("mode = \"ask\"\nmode = \"edit\"", "/c/config.toml:2:1: mode: "),
    ] {
        let error = error(text);
        assert!(error.starts_with(start), "{text}: {error}");
    }
}

#[test]
fn a_key_in_the_file_is_refused_and_not_repeated() {
    for text in [
        "[providers.work]\napi_key = \"hunter2hunter2\"",
        "[providers.work]\nAPI-Key = \"hunter2hunter2\"",
        "[providers.work]\napi_key_env = \"sk-ant-hunter2hunter2\"",
        "[providers.work]\napi_key_env = \"hunter2-hunter2\"",
        "[providers.work]\nmax_tokens = \"sk-hunter2hunter2\"",
        "[providers.work]\nbase_url = \"https://x:hunter2@host/\"",
        "[mcp.x.env]\nA = \"ghp_hunter2hunter2\"",
        "[mcp.x.headers]\nAuthorization = \"Bearer ghp_hunter2hunter2\"",
    ] {
        let error = error(text);
        assert!(!error.contains("hunter2"), "{error}");
        assert!(error.contains("key"), "{error}");
    }
    let error = error("[providers.work]\napi_key = \"x\"");
    assert!(error.starts_with("/c/config.toml:2:1: providers.work.api_key: a key is never written here"), "{error}");
    assert!(error.contains("api_key_env") && error.contains("api_key_command"), "{error}");
}

#[test]
fn a_model_of_a_provider_that_is_not_there_is_named_with_its_place() {
    let error = error("mode = \"ask\"\nmodel = \"antropic/claude\"");
    assert!(error.starts_with("/c/config.toml:2:1: model: ") && error.contains("`anthropic`"), "{error}");
    assert!(parse("model = \"work\"\n[providers.work]\nkind = \"openai\"\nbase_url = \"http://h/v1\"").is_ok());
    assert!(parse("model = \"demo\"").is_ok());
}

#[test]
fn a_rule_that_an_answer_wrote_is_exact_and_nobody_is_warned() {
    let config = parse(
        "[workspaces.\"/p\"]\nallow = [\"bash(wc -l *)\", \"bash(touch *)\", \"bash(*)\", \"bash(python3)\", \"bash(cargo test:*)\"]\ndeny = [\"bash(rm x*)\", \"bash(**)\"]",
    );
    assert_eq!(config.unwrap().warnings, Vec::<String>::new());
    // What allows more than was shown is named.
    let config = parse("[workspaces.\"/p\"]\nallow = [\"bash(git:*)\"]").unwrap();
    assert!(config.warnings.concat().contains("allows more than it says"), "{:?}", config.warnings);
}

#[test]
fn what_has_no_effect_is_named() {
    let config =
        parse("[permissions]\nallow = [\n  \"bash(npm run *)\",\n]\ndeny = [\"Read(x)\", \"mcp__x__*\"]").unwrap();
    assert_eq!(
        config.warnings,
        [
            "config.toml:3: permissions.allow: `bash(npm run *)` allows only that exact command; `bash(npm run:*)` allows all that begin so",
            "config.toml:5: permissions.deny: `Read(x)` never matches: no tool is called `Read`; did you mean `read`?",
        ]
    );
    let config =
        parse("[permissions]\nallow = [\"bash(a b)\", \"bash(c)\", \"ls\"]\nask = [\"bash(c)\"]\ndeny = [\"ls\"]");
    assert_eq!(
        config.unwrap().warnings,
        [
            "config.toml:2: permissions.allow: `bash(c)` never matches: `bash(c)` in ask comes first",
            "config.toml:2: permissions.allow: `ls` never matches: `ls` in deny comes first",
        ]
    );
}

#[test]
fn a_key_that_goes_to_another_machine_in_the_clear_is_warned_about() {
    let warnings = |base_url: &str, key: &str| {
        parse(&format!("[providers.work]\nkind = 'openai'\nbase_url = '{base_url}'\n{key}")).unwrap().warnings
    };
    let expect =
        "config.toml:3: providers.work.base_url: the key goes to 10.0.0.5:8000 unencrypted: use https://, or a tunnel";
    assert_eq!(warnings("http://10.0.0.5:8000/v1", "api_key_env = 'K'"), [expect]);
    assert_eq!(warnings("http://10.0.0.5:8000/v1", "headers = { 'x' = { env = 'K' } }"), [expect]);
    for (base_url, key) in [
        ("http://10.0.0.5:8000/v1", ""),
        ("https://h/v1", "api_key_env = 'K'"),
        ("http://localhost:8000/v1", "api_key_env = 'K'"),
    ] {
        assert_eq!(warnings(base_url, key), [""; 0], "{base_url} {key}");
    }
}

#[test]
fn a_wrong_server_is_told_with_its_place() {
    let check = |text: &str, expect: &str| {
        let error = error(text);
        assert!(error.starts_with("/c/config.toml:") && error.contains(expect), "{error}");
    };
    check("[mcp.a]\ncommand = \"x\"\nurl = \"http://h/\"", "mcp.a.url: has `command` too");
    check("[mcp.a]\nrequired = true", "mcp.a: needs `command`");
    check("[mcp.a]\nurl = \"ftp://h/\"", "mcp.a.url: must begin with http");
    check("[mcp.a]\ncommand = \"x\"\nenv.A = \"${OPENAI_API_KEY}\"", "mcp.a: OPENAI_API_KEY holds the key");
    check("[mcp.a]\ncommand = \"x\"\nfast = true", "mcp.a.fast: unknown field `fast`");
    let config = parse("[mcp.a]\ncommand = \"x\"\ncwd = \"~/w\"").unwrap();
    assert_eq!(config.mcp["a"].cwd.as_deref(), Some(Path::new("/home/x/w")));
}

#[test]
fn a_broken_file_at_the_start_refuses_and_a_broken_reload_keeps_the_last_good_one() {
    let house = house();
    house.write("max_steps = 0");
    let store = house.open();
    assert_eq!(store.current().unwrap_err().key, "max_steps");

    house.write("max_steps = 7");
    assert_eq!(store.reload(), Reload::Changed);
    assert_eq!(store.reload(), Reload::Unchanged);
    assert_eq!((store.current().unwrap().max_steps, store.error()), (7, None));

    house.write("max_steps = oops");
    assert!(matches!(store.reload(), Reload::Broken(_)));
    assert!(matches!(store.reload(), Reload::Broken(_)));
    assert_eq!(store.current().unwrap().max_steps, 7);
    assert_eq!(store.error().unwrap().line, 1);

    assert!(!store.is_emptied());
    std::fs::remove_file(house.places.config_file()).unwrap();
    assert!(store.is_emptied(), "somebody may be about to put another in its place");
    assert_eq!(store.reload(), Reload::Changed);
    assert_eq!((store.current().unwrap().max_steps, store.error()), (200, None));
    assert!(!store.is_emptied());
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_with_its_name() {
    let house = house();
    std::fs::create_dir(house.places.config_file()).unwrap();
    let error = house.open().current().unwrap_err().to_string();
    assert_eq!(error, format!("{}: is not a file", house.places.config_file().display()));
    std::fs::remove_dir(house.places.config_file()).unwrap();
    std::os::unix::fs::symlink("nowhere", house.places.config_file()).unwrap();
    assert!(house.open().current().unwrap_err().message.contains("is a dangling symlink"));
    std::fs::remove_file(house.places.config_file()).unwrap();
    house.write(&"#".repeat((1 << 20) + 1));
    assert!(house.open().current().unwrap_err().message.contains("larger"));
}

#[test]
fn a_grant_keeps_comments_and_form() {
    let house = house();
    house.write("# mine\nmode = \"ask\" # for now\n\n[workspaces.\"/w\"] # work\nallow = [\n    \"bash(a)\", # first\n]\n\n[env]\npass = []\n");
    let store = house.open();
    store.always(Path::new("/w"), false, "bash(echo \"x\" (y)\nz)").unwrap();
    store.always(Path::new("/w"), false, "bash(a)").unwrap();
    store.always(Path::new("/v"), false, "edit(src/a.rs)").unwrap();
    let config = store.current().unwrap();
    let texts =
        |root: &str| config.always(Path::new(root)).unwrap().allow.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts("/w"), ["bash(a)", "bash(echo \"x\" (y)\nz)"]);
    assert_eq!(texts("/v"), ["edit(src/a.rs)"]);
    let expected = [
        "# mine\nmode = \"ask\" # for now\n\n[workspaces.\"/w\"] # work\nallow = [\n    \"bash(a)\", # first\n",
        "    \"\"\"\nbash(echo \"x\" (y)\nz)\"\"\",\n]\n\n[workspaces.\"/v\"]\nallow = [\"edit(src/a.rs)\"]\n",
        "\n[env]\npass = []\n",
    ];
    assert_eq!(house.text(), expected.concat());
}

#[test]
fn a_grant_that_would_make_the_file_too_large_to_read_is_refused() {
    let house = house();
    house.write("");
    let store = house.open();
    let error =
        store.always(Path::new("/w"), false, &format!("bash({})", "x".repeat(1 << 20))).unwrap_err().to_string();
    assert!(error.ends_with("the file would be larger than 1048576 bytes"), "{error}");
    assert_eq!(store.reload(), Reload::Unchanged);
}

#[test]
fn the_first_grant_makes_a_file_that_others_cannot_read() {
    let house = house();
    std::fs::remove_dir(&house.places.config).unwrap();
    let store = house.open();
    store.always(Path::new("/w"), false, "bash(a)").unwrap();
    assert_eq!(house.text(), "[workspaces.\"/w\"]\nallow = [\"bash(a)\"]\n");
    assert_eq!(std::fs::metadata(house.places.config_file()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(&house.places.config).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::read_dir(&house.places.config).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn a_grant_does_not_touch_a_broken_file_and_adds_no_broken_rule() {
    let house = house();
    house.write("max_steps = 0\n");
    let store = house.open();
    let error = store.always(Path::new("/w"), false, "bash(a)").unwrap_err();
    assert!(matches!(&error, EditError::Broken(_)) && error.to_string().contains("max_steps"), "{error}");
    assert_eq!(house.text(), "max_steps = 0\n");
    house.write("max_steps = 1\n");
    assert!(matches!(store.always(Path::new("/w"), false, "bash(a"), Err(EditError::Refused(_))));
    assert!(matches!(store.always(Path::new("w"), false, "bash(a)"), Err(EditError::Refused(_))));
    assert_eq!(house.text(), "max_steps = 1\n");
}

#[test]
fn a_grant_follows_a_link_and_keeps_the_mode() {
    let house = house();
    let target = house.places.config.join("dotfile");
    std::fs::write(&target, "").unwrap();
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&target, house.places.config_file()).unwrap();
    house.open().always(Path::new("/w"), false, "bash(a)").unwrap();
    assert!(house.places.config_file().is_symlink());
    assert!(std::fs::read_to_string(&target).unwrap().contains("bash(a)"));
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_file_that_others_can_write_is_not_read() {
    let house = house();
    house.write("max_steps = 7\n");
    let store = house.open();
    let file = house.places.config_file();
    for (mode, read) in [(0o640, true), (0o644, true), (0o646, false), (0o666, false)] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        store.reload();
        assert_eq!(store.error().map(|error| error.to_string()).is_none(), read, "{mode:o}");
        assert_eq!(store.current().unwrap().max_steps, 7, "what was read before stays in force");
    }
    let others = [((7, 7, 0o664), false), ((0, 0, 0o644), false), ((7, 100, 0o664), true), ((8, 7, 0o600), true)];
    for (file, expect) in others {
        let (owner, group, mode) = file;
        assert_eq!(super::store::others_write(owner, group, mode, 7).is_some(), expect, "{file:?}");
    }
    let said = store.error().unwrap().to_string();
    assert!(said.contains("can be written by others, and is not read: `chmod go-w` it"), "{said}");
}

#[test]
fn grants_from_many_sides_are_all_kept() {
    let house = house();
    let store = house.open();
    std::thread::scope(|scope| {
        for i in 0..8 {
            let store = &store;
            scope.spawn(move || store.always(Path::new("/w"), false, &format!("bash({i})")).unwrap());
        }
    });
    assert_eq!(store.current().unwrap().always(Path::new("/w")).unwrap().allow.len(), 8);
}

#[test]
fn what_the_user_saves_while_a_rule_is_written_stays() {
    let house = house();
    house.write("");
    let store = house.open();
    let mut saved = false;
    let saving = |text: &str| {
        if !std::mem::replace(&mut saved, true) {
            house.write("max_steps = 7\n");
        }
        Ok(Some(format!("{text}mode = \"plan\"\n")))
    };
    store.change("", saving).unwrap();
    assert_eq!(house.text(), "max_steps = 7\nmode = \"plan\"\n");
    assert_eq!(store.current().unwrap().max_steps, 7);

    let mut n = 0;
    let without_end = |text: &str| {
        n += 1;
        house.write(&format!("# {n}\n"));
        Ok(Some(format!("{text}idle_unload_s = 3\n")))
    };
    let error = store.change("", without_end).unwrap_err().to_string();
    assert_eq!(error, "another program keeps changing the file");
    assert_eq!(house.text(), "# 20\n");
}

#[test]
fn what_is_not_watched_is_told() {
    let house = house();
    house.write("[permissions]\ndeny = [\"Read(x)\"]");
    let store = house.open();
    store.set_watched(Some("no more watches"), None);
    let file = house.places.config_file();
    let told = format!("{}: cannot watch the file; restart the daemon after a change: no more watches", file.display());
    assert_eq!((&store.warnings()[0], store.warnings().len()), (&told, 2));
    store.set_watched(None, None);
    assert_eq!(store.warnings().len(), 1);
}

/// A store with a record of what was confirmed: who confirmed it, and what.
fn recorded(house: &House, confirmed: Option<Value>) -> (ConfigStore, Arc<Mutex<Vec<Confirmed>>>) {
    let store = ConfigStore::open(house.places.clone(), None, Tools::default());
    let kept = Arc::new(Mutex::new(Vec::new()));
    let record = kept.clone();
    let record = move |confirmed| {
        record.lock().unwrap().push(confirmed);
        Ok(())
    };
    store.begin(confirmed, Record(Box::new(record)));
    (store, kept)
}

fn last(kept: &Mutex<Vec<Confirmed>>) -> (Value, String) {
    let kept = kept.lock().unwrap();
    let last = kept.last().unwrap();
    (last.settings.clone(), last.by.clone())
}

#[test]
fn the_first_start_takes_what_it_finds_and_a_later_change_waits() {
    let house = house();
    house.write("mode = 'edit'\nmax_steps = 3");
    let (store, kept) = recorded(&house, None);
    assert_eq!((store.current().unwrap().mode, store.waiting()), (Mode::Edit, None));
    assert_eq!(last(&kept), (serde_json::json!({ "mode": "edit" }), String::new()));

    house.write(
        "mode = 'auto'\nmax_steps = 4\n[providers.evil]\nkind = 'openai'\nbase_url = 'http://e'\napi_key_env = 'K'",
    );
    assert_eq!(store.reload(), Reload::Changed);
    let config = store.current().unwrap();
    assert_eq!((config.mode, config.max_steps, config.providers.len()), (Mode::Edit, 4, 0));
    assert_eq!(config.unconfirmed, BTreeSet::from(["evil".to_owned()]));
    let waiting = store.waiting().unwrap();
    assert_eq!(waiting.lines().len(), 4);
    assert!(store.warnings()[0].contains("4 changes wait until you confirm"), "{:?}", store.warnings());
    assert_eq!(kept.lock().unwrap().len(), 1);

    // What was shown is what is confirmed.
    house.write("mode = 'auto'\nmax_steps = 4\n");
    assert!(matches!(store.confirm(&waiting, "me"), Err(EditError::Stale)));
    store.reload();
    assert!(matches!(store.confirm(&waiting, "me"), Err(EditError::Stale)));
    let waiting = store.waiting().unwrap();
    store.confirm(&waiting, "me").unwrap();
    assert_eq!((store.current().unwrap().mode, store.waiting()), (Mode::Auto, None));
    assert_eq!(last(&kept), (serde_json::json!({ "mode": "auto" }), "me".to_owned()));
}

#[test]
fn a_file_that_changed_while_no_daemon_ran_waits() {
    let house = house();
    house.write("mode = 'auto'\n[permissions]\nallow = ['bash']");
    let (store, _) = recorded(&house, Some(serde_json::json!({ "permissions": { "deny": ["read(x)"] } })));
    let config = store.current().unwrap();
    assert_eq!((config.mode, config.rules.allow.len(), config.rules.deny.len()), (Mode::Ask, 0, 1));
    assert_eq!(store.waiting().unwrap().lines().len(), 3);
}

#[test]
fn a_broken_file_at_the_first_start_is_taken_once_it_is_valid() {
    let house = house();
    house.write("mode = 'oops'");
    let (store, _) = recorded(&house, None);
    assert!(store.current().is_err());
    house.write("mode = 'auto'");
    store.reload();
    assert_eq!((store.current().unwrap().mode, store.waiting()), (Mode::Auto, None));
}

#[test]
fn what_narrows_is_stored_and_a_missing_file_forgets_nothing() {
    let house = house();
    house.write("mode = 'auto'");
    let (store, kept) = recorded(&house, None);
    std::fs::remove_file(house.places.config_file()).unwrap();
    store.reload();
    assert_eq!(store.current().unwrap().mode, Mode::Ask);
    house.write("mode = 'auto'");
    store.reload();
    assert_eq!(store.current().unwrap().mode, Mode::Auto, "an editor had only replaced it");
    house.write("mode = 'ask'");
    store.reload();
    assert_eq!(last(&kept).0, serde_json::json!({ "mode": "ask" }));
    house.write("mode = 'auto'");
    store.reload();
    assert_eq!((store.current().unwrap().mode, store.waiting().is_some()), (Mode::Ask, true));
}

#[test]
fn what_linger_writes_is_confirmed_and_what_waits_goes_on_waiting() {
    let house = house();
    house.write("# mine\nmode = \"ask\" # for now\n");
    let (store, kept) = recorded(&house, None);
    house.write("# mine\nmode = \"ask\" # for now\n[permissions]\nallow = ['bash(evil)']\n");
    store.reload();
    store.always(Path::new("/w"), false, "bash(a)").unwrap();
    assert_eq!(store.set("mode", "auto", "me").unwrap().len(), 1);
    assert_eq!(store.set("permissions.deny", "['read(x)']", "me").unwrap(), [""; 0]);
    let config = store.current().unwrap();
    assert_eq!((config.mode, config.rules.allow.len(), config.rules.deny.len()), (Mode::Auto, 0, 1));
    assert_eq!(config.always(Path::new("/w")).unwrap().allow.len(), 1);
    assert_eq!(store.waiting().unwrap().lines().len(), 1, "the rule that nobody confirmed");
    let expected = serde_json::json!({
        "mode": "auto", "workspaces": { "/w": { "allow": ["bash(a)"] } },
        "permissions": { "allow": [], "deny": ["read(x)"] },
    });
    assert_eq!(last(&kept).0, expected);
    let text = "# mine\nmode = \"auto\" # for now\n[permissions]\nallow = ['bash(evil)']\ndeny = ['read(x)']\n";
    assert!(house.text().starts_with(text), "{}", house.text());

    let edited = house.text().replace("auto", "edit").replace("'bash(evil)'", "'bash(good)'");
    let widens = store.write(|_| true, &edited, "me", true).unwrap();
    assert!(house.text().contains("evil") && widens.len() == 1, "{widens:?}");
    assert!(matches!(store.write(|_| false, &edited, "me", false), Err(EditError::Stale)));
    store.write(|_| true, &edited, "me", false).unwrap();
    assert_eq!((store.current().unwrap().rules.allow.len(), store.waiting()), (1, None));
    for (key, value) in [("mode", "oops"), ("no such key", "1"), ("permissions", "1"), ("nothing", "1"), ("", "1")] {
        assert!(store.set(key, value, "me").is_err(), "{key}");
    }
}

#[test]
fn what_cannot_be_stored_is_not_in_force() {
    let house = house();
    let store = ConfigStore::open(house.places.clone(), None, Tools::default());
    store.begin(Some(serde_json::json!({})), Record(Box::new(|_| Err("no space".to_owned()))));
    house.write("mode = 'auto'");
    store.reload();
    let error = store.confirm(&store.waiting().unwrap(), "me").unwrap_err();
    assert_eq!(error.to_string(), "cannot store what is confirmed: no space");
    assert_eq!(store.current().unwrap().mode, Mode::Ask);
    assert!(store.set("mode", "edit", "me").is_err() && house.text() == "mode = 'auto'");
}

#[test]
fn the_recipes_for_mcp_servers_are_valid() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../contrib/mcp");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(text.starts_with("# "), "a line says what it is for: {text}");
        names.extend(parse(&text).unwrap().mcp.into_keys());
    }
    names.sort();
    assert_eq!(names, ["browser", "duckdb", "fetch", "files", "git", "memory", "search", "sessions"]);
}
