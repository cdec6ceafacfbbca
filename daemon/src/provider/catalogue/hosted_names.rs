//! `hosted_tools` in `[providers.NAME]`: the tools that a provider runs itself, by their names.

use linger_protocol::message::HostedTool;

use super::nearest;
use crate::provider::codecs::codec;
use crate::provider::compat::Compat;
use crate::provider::hosted::Hosted;
use crate::provider::kind::ProviderKind;

/// The tools that these names switch on at a provider of this kind; fails with what is wrong with the names.
pub(super) fn hosted_tools(names: &[String], kind: ProviderKind) -> Result<Hosted, String> {
    let mut hosted = Hosted::NONE;
    for name in names {
        match HostedTool::ALL.into_iter().find(|tool| tool.name() == name) {
            Some(HostedTool::WebSearch) => hosted.web_search = true,
            Some(HostedTool::CodeExecution) => hosted.code_execution = true,
            _ => {
                let known = HostedTool::ALL.map(HostedTool::name);
                let near = nearest(name, known.into_iter());
                let known = known.join(" or ");
                return Err(match near {
                    Some(near) => format!("unknown tool `{name}`; did you mean `{near}`?"),
                    None => format!("unknown tool `{name}`: it is {known}"),
                });
            }
        }
    }
    match codec(kind, Compat::NONE).map_or(Err(""), |codec| codec.has_hosted_tools()) {
        Err(hint) if !names.is_empty() => Err(format!("the kind {} has none{hint}", kind.name())),
        _ => Ok(hosted),
    }
}
