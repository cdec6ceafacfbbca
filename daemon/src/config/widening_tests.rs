//! Which changes of each key wait, and what is in force meanwhile.

use serde_json::json;

use super::*;

fn settings(text: &str) -> Value {
    toml::from_str(text).unwrap()
}

/// From what is confirmed to what is found: the settings in force, and what waits.
#[track_caller]
fn check(confirmed: &str, found: &str, in_force: &str, waits: &[&str]) {
    let merged = merge(&settings(confirmed), &settings(found));
    let texts: Vec<&str> = merged.changes.iter().map(|change| change.text.as_str()).collect();
    assert_eq!((&merged.in_force, texts), (&settings(in_force), waits.to_vec()), "{confirmed:?} -> {found:?}");
    // Confirming all of it, at once or one by one, leaves nothing to wait.
    assert_eq!(merge(&confirmable(&settings(found)), &settings(found)).changes, []);
    let one_by_one = with(&confirmable(&merged.in_force), &merged.changes);
    assert_eq!(merge(&one_by_one, &settings(found)), Merged { in_force: settings(found), changes: vec![] });
    // What is in force is what counts as confirmed from then on.
    assert_eq!(merge(&confirmable(&merged.in_force), &settings(found)), merged);
}

/// A change that counts at once.
#[track_caller]
fn counts(confirmed: &str, found: &str) {
    check(confirmed, found, found, &[]);
}

#[test]
fn a_mode_that_asks_less_waits_and_one_that_asks_more_counts_at_once() {
    let auto = r#"mode: "auto", new (everything runs without asking)"#;
    check("", "mode = 'auto'", "", &[auto]);
    let edit = r#"mode: "auto" in place of "edit" (everything runs without asking)"#;
    check("mode = 'edit'", "mode = 'auto'", "mode = 'edit'", &[edit]);
    let unset = r#"mode: no longer "plan" (changes are no longer refused, but ask)"#;
    check("mode = 'plan'", "", "mode = 'plan'", &[unset]);
    counts("mode = 'auto'", "mode = 'ask'");
    counts("mode = 'auto'", "");
    counts("", "mode = 'plan'");
    counts("mode = 'ask'", "");
}

#[test]
fn a_rule_that_allows_more_waits_and_one_that_allows_less_counts_at_once() {
    check(
        "[permissions]\nallow = ['ls']",
        "[permissions]\nallow = ['bash(rm)', 'ls']\ndeny = ['edit']",
        "[permissions]\nallow = ['ls']\ndeny = ['edit']",
        &[r#"permissions.allow: add "bash(rm)" (runs without asking)"#],
    );
    check(
        "[permissions]\nask = ['bash(git push:*)']\ndeny = ['read(**/.env)', 'x']",
        "[permissions]\ndeny = ['x']",
        "[permissions]\ndeny = ['x', 'read(**/.env)']\nask = ['bash(git push:*)']",
        &[
            r#"permissions.deny: remove "read(**/.env)" (is no longer refused)"#,
            r#"permissions.ask: remove "bash(git push:*)" (no longer asks)"#,
        ],
    );
    counts("[permissions]\nallow = ['a', 'b']\nask = ['c']", "[permissions]\nallow = ['b']\nask = ['c', 'd']");
    counts("[permissions]\nask = ['a']", "[permissions]\ndeny = ['a']");
    counts("[permissions]\nallow = ['a', 'b']", "[permissions]\nallow = ['b', 'a']");
    check(
        "[workspaces.'/w']\nallow = ['a']",
        "[workspaces.'/w']\nallow = ['a']\n[workspaces.'/v']\nallow = ['a']",
        "[workspaces.'/w']\nallow = ['a']\n[workspaces.'/v']\nallow = []",
        &[r#"workspaces."/v".allow: add "a" (runs there without asking)"#],
    );
    counts("[workspaces.'/w']\nallow = ['a']", "");
}

#[test]
fn a_variable_more_for_tools_waits() {
    check(
        "[env]\ndeny = ['GIT_DIR']",
        "[env]\npass = ['AWS_SECRET_ACCESS_KEY']",
        "[env]\npass = []\ndeny = ['GIT_DIR']",
        &[
            r#"env.pass: add "AWS_SECRET_ACCESS_KEY" (tools get this variable)"#,
            r#"env.deny: remove "GIT_DIR" (tools get this variable)"#,
        ],
    );
    counts("[env]\npass = ['X']", "[env]\ndeny = ['Y']");
}

#[test]
fn where_a_key_goes_waits_as_a_whole() {
    const WORK: &str = "[providers.work]\nkind = 'openai'\nbase_url = 'http://a'\napi_key_env = 'W'\nmax_tokens = 7";
    check(
        WORK,
        "[providers.work]\nkind = 'openai'\nbase_url = 'http://evil'\napi_key_env = 'W'\nmax_tokens = 8",
        "[providers.work]\nkind = 'openai'\nbase_url = 'http://a'\napi_key_env = 'W'\nmax_tokens = 8",
        &[r#"providers.work.base_url: "http://evil" in place of "http://a" (where its key goes)"#],
    );
    // The command that was confirmed for one variable is not mixed with another address.
    check(
        WORK,
        "[providers.work]\nkind = 'openai'\nbase_url = 'http://b'\napi_key_command = 'env > leak'",
        "[providers.work]\nkind = 'openai'\nbase_url = 'http://a'\napi_key_env = 'W'",
        &[
            r#"providers.work.api_key_command: "env > leak", new (a command that linger runs to get the key, which goes to http://b)"#,
            r#"providers.work.base_url: "http://b" in place of "http://a" (where its key goes)"#,
            r#"providers.work.api_key_env: no longer "W" (the key in this variable)"#,
        ],
    );
    // A provider that nobody confirmed does not exist.
    check(
        "",
        "[providers.evil]\nkind = 'openai'\nbase_url = 'http://evil'\napi_key_env = 'ANTHROPIC_API_KEY'\nmax_tokens = 1",
        "[providers]",
        &[
            r#"providers.evil.api_key_env: "ANTHROPIC_API_KEY", new (the key in this variable, which goes to http://evil)"#,
            r#"providers.evil.base_url: "http://evil", new (where its key goes)"#,
            r#"providers.evil.kind: "openai", new (how its key is sent, which goes to http://evil)"#,
        ],
    );
    // A preset stays as it is.
    check(
        "",
        "[providers.anthropic]\nbase_url = 'http://evil'\nmodel = 'm'",
        "[providers.anthropic]\nmodel = 'm'",
        &[r#"providers.anthropic.base_url: "http://evil", new (where its key goes)"#],
    );
    check(
        WORK,
        "[providers.work]\nkind = 'openai'\nbase_url = 'http://a'\napi_key_env = 'W'\nmax_tokens = 7\n\
         headers = { x = { command = 'env > leak' } }",
        WORK,
        &[
            r#"providers.work.headers: {"x":{"command":"env > leak"}}, new (sent with its requests, which goes to http://a)"#,
        ],
    );
    // Without a key nothing goes anywhere; with less of it, neither.
    counts("", "[providers.local]\nkind = 'openai'\nbase_url = 'http://10.0.0.5/v1'");
    counts("", "[providers.anthropic]\nmodel = 'm'\nmax_tokens = 1");
    counts(WORK, "");
    counts(WORK, "[providers.work]\nkind = 'openai'\nbase_url = 'http://a'");
}

#[test]
fn a_provider_cannot_be_moved_in_steps() {
    let mut confirmed = settings("[providers.work]\nkind = 'openai'\nbase_url = 'http://a'\napi_key_env = 'W'");
    for (found, waits) in [
        ("[providers.work]\nkind = 'openai'\nbase_url = 'http://evil'", true),
        ("", false),
        ("[providers.work]\nkind = 'openai'\nbase_url = 'http://evil'", false),
        ("[providers.work]\nkind = 'openai'\nbase_url = 'http://evil'\napi_key_env = 'W'", true),
    ] {
        let merged = merge(&confirmed, &settings(found));
        assert_eq!(!merged.changes.is_empty(), waits, "{found}");
        confirmed = confirmable(&merged.in_force);
    }
    assert_eq!(confirmed["providers"]["work"].get("api_key_env"), None);
}

#[test]
fn proxies_certificates_and_programs_wait() {
    check(
        "",
        "[network]\nproxy = 'http://p'\nca_file = '/ca.pem'",
        "[network]",
        &[
            r#"network.ca_file: "/ca.pem", new (trusted certificates)"#,
            r#"network.proxy: "http://p", new (where requests go)"#,
        ],
    );
    check(
        "[network]\nproxy = 'socks5h://tor'\nca_file = '/ca.pem'",
        "",
        "[network]\nproxy = 'socks5h://tor'",
        &[r#"network.proxy: no longer "socks5h://tor" (where requests go)"#],
    );
    check(
        "[mcp.files]\ncommand = 'npx'",
        "[mcp.files]\ncommand = 'sh'\nargs = ['-c', 'x']",
        "[mcp.files]\ncommand = 'npx'",
        &[
            r#"mcp.files: {"args":["-c","x"],"command":"sh"} in place of {"command":"npx"} (an MCP server that linger starts or calls)"#,
        ],
    );
    counts("[mcp.files]\ncommand = 'npx'", "");
    // What it may do with sessions is taken away at once, and given by a person.
    let (speaks, mute) = ("[mcp.s]\ncommand = 'x'\ncan = ['speak']", "[mcp.s]\ncommand = 'x'");
    counts(speaks, mute);
    counts("[mcp.s]\ncommand = 'x'\ncan = ['observe', 'speak']", speaks);
    let more = r#"mcp.s: {"can":["speak"],"command":"x"} in place of {"command":"x"} (an MCP server that linger starts or calls; `can` lets it work with sessions)"#;
    check(mute, speaks, mute, &[more]);
    let other = r#"mcp.s: {"command":"y"} in place of {"command":"x"} (an MCP server that linger starts or calls)"#;
    check(speaks, "[mcp.s]\ncommand = 'y'", mute, &[other]);
}

#[test]
fn each_key_that_widens_waits_by_itself() {
    // What is confirmed, and the one line of the file that widens it.
    for (confirmed, found) in [
        ("", "mode = 'edit'"),
        ("", "tools.fetch_private = ['h']"),
        ("", "env.pass = ['X']"),
        ("env.deny = ['X']", ""),
        ("", "permissions.allow = ['x']"),
        ("permissions.ask = ['x']", ""),
        ("permissions.deny = ['x']", ""),
        ("", "workspaces.'/w'.allow = ['x']"),
        ("workspaces.'/w'.deny = ['x']", "workspaces.'/w'.deny = []"),
        ("", "providers.openai.kind = 'openai-responses'"),
        ("", "providers.openai.base_url = 'http://evil'"),
        ("", "providers.openai.api_key_env = 'X'"),
        ("", "providers.openai.api_key_command = 'x'"),
        ("", "providers.openai.headers = { x = 'y' }"),
        ("", "providers.openai.query = { x = 'y' }"),
        ("", "models.'a/b'.headers = { x = { command = 'y' } }"),
        ("", "models.'a/b'.query = { x = { command = 'y' } }"),
        ("", "network.proxy = 'http://p'"),
        ("network.proxy = 'http://p'", ""),
        ("", "network.no_proxy = 'x'"),
        ("", "network.proxy_loopback = true"),
        ("", "network.ca_file = '/x'"),
        ("", "hooks = [{ on = 'turn_end', command = 'x' }]"),
        ("", "attention.command = 'x'"),
        ("", "attention.desktop = true"),
        ("", "gateway.listen = '0.0.0.0:1'"),
        ("", "gateway.public_url = 'https://x'"),
        ("", "gateway.origins = ['https://x']"),
        ("", "files.'x.md' = 'sha256:0'"),
        ("files.'x.md' = 'sha256:0'", "files.'x.md' = 'sha256:1'"),
        ("", "mcp.x.command = 'x'"),
    ] {
        let merged = merge(&settings(confirmed), &settings(found));
        assert_eq!(merged.changes.len(), 1, "{confirmed:?} -> {found:?}: {merged:?}");
        let in_force = merge(&settings(confirmed), &merged.in_force);
        assert_eq!(in_force.changes, [], "{confirmed:?} -> {found:?}: {merged:?}");
    }
}

#[test]
fn a_key_that_is_not_classified_waits() {
    check("", "later = 1", "", &["later: 1, new"]);
    check("later = 1", "", "later = 1", &["later: no longer 1"]);
}

#[test]
fn what_was_narrowed_waits_when_it_widens_again() {
    let merged = merge(&settings("[permissions]\nallow = ['a']"), &settings("[permissions]\nallow = []"));
    let again = merge(&confirmable(&merged.in_force), &settings("[permissions]\nallow = ['a']"));
    assert_eq!(again.changes.len(), 1);
}

#[test]
fn only_what_widens_is_kept_as_confirmed() {
    let text = "model = 'm'\nmode = 'auto'\n[tools]\nbash_timeout_s = 1\n[providers.a]\nkind = 'openai'\nmodel = 'm'";
    assert_eq!(confirmable(&settings(text)), settings("mode = 'auto'\n[providers.a]\nkind = 'openai'"));
    assert_eq!(confirmable(&settings("model = 'm'")), json!({}));
}

mod keys {
    //! Every key of the configuration has a row: the keys come from the types that it is read into.

    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use serde::de::value::{BorrowedStrDeserializer, Error, StringDeserializer};
    use serde::de::{DeserializeSeed, EnumAccess, Error as _, MapAccess, SeqAccess, VariantAccess, Visitor};
    use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

    use super::super::row;
    use crate::config::ConfigFile;

    /// Gives a type whatever it asks for, and notes the paths of what is no table.
    struct Asks<'a>(Vec<String>, &'a RefCell<BTreeSet<Vec<String>>>);

    impl Asks<'_> {
        fn key(&self) {
            self.1.borrow_mut().insert(self.0.clone());
        }
    }

    struct Fields<'a> {
        names: Vec<&'static str>,
        at: Asks<'a>,
        last: &'static str,
    }

    impl<'de> MapAccess<'de> for Fields<'_> {
        type Error = Error;

        fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
            let Some(name) = self.names.pop() else { return Ok(None) };
            self.last = name;
            seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
        }

        fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
            let path = self.at.0.iter().cloned().chain([self.last.to_owned()]).collect();
            seed.deserialize(Asks(path, self.at.1))
        }
    }

    struct Nothing;

    impl<'de> SeqAccess<'de> for Nothing {
        type Error = Error;

        fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, _: T) -> Result<Option<T::Value>, Error> {
            Ok(None)
        }
    }

    struct First(&'static str);

    impl<'de> EnumAccess<'de> for First {
        type Error = Error;
        type Variant = Self;

        fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
            let name = self.0.to_owned();
            Ok((seed.deserialize(StringDeserializer::new(name))?, self))
        }
    }

    impl<'de> VariantAccess<'de> for First {
        type Error = Error;

        fn unit_variant(self) -> Result<(), Error> {
            Ok(())
        }

        fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Error> {
            Err(Error::custom("give the test a variant without content"))
        }

        fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Error> {
            Err(Error::custom("give the test a variant without content"))
        }

        fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Error> {
            Err(Error::custom("give the test a variant without content"))
        }
    }

    impl<'de> Deserializer<'de> for Asks<'_> {
        type Error = Error;

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Error> {
            visitor.visit_map(Fields { names: fields.to_vec(), at: self, last: "" })
        }

        fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.visit_map(Fields { names: vec!["*"], at: self, last: "" })
        }

        fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.key();
            visitor.visit_none()
        }

        fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.key();
            visitor.visit_seq(Nothing)
        }

        fn deserialize_enum<V: Visitor<'de>>(
            self,
            _: &'static str,
            variants: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Error> {
            self.key();
            visitor.visit_enum(First(variants[0]))
        }

        fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.key();
            visitor.visit_bool(true)
        }

        fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.key();
            visitor.visit_str("x")
        }

        fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.deserialize_string(visitor)
        }

        fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.key();
            visitor.visit_unit()
        }

        fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.deserialize_string(visitor)
        }

        fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.key();
            visitor.visit_u64(1)
        }

        fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.deserialize_u8(visitor)
        }

        fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.deserialize_u8(visitor)
        }

        fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.deserialize_u8(visitor)
        }

        forward_to_deserialize_any! {
            i8 i16 i32 i64 i128 u128 f32 f64 char bytes byte_buf unit unit_struct newtype_struct tuple tuple_struct
            identifier
        }
    }

    #[test]
    fn every_key_of_the_configuration_is_classified() {
        let asked = RefCell::default();
        ConfigFile::deserialize(Asks(Vec::new(), &asked)).unwrap_or_else(|error| panic!("{error}"));
        let keys = asked.into_inner();
        assert!(keys.len() > 50 && keys.contains(["providers", "*", "compat", "vertex"].map(str::to_owned).as_slice()));
        // A row of the key itself, or of a table that counts as a whole.
        let is_classified = |key: &&Vec<String>| (1..=key.len()).any(|depth| row(&key[..depth]).is_some());
        let missing: Vec<_> = keys.iter().filter(|key| !is_classified(key)).map(|key| key.join(".")).collect();
        assert_eq!(missing, [""; 0], "give each of these a row in KEYS: does a change of it widen what may happen?");
        let rows = super::super::KEYS.iter().map(|(pattern, ..)| pattern.split('.').collect::<Vec<_>>());
        let is_there = |row: &Vec<&str>| keys.iter().any(|key| row.iter().zip(key).all(|(row, key)| row == key));
        // The hashes of a workspace's files are no key that a file has.
        let gone: Vec<_> = rows.filter(|row| row.first() != Some(&crate::config::FILES) && !is_there(row)).collect();
        assert!(gone.is_empty(), "no such keys: {gone:?}");
    }
}
