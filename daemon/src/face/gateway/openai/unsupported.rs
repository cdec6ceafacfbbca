//! Parts of OpenAI's and Anthropic's interfaces that linger does not have: a sentence each, so that a search ends there.

use crate::face::gateway::reply::Failure;

/// A part that is absent, and what to do instead.
struct Absent {
    path: &'static str,
    message: &'static str,
    hint: &'static str,
}

const OWN_ADDRESS: &str = "use the provider's own address for it";

const ABSENT: &[Absent] = &[
    Absent { path: "embeddings", message: "linger has no embeddings", hint: OWN_ADDRESS },
    Absent { path: "moderations", message: "linger has no moderation", hint: OWN_ADDRESS },
    Absent {
        path: "completions",
        message: "linger completes conversations, not plain text",
        hint: "use /v1/chat/completions",
    },
    Absent {
        path: "messages",
        message: "linger does not speak Anthropic's Messages",
        hint: "use /v1/chat/completions or /v1/responses with a client of OpenAI's interface",
    },
    Absent { path: "images", message: "linger makes images in sessions only", hint: OWN_ADDRESS },
    Absent { path: "audio", message: "linger has no audio", hint: OWN_ADDRESS },
    Absent { path: "realtime", message: "linger has no realtime interface", hint: OWN_ADDRESS },
    Absent { path: "files", message: "linger stores no files for requests", hint: "send images as data URLs" },
    Absent { path: "uploads", message: "linger stores no files for requests", hint: "send images as data URLs" },
    Absent { path: "batches", message: "linger has no batches", hint: OWN_ADDRESS },
    Absent { path: "fine_tuning", message: "linger has no fine-tuning", hint: OWN_ADDRESS },
    Absent { path: "vector_stores", message: "linger has no vector stores", hint: OWN_ADDRESS },
    Absent {
        path: "assistants",
        message: "linger has no assistants",
        hint: "`agent/NAME` as the model of a request runs an agent",
    },
    Absent {
        path: "threads",
        message: "linger has no threads",
        hint: "the header X-Linger-Session binds a request to a session",
    },
    Absent {
        path: "conversations",
        message: "linger stores no conversations for requests",
        hint: "the header X-Linger-Session binds a request to a session",
    },
    Absent {
        path: "responses",
        message: "linger stores no responses",
        hint: "send the conversation with each request, or bind it to a session with the header X-Linger-Session",
    },
];

/// Why there is nothing under a path.
pub(super) fn failure(parts: &[&str]) -> Failure {
    let first = parts.first().copied().unwrap_or_default();
    match ABSENT.iter().find(|absent| absent.path == first) {
        Some(absent) => Failure::not_found(absent.message).hint(absent.hint),
        None => Failure::nothing_here(),
    }
}
