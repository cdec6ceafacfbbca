//! How hard a model thinks: the budget of each effort, and the efforts that a model takes. Pure.
//!
//! Each wire format has its own words for an effort; where it has none, it gets the nearest. Without an effort from user or
//! configuration nothing is sent.

use linger_protocol::message::{ContentBlock, Role};
use linger_protocol::session::Effort;

use super::types::ToolSpecs;
use super::types::{Codec, Images, Message, Request};

/// Tokens to think with, for models that want a number; absent for what a provider does by itself. About what the vendors' own
/// programs give.
pub(super) fn budget(effort: Effort) -> Option<u32> {
    Some(match effort {
        Effort::Auto => return None,
        Effort::None => 0,
        Effort::Minimal => 1_024,
        Effort::Low => 4_096,
        Effort::Medium => 8_192,
        Effort::High => 16_384,
        Effort::Xhigh | Effort::Max => 24_576,
    })
}

/// Whether `effort` is asked for, and is more than none.
pub(super) fn thinks(effort: Effort) -> bool {
    effort > Effort::None
}

/// How many tokens an answer has that no effort is too much for.
const AMPLE: u32 = 1 << 16;

/// The efforts that make requests of their own to a model. Of those whose requests are the same the first of these is given: the
/// plain ones are meant by most.
const BY_NAME: [Effort; 7] =
    [Effort::Low, Effort::Medium, Effort::High, Effort::Max, Effort::Xhigh, Effort::Minimal, Effort::None];

/// The efforts that a model takes, without `auto`, in the order of [`Effort::ALL`]; none if they all come to the same.
pub(super) fn taken(codec: &dyn Codec, model: &str) -> Vec<Effort> {
    let messages = [Message { role: Role::User, content: vec![ContentBlock::text("x")], origin: None }];
    let images = Images::new();
    let body = |effort| {
        let request = Request {
            model,
            origin: model,
            system: "",
            tools: ToolSpecs::none(),
            messages: &messages,
            max_tokens: AMPLE,
            cache_key: "",
            images: &images,
            output_schema: None,
            effort,
            own_fields: None,
        };
        codec.encoder().encode(&request).body
    };
    let mut known: Vec<(Effort, Vec<u8>)> = Vec::new();
    for effort in BY_NAME {
        let body = body(effort);
        if known.iter().all(|(_, other)| *other != body) {
            known.push((effort, body));
        }
    }
    let mut efforts: Vec<Effort> = known.into_iter().map(|(effort, _)| effort).collect();
    efforts.sort();
    if efforts.len() > 1 { efforts } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::super::codecs::codec;
    use super::super::compat::Compat;
    use super::super::kind::ProviderKind;
    use super::*;

    #[test]
    fn a_model_takes_the_efforts_that_make_another_request() {
        fn check(kind: ProviderKind, compat: Compat, model: &str, expect: &str) {
            let names: Vec<&str> =
                taken(codec(kind, compat).unwrap().as_ref(), model).into_iter().map(Effort::name).collect();
            assert_eq!(names.join(" "), expect, "{kind:?} {model}");
        }
        let none = Compat::NONE;
        check(ProviderKind::Anthropic, none, "claude-3-opus-20240229", "");
        check(ProviderKind::Anthropic, none, "claude-opus-4-1", "none minimal low medium high max");
        check(ProviderKind::Anthropic, none, "claude-opus-4-6", "none low medium high max");
        check(ProviderKind::Anthropic, none, "claude-opus-4-7", "none low medium high xhigh max");
        check(ProviderKind::Anthropic, none, "claude-fable-5", "none low medium high xhigh max");
        check(ProviderKind::Openai, none, "m", "none minimal low medium high xhigh max");
        check(ProviderKind::Openai, Compat { reasoning_effort: Some(false), ..none }, "m", "");
        check(ProviderKind::OpenaiResponses, none, "m", "none minimal low medium high xhigh max");
        check(ProviderKind::Ollama, none, "m", "none low medium high");
    }

    #[test]
    fn every_effort_has_its_budget_and_none_has_none() {
        let known: Vec<Effort> = Effort::ALL.into_iter().filter(|effort| budget(*effort).is_some()).collect();
        assert_eq!(known, &Effort::ALL[1..]);
        assert!(Effort::ALL.into_iter().map(budget).is_sorted());
        assert!(!thinks(Effort::Auto) && !thinks(Effort::None) && thinks(Effort::Minimal));
    }
}
