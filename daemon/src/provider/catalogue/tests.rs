//! Which model a name means, what it needs, and what is said when that is not there.

use linger_protocol::message::ContentBlock;
use linger_protocol::session::Effort;

use super::*;
use crate::diagnostics::secret::Secret;
use crate::provider::encoding::Encoding;
use crate::provider::listing::Listed;
use crate::provider::models::{self, Price, Prices};
use crate::provider::support::{request, user};
use crate::provider::types::Parameter;
use crate::provider::types::ToolSpecs;

pub(super) fn catalogue(config: &str, default: &str, keys: &[(&str, &str)]) -> Catalogue {
    let providers: BTreeMap<String, ProviderConfig> = toml::from_str(config).unwrap();
    assert!(providers.iter().all(|(name, config)| config.check(name).is_ok()));
    let said = ModelConfig { context_window: Some(9000), input_price: Some(1.5), ..ModelConfig::default() };
    let models = BTreeMap::from([("local/qwen/3".to_owned(), said)]);
    let default = Some(default.to_owned());
    let catalogue = Catalogue::new(&providers, &models, default, Arc::default(), Arc::default());
    catalogue.add_keys(keys.iter().copied(), Bearer::Daemon);
    catalogue
}

pub(super) const WORK: &str = "
    [work]
    kind = 'openai'
    base_url = 'http://127.0.0.1:4001/v1'
    api_key_env = 'WORK_KEY'
    max_tokens = 9
    [local]
    kind = 'openai'
    base_url = 'http://127.0.0.1:8081/v1'
    model = 'qwen/3'
    compat = { developer_role = true }
    [pass]
    kind = 'anthropic'
    api_key_command = 'pass show work'
    model = 'm'";

pub(super) fn check(catalogue: &Catalogue, spec: &str, expect: Result<(&str, KeySource), &str>) {
    let got =
        catalogue.resolve(spec).map(|resolved| (resolved.origin, resolved.key)).map_err(|error| error.to_string());
    let expect = expect.map(|(origin, key)| (origin.to_owned(), key)).map_err(str::to_owned);
    assert_eq!(got, expect, "{spec}");
}

pub(super) fn known(key: &str) -> KeySource {
    KeySource::Known(Secret::new(key))
}

#[test]
fn a_spec_names_a_provider_and_perhaps_a_model() {
    let catalogue = catalogue(WORK, "", &[("WORK_KEY", "w-secret"), ("HOME", "not a key")]);
    check(&catalogue, "work/a/b", Ok(("work/a/b", known("w-secret"))));
    check(&catalogue, "local", Ok(("local/qwen/3", KeySource::None)));
    check(&catalogue, "pass", Ok(("pass/m", KeySource::Command("pass show work".to_owned()))));
    check(&catalogue, "demo", Ok(("demo/demo", KeySource::None)));
    check(
        &catalogue,
        "anthropic",
        Err("the provider `anthropic` needs a key: set ANTHROPIC_API_KEY, or store it with `linger key set anthropic`"),
    );
    check(
        &catalogue,
        "work",
        Err("the provider `work` has no default model: write `work/MODEL`, or set `model` in [providers.work]"),
    );
    check(&catalogue, "antropic/x", Err("unknown provider `antropic`; did you mean `anthropic`?"));
    check(&catalogue, "zzz", Err("unknown provider `zzz`"));
    // A name that nothing is like is maybe a model's of the session's own provider.
    let unknown = catalogue.resolve_in_session("work/a", "zzz").unwrap_err().to_string();
    assert_eq!(unknown, "unknown provider `zzz`; did you mean `work/zzz`?");
    // The name of a model alone: at a provider whose key is there if it can be.
    let meant = |spec: &str| match catalogue.resolve(spec) {
        Err(ResolveError::UnknownProvider { near, .. }) => near.unwrap_or_default(),
        other => panic!("{other:?}"),
    };
    assert_eq!(meant("claude-sonnet-5"), "pass/claude-sonnet-5", "the key of that one is there");
    assert_eq!(meant("gemini-flash-latest"), "gemini/gemini-flash-latest");
    assert_eq!(meant("gpt-5-20260101"), "openai/gpt-5-20260101");
    assert_eq!(meant("gpt-5"), "openai/gpt-5");
    assert_eq!(meant("qwen/qwen3-coder"), "openrouter/qwen/qwen3-coder");
    assert_eq!(meant("qwen3-max"), "alibaba/qwen3-max");
    assert_eq!(meant("claude-sonet-5"), "pass/claude-sonnet-5");
    assert_eq!(meant("gmini-flash-latest"), "", "nobody who can be asked has one like it");
    let listed = ["gpt-5", "qwen3-max"].map(|name| Listed { name: name.to_owned(), facts: ModelInfo::default() });
    catalogue.rows("work", &Model::default(), &listed);
    assert_eq!((meant("gpt-5"), meant("qwen3-max")), ("work/gpt-5".to_owned(), "work/qwen3-max".to_owned()));
    let wanted = catalogue.wanted();
    assert!(
        ["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "VLLM_API_KEY"].iter().all(|name| wanted.contains(&(*name).to_owned()))
    );
    assert!(!wanted.contains(&"WORK_KEY".to_owned()));
    assert_eq!(catalogue.keys.get("HOME"), None);
}

#[test]
fn a_suggestion_leads_to_the_right_provider_where_there_is_one() {
    let moved = catalogue("[anthropic]\nbase_url = 'http://10.0.0.5'", "", &[]);
    let near = |spec: &str| moved.resolve(spec).unwrap_err().to_string();
    assert_eq!(near("OPENAI/mock"), "unknown provider `OPENAI`; did you mean `openai/mock`?");
    assert_eq!(near("OpenAI"), "unknown provider `OpenAI`; did you mean `openai`?");
    // At another address a preset's models are still those that are known.
    assert_eq!(moved.near_model("anthropic/claude-sonet-5").as_deref(), Some("anthropic/claude-sonnet-5"));
}

#[test]
fn a_key_that_a_client_brings_makes_no_other_provider_the_default() {
    let held = catalogue("", "", &[("OPENAI_API_KEY", "o-secret")]);
    held.add_keys([("ANTHROPIC_API_KEY", "a-secret")], Bearer::Client);
    assert_eq!(held.default_model().unwrap(), "openai/gpt-5");
    assert!(held.has_key("anthropic") && held.client_place("anthropic").is_some());
    assert_eq!(held.client_place("openai"), None);
    // Of what clients bring the first one stays, also when a client brings it again.
    let brought = catalogue("", "", &[]);
    brought.add_keys([("GEMINI_API_KEY", "g-secret")], Bearer::Client);
    brought.add_keys([("ANTHROPIC_API_KEY", "a-secret")], Bearer::Client);
    brought.add_keys([("GEMINI_API_KEY", "g-other")], Bearer::Client);
    assert_eq!(brought.default_model().unwrap(), "gemini/gemini-flash-latest");
    let together = catalogue("", "", &[]);
    together.add_keys([("GEMINI_API_KEY", "g-secret"), ("ANTHROPIC_API_KEY", "a-secret")], Bearer::Client);
    assert_eq!(together.default_model().unwrap(), "anthropic/claude-sonnet-5");
}

#[test]
fn only_names_that_a_provider_gave_or_that_belong_to_its_address_are_listed_as_known() {
    let names = |catalogue: &Catalogue, provider: &str| {
        let entry = &catalogue.entries[provider];
        let first = catalogue.row(provider, entry, entry.model.as_deref().unwrap_or("MODEL"));
        let rows = catalogue.kept_rows(provider, &first);
        rows.into_iter().map(|row| row.model).collect::<Vec<_>>()
    };
    // Another server at a preset's name, and one without a default model: nothing is known before they are asked.
    let moved = "[openai]\nkind = 'openai'\nbase_url = 'http://127.0.0.1:9/v1'\n[resp]\nkind = 'openai'\nbase_url = 'http://h/v1'";
    let catalogue = catalogue(moved, "", &[("ANTHROPIC_API_KEY", "a-secret")]);
    assert_eq!((names(&catalogue, "openai"), names(&catalogue, "resp")), (vec![], vec![]));
    assert!(names(&catalogue, "anthropic").contains(&"anthropic/claude-sonnet-5".to_owned()));
    let listed = |name: &str| Listed { name: name.to_owned(), facts: ModelInfo::default() };
    catalogue.keep_list("openai", &[listed("mock")]);
    catalogue.keep_list("resp", &[listed("a"), listed("b")]);
    assert_eq!(names(&catalogue, "openai"), ["openai/mock"]);
    assert_eq!(names(&catalogue, "resp"), ["resp/a", "resp/b"]);
}

#[test]
fn a_word_of_a_models_name_is_suggested_and_not_taken() {
    let catalogue = catalogue("", "", &[("ANTHROPIC_API_KEY", "a-secret")]);
    let error = catalogue.resolve("sonnet").unwrap_err().to_string();
    assert!(error.contains("anthropic/claude-sonnet-5"), "{error}");
}

#[test]
fn a_models_own_fields_have_their_sources_and_a_variable_that_is_not_set_is_named() {
    let config = "[work]\nkind = 'openai'\nbase_url = 'http://w'\nbody = { temperature = 0.5 }
        headers = { 'x-team' = 'blue', 'x-token' = { env = 'WORK_TOKEN' } }\nquery = { sig = { command = 'sign' } }";
    let plain = catalogue(config, "", &[]);
    assert!(plain.wanted().contains(&"WORK_TOKEN".to_owned()));
    let missing = plain.resolve("work/m").unwrap_err().to_string();
    assert_eq!(missing, "`x-token` of the provider `work` needs a value: set WORK_TOKEN");
    plain.add_keys([("WORK_TOKEN", "t-secret")], Bearer::Client);
    let resolved = plain.resolve("work/m").unwrap();
    let sources: Vec<KeySource> = resolved.sources().cloned().collect();
    assert_eq!(sources, [KeySource::None, known("t-secret"), KeySource::Command("sign".to_owned())]);
    assert_eq!(resolved.body["temperature"], 0.5);
    let secrets = Secrets { key: None, fields: vec![Secret::new("t-secret"), Secret::new("a-signature")] };
    let Provider::Http(endpoint) = resolved.open(secrets) else { panic!() };
    let names: Vec<&str> = endpoint.fields.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["x-team", "x-token", "sig"]);
    assert_eq!(endpoint.redactor.redact("t-secret a-signature blue"), "<redacted> <redacted> blue");
}

#[test]
fn a_refused_parameter_is_left_out_of_requests_to_that_model_alone() {
    let plain = catalogue("[work]\nkind = 'openai'\nbase_url = 'http://w'\ncompat = { stream_usage = true }", "", &[]);
    let schema = serde_json::json!({ "type": "object" });
    assert_eq!(plain.schema_strategy("work/m", &schema), SchemaStrategy::WithTools);
    assert!(plain.leave_out("work/m", Parameter::Schema) && !plain.leave_out("work/m", Parameter::Schema));
    assert_eq!(plain.schema_strategy("work/m", &schema), SchemaStrategy::PromptOnly);
    assert_eq!(plain.schema_strategy("work/n", &schema), SchemaStrategy::WithTools);
    assert!(!plain.leave_out("work/m", Parameter::StreamUsage), "the configuration insists on it");
    assert!(!plain.leave_out("work/m", Parameter::Tools));
}

#[test]
fn hosted_tools_are_refused_to_models_that_take_none_beside_others() {
    let on = "
        [gemini]\nhosted_tools = ['code_execution']
        [vertex]\nbase_url = 'https://aiplatform.googleapis.com/v1/projects/p/locations/global'\nhosted_tools = ['web_search']
        [mine]\nkind = 'gemini'\napi_key_env = 'GEMINI_API_KEY'\nhosted_tools = ['web_search']\ncompat = { hosted_with_tools = true }";
    let catalogue = catalogue(on, "", &[("GEMINI_API_KEY", "k-secret")]);
    check(&catalogue, "gemini", Ok(("gemini/gemini-flash-latest", known("k-secret"))));
    check(
        &catalogue,
        "gemini/gemini-2.5-pro",
        Err(
            "gemini-2.5-pro cannot combine code_execution with other tools: choose a model from Gemini 3 on, or remove `hosted_tools` from [providers.gemini]",
        ),
    );
    check(
        &catalogue,
        "vertex/gemini-3-pro",
        Err("Vertex AI cannot combine web_search with other tools: remove `hosted_tools` from [providers.vertex]"),
    );
    check(&catalogue, "mine/gemini-2.5-pro", Ok(("mine/gemini-2.5-pro", known("k-secret"))));
}

#[test]
fn the_default_is_what_is_configured_or_what_has_a_key() {
    check(
        &catalogue("", "", &[]),
        "",
        Err(
            "no model: set ANTHROPIC_API_KEY or OPENAI_API_KEY or GEMINI_API_KEY (`linger models` lists more, local servers included), or name one in config.toml, or use the scripted model `demo`",
        ),
    );
    check(&catalogue("", "", &[("OPENAI_API_KEY", "o")]), "", Ok(("openai/gpt-5", known("o"))));
    let both = [("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a")];
    check(&catalogue("", "", &both), "", Ok(("anthropic/claude-sonnet-5", known("a"))));
    check(&catalogue("", "openai/x", &both), "", Ok(("openai/x", known("o"))));
    check(&catalogue(WORK, "", &[]), "", Ok(("local/qwen/3", KeySource::None)));
}

#[test]
fn a_vendors_key_goes_to_the_vendor_unless_somebody_says_otherwise() {
    let keys = [("OPENAI_API_KEY", "o")];
    let elsewhere = catalogue("[openai]\nbase_url = 'http://proxy.example/v1'", "", &keys);
    check(&elsewhere, "openai", Ok(("openai/gpt-5", KeySource::None)));
    let said = "[openai]\nbase_url = 'http://proxy.example/v1'\napi_key_env = 'OPENAI_API_KEY'";
    check(&catalogue(said, "", &keys), "openai", Ok(("openai/gpt-5", known("o"))));
    let plain = catalogue("[openai]\nbase_url = 'http://api.openai.com/v1'", "", &keys);
    check(&plain, "openai", Ok(("openai/gpt-5", KeySource::None)));
    let unsent = |catalogue: &Catalogue, spec: &str| catalogue.resolve(spec).unwrap().without_key();
    assert_eq!(
        unsent(&elsewhere, "openai").unwrap(),
        "no key was sent, as base_url is an address of your own: api_key_env = \"OPENAI_API_KEY\" in [providers.openai] sends that one"
    );
    assert_eq!(unsent(&catalogue(said, "", &keys), "openai"), None);
    assert_eq!(unsent(&catalogue("", "", &keys), "openai"), None);
    let plain = unsent(&catalogue(WORK, "", &[]), "local/m").unwrap();
    assert_eq!(plain, "no key was sent: api_key_env in [providers.local] names the variable of one");
}

#[test]
fn a_key_that_is_opened_is_then_redacted() {
    let catalogue = catalogue(WORK, "", &[]);
    let key = Some(Secret::new("s3cr3t-key\n"));
    let Provider::Http(endpoint) = catalogue.resolve("pass").unwrap().open(key.into()) else { panic!() };
    assert_eq!(endpoint.key, Some(Secret::new("s3cr3t-key")));
    assert_eq!(endpoint.redactor.redact("bad key s3cr3t-key"), "bad key <redacted>");
    assert!(!format!("{endpoint:?}").contains("s3cr3t"));
}

#[tokio::test]
async fn the_list_says_what_is_ready() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let rows = catalogue(WORK, "local", &[]).list().await;
    let row = |name: &str| {
        let row = rows.iter().find(|row| row.model.starts_with(&format!("{name}/"))).unwrap();
        (row.model.as_str(), row.kind.as_str(), row.missing.as_deref(), row.default)
    };
    for expect in [
        ("anthropic/claude-sonnet-5", "anthropic", Some("ANTHROPIC_API_KEY"), false),
        ("demo/demo", "demo", None, false),
        ("local/qwen/3", "openai", None, true),
        ("openai/gpt-5", "openai", Some("OPENAI_API_KEY"), false),
        ("pass/m", "anthropic", None, false),
        ("work/MODEL", "openai", Some("WORK_KEY"), false),
        ("vertex/MODEL", "gemini", Some("base_url"), false),
        ("groq/MODEL", "openai", Some("GROQ_API_KEY"), false),
    ] {
        assert_eq!(row(expect.0.split('/').next().unwrap()), expect);
    }
    let port = listener.local_addr().unwrap().port();
    assert_eq!(not_listening(&format!("http://127.0.0.1:{port}/v1")).await, None);
    drop(listener);
    let problem = format!("no server listens at 127.0.0.1:{port}");
    assert_eq!(not_listening(&format!("http://127.0.0.1:{port}/v1")).await, Some(problem));
}

#[test]
fn what_is_known_of_a_model_is_known_by_its_place() {
    let keys = [("ANTHROPIC_API_KEY", "a"), ("OPENAI_API_KEY", "o"), ("WORK_KEY", "w")];
    let config = format!(
        "{WORK}\n[gpt]\nkind = 'openai-responses'\n[ollama.compat]\nnum_ctx = 4096\n\
         [groq]\nbase_url = 'http://10.0.0.1/v1'"
    );
    let catalogue = catalogue(&config, "", &keys);
    let facts = |spec: &str| catalogue.resolve(spec).unwrap().facts;
    assert_eq!(facts("anthropic/claude-sonnet-5"), models::facts("anthropic", "claude-sonnet-5"));
    assert!(facts("anthropic").window.is_some());
    assert_eq!(facts("gpt/gpt-5"), models::facts("openai", "gpt-5"));
    assert_eq!(facts("work/gpt-5"), ModelInfo::default());
    let elsewhere = ModelInfo { prices: Prices::default(), ..models::facts("groq", "openai/gpt-oss-120b") };
    assert!(elsewhere.window.is_some());
    assert_eq!(facts("groq/openai/gpt-oss-120b"), elsewhere, "another place has other prices");
    assert_eq!(facts("ollama/x"), ModelInfo { window: Some(4096), ..ModelInfo::default() });
    assert_eq!(facts("demo").prices.usual, Price::FREE);
    let local = facts("local");
    assert_eq!((local.window, local.prices.usual.input, local.prices.usual.output), (Some(9000), Some(1.5), None));
}

#[test]
fn what_a_provider_lists_of_a_model_is_known_from_then_on() {
    let config = "[work]\nkind = 'openai'\nbase_url = 'http://w'\n[moves]\nkind = 'openai'\nbase_url = 'http://m'";
    let plain = catalogue(config, "", &[]);
    let usual = Price { input: Some(2.0), output: Some(3.0), ..Price::default() };
    let said = ModelInfo {
        window: Some(1000),
        max_output: Some(50),
        prices: Prices { usual, ..Prices::default() },
        ..ModelInfo::default()
    };
    let listed = ["x"].map(|name| Listed { name: name.to_owned(), facts: said });
    for provider in ["work", "moves", "ollama"] {
        plain.rows(provider, &Model::default(), &listed);
    }
    assert_eq!((plain.window("work/x"), plain.window("work/x-20260101")), (Some(1000), Some(1000)));
    assert_eq!(plain.window("work/y"), None);
    assert_eq!(plain.resolve("work/x").unwrap().facts, said);
    assert_eq!(plain.window("ollama/x"), Some(1000), "what is asked for, but no more than the model has");
    assert_eq!(plain.window("ollama/y"), Some(32_768));
    // They are stored for the next daemon, which takes those of the same address.
    let stored = serde_json::to_string(&plain.stored_lists()).unwrap();
    let next = catalogue(&config.replace("http://m", "http://elsewhere"), "", &[]);
    next.restore_lists(serde_json::from_str(&stored).unwrap());
    assert_eq!(next.resolve("work/x").unwrap().facts, said);
    assert_eq!((next.window("work/x"), next.window("moves/x")), (Some(1000), None));
    // The number in an error goes before the list, and a longer one changes nothing.
    next.learn_window("work/x", 900);
    assert_eq!(next.window("work/x"), Some(900));
    next.learn_window("work/x", 9000);
    assert_eq!(next.window("work/x"), Some(1000));
    // A new configuration takes them over for those that stay where they were.
    let moved = catalogue(&config.replace("http://m", "http://elsewhere"), "", &[]);
    moved.take_over(&plain);
    assert_eq!((moved.window("work/x"), moved.window("moves/x")), (Some(1000), None));
    // The user's word goes before the list.
    let mine = catalogue(WORK, "", &[]);
    let qwen = [Listed { name: "qwen/3".to_owned(), facts: said }];
    mine.rows("local", &Model::default(), &qwen);
    let facts = mine.resolve("local").unwrap().facts;
    assert_eq!((facts.window, facts.max_output), (Some(9000), Some(50)));
    assert_eq!((facts.prices.usual.input, facts.prices.usual.output), (Some(1.5), Some(3.0)));
}

#[test]
fn an_ollama_keeps_in_view_what_is_counted_for_its_window() {
    let providers: BTreeMap<String, ProviderConfig> =
        toml::from_str("[o]\nkind = 'ollama'\n[set]\nkind = 'ollama'\ncompat = { num_ctx = 65536 }").unwrap();
    let said = |window: u64| ModelConfig { context_window: Some(window), ..ModelConfig::default() };
    let models = [("o/large", 131_072), ("o/vast", 1_000_000_000), ("set/large", 131_072), ("set/small", 8192)];
    let models = models.into_iter().map(|(name, window)| (name.to_owned(), said(window))).collect();
    let catalogue = Catalogue::new(&providers, &models, None, Arc::default(), Arc::default());
    let hi = [user(vec![ContentBlock::text("hi")])];
    let check = |spec: &str, expect: u64| {
        let resolved = catalogue.resolve(spec).unwrap();
        let Provider::Http(endpoint) = resolved.open(None.into()) else { panic!("{spec}") };
        let body = Encoding::default().encode(endpoint.codec.as_ref(), &request(&hi)).body;
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["options"]["num_ctx"], expect, "{spec}");
        assert_eq!((resolved.facts.window, catalogue.window(spec)), (Some(expect), Some(expect)), "{spec}");
    };
    check("o/any", 32_768);
    check("o/large", 131_072);
    check("o/vast", 1_000_000_000);
    // What the provider's table allows is the most.
    check("set/any", 65_536);
    check("set/large", 65_536);
    check("set/small", 8192);
    let unsaid = Catalogue::new(&providers, &BTreeMap::new(), None, Arc::default(), Arc::default());
    let digest = |of: &Catalogue| of.resolve("o/large").unwrap().setup("", ToolSpecs::none()).digest;
    assert_ne!(digest(&catalogue), digest(&unsaid), "an event names the change");
}

#[test]
fn an_effort_that_changes_nothing_is_named() {
    let config = "[mistral]\n[ali]\nkind = 'openai'\nbase_url = 'http://a/v1'\ncompat = { reasoning_effort = false }\n\
                  [a]\nkind = 'anthropic'\nbase_url = 'http://a'\n[o]\nkind = 'openai'\nbase_url = 'http://a/v1'";
    let catalogue = catalogue(config, "", &[("MISTRAL_API_KEY", "k")]);
    let check = |spec: &str, effort: Effort, expect: &str| {
        assert_eq!(catalogue.resolve(spec).unwrap().idle_effort(effort).unwrap_or_default(), expect, "{spec}");
    };
    check("ali/q", Effort::None, "ali/q does not support effort: none has no effect");
    check("mistral/m", Effort::High, "mistral/m does not support effort: high has no effect");
    check(
        "a/claude-3-5-haiku-latest",
        Effort::Max,
        "a/claude-3-5-haiku-latest does not support effort: max has no effect",
    );
    check("a/claude-3-5-haiku-latest", Effort::None, "");
    check("a/claude-opus-4-1", Effort::Low, "");
    check("ali/q", Effort::Auto, "");
    check("o/q", Effort::None, "");
    check("ollama/q", Effort::None, "");
}

#[test]
fn an_answer_may_be_as_long_as_its_model_gives_and_no_longer() {
    let providers: BTreeMap<String, ProviderConfig> = toml::from_str(
        "[anthropic]\napi_key_env = 'K'\n[long]\nkind = 'anthropic'\napi_key_env = 'K'\nmax_tokens = 200000
         [short]\nkind = 'anthropic'\napi_key_env = 'K'\nmax_tokens = 5000\n[work]\nkind = 'openai'\nbase_url = 'http://w'
         [cut]\nkind = 'openai'\nbase_url = 'http://w'\nmax_tokens = 9000\n[zero]\nkind = 'anthropic'\napi_key_env = 'K'\nmax_tokens = 0",
    )
    .unwrap();
    let said = |max_output: u64| ModelConfig { max_output: Some(max_output), ..ModelConfig::default() };
    let models = [("anthropic/mine", 8192), ("work/m", 8192), ("cut/m", 8192), ("anthropic/vast", 1_000_000_000)];
    let models = models.into_iter().map(|(name, most)| (name.to_owned(), said(most))).collect();
    let catalogue = Catalogue::new(&providers, &models, None, Arc::default(), Arc::default());
    catalogue.add_keys([("K", "k-secret")], Bearer::Daemon);
    let check = |spec: &str, expect: u32| assert_eq!(catalogue.resolve(spec).unwrap().max_tokens, expect, "{spec}");
    check("anthropic/claude-sonnet-5", 128_000);
    check("anthropic/claude-haiku-4-5-20251001", 64_000);
    check("anthropic/mine", 8192);
    check("anthropic/vast", 1_000_000_000);
    check("anthropic/nobody-knows", 0);
    check("long/claude-sonnet-5", 128_000);
    check("long/nobody-knows", 200_000);
    check("short/claude-sonnet-5", 5000);
    check("zero/claude-sonnet-5", 128_000);
    // What the others may say is left to their providers, unless somebody limits it.
    check("work/m", 0);
    check("cut/m", 8192);
    check("cut/x", 9000);
}

#[test]
fn presets_know_their_addresses_keys_and_flags() {
    fn check(config: &str, name: &str, expect: (ProviderKind, &str, Option<&str>, Option<&str>)) -> Compat {
        let catalogue = catalogue(config, "", &[]);
        let entry = &catalogue.entries[name];
        let got = (entry.kind, entry.base_url.as_str(), entry.variable.as_deref(), entry.command.as_deref());
        assert_eq!(got, expect, "{config} {name}");
        entry.compat
    }
    use ProviderKind::{Gemini, Ollama, Openai, OpenaiResponses};
    let groq = "https://api.groq.com/openai/v1";
    check("", "groq", (Openai, groq, Some("GROQ_API_KEY"), None));
    check("[groq]\nmodel = 'x'", "groq", (Openai, groq, Some("GROQ_API_KEY"), None));
    let responses = (OpenaiResponses, "https://api.openai.com/v1", Some("OPENAI_API_KEY"), None);
    check("[openai]\nkind = 'openai-responses'", "openai", responses);
    check("[gpt]\nkind = 'openai-responses'", "gpt", responses);
    // With another kind a preset keeps its address and its key: nothing goes to that kind's vendor.
    let vllm = (OpenaiResponses, "http://127.0.0.1:8000/v1", Some("VLLM_API_KEY"), None);
    let flags = check("[vllm]\nkind = 'openai-responses'", "vllm", vllm);
    assert_eq!((flags.prompt_cache_key, flags.schema_with_tools), (None, Some(false)));
    let litellm = (ProviderKind::Anthropic, "http://127.0.0.1:4000/v1", Some("LITELLM_API_KEY"), None);
    check("[litellm]\nkind = 'anthropic'", "litellm", litellm);
    check("[ollama]\nkind = 'openai'", "ollama", (Openai, "http://127.0.0.1:11434", Some("OLLAMA_API_KEY"), None));
    check("", "ollama", (Ollama, "http://127.0.0.1:11434", Some("OLLAMA_API_KEY"), None));
    // An address is as good as a name, and a name keeps its flags at another address.
    let there = "[mine]\nkind = 'openai'\nbase_url = 'https://api.deepseek.com/v1'";
    let flags = check(there, "mine", (Openai, "https://api.deepseek.com/v1", Some("DEEPSEEK_API_KEY"), None));
    assert_eq!(flags.reasoning_content, Some(true));
    let proxied = "[deepseek]\nbase_url = 'http://10.0.0.1/v1'\ncompat = { tool_result_name = true }";
    let flags = check(proxied, "deepseek", (Openai, "http://10.0.0.1/v1", None, None));
    assert_eq!((flags.reasoning_content, flags.tool_result_name), (Some(true), Some(true)));
    let off = check(
        "[deepseek]\ncompat = { reasoning_content = false }",
        "deepseek",
        (Openai, "https://api.deepseek.com", Some("DEEPSEEK_API_KEY"), None),
    );
    assert_eq!(off.reasoning_content, Some(false));
    let region = "https://europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/europe-west1";
    let token = Some("gcloud auth print-access-token");
    let flags = check(&format!("[vertex]\nbase_url = '{region}'"), "vertex", (Gemini, region, None, token));
    assert_eq!(flags.vertex, Some(true));
    let own = format!("[vertex]\nbase_url = '{region}'\napi_key_command = 'token'");
    check(&own, "vertex", (Gemini, region, None, Some("token")));
}

#[test]
fn a_local_server_needs_no_key_and_vertex_needs_a_project() {
    let plain = catalogue("", "", &[]);
    check(&plain, "ollama/qwen3", Ok(("ollama/qwen3", KeySource::None)));
    let with_key = catalogue("", "", &[("OLLAMA_API_KEY", "k-secret")]);
    check(&with_key, "ollama/qwen3", Ok(("ollama/qwen3", known("k-secret"))));
    let needed = catalogue("[ollama]\napi_key_env = 'MINE'", "", &[]);
    check(
        &needed,
        "ollama/x",
        Err("the provider `ollama` needs a key: set MINE, or store it with `linger key set ollama`"),
    );
    let address = "the provider `vertex` has no address: set `base_url` in [providers.vertex], such as \
                   \"https://aiplatform.googleapis.com/v1/projects/PROJECT/locations/global\"";
    check(&plain, "vertex/gemini-x", Err(address));
}

#[test]
fn mistakes_in_the_configuration_are_named() {
    fn check(config: &str, key: &str) {
        let config: ProviderConfig = toml::from_str(config).unwrap();
        assert_eq!(config.check("work").unwrap_err().0, key);
    }
    check("", "kind");
    check("kind = 'openai'\nbase_url = 'localhost:4000'", "base_url");
    check("kind = 'openai'\nbase_url = '/v1'", "base_url");
    check("kind = 'openai'\napi_key_env = 'A'\napi_key_command = 'b'", "api_key_command");
    check("kind = 'openai'\ncompat = { num_ctx = 9 }", "compat");
    check("kind = 'ollama'\ncompat = { num_ctx = 0 }", "compat");
    assert!(toml::from_str::<ProviderConfig>("api_key = 'oops'").is_err());
    let demo: ProviderConfig = toml::from_str("kind = 'openai'").unwrap();
    assert_eq!(demo.check("demo").unwrap_err().0, "base_url");
}
