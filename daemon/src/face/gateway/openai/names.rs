//! Names of models as strangers write them: the aliases of `[gateway.models]`, and models of the default provider without its name.

use linger_protocol::daemon::Model;
use serde_json::json;

use crate::face::gateway::client::Client;
use crate::face::gateway::reply::Failure;

/// The name that the daemon knows; `asked` itself if nothing here says otherwise.
pub(super) async fn resolved(client: &mut Client, asked: &str) -> Result<String, Failure> {
    let (name, tools) = asked.split_at(asked.find('|').unwrap_or(asked.len()));
    let name = name.trim();
    if let Some(model) = client.gateway.models.get(name) {
        return Ok(format!("{model}{tools}"));
    }
    if name.is_empty() || name.contains('/') {
        return Ok(asked.to_owned());
    }
    let rows: Vec<Model> = client.wire.get("model/list", json!({ "all": true })).await?;
    Ok(of_default(&rows, name).map_or_else(|| asked.to_owned(), |model| format!("{model}{tools}")))
}

/// The default provider's model of this name; absent if it has none, or if a provider is called so.
fn of_default(rows: &[Model], name: &str) -> Option<String> {
    let provider = |row: &Model| row.model.split('/').next().unwrap_or_default().to_owned();
    if rows.iter().any(|row| provider(row) == name) {
        return None;
    }
    let default = provider(rows.iter().find(|row| row.default)?);
    let model = format!("{default}/{name}");
    rows.iter().any(|row| row.model == model).then_some(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_provider_is_the_default_providers() {
        let row = |model: &str, default| Model { model: model.to_owned(), default, ..Model::default() };
        let rows = [row("demo/demo", false), row("work/m", true), row("work/vendor/n", false), row("other/o", false)];
        assert_eq!(of_default(&rows, "m").as_deref(), Some("work/m"));
        assert_eq!(of_default(&rows, "o"), None, "of another provider");
        assert_eq!(of_default(&rows, "demo"), None, "a provider alone is its default model");
        assert_eq!(of_default(&rows[..1], "m"), None);
    }
}
