//! `plan`: shows the model's plan for its task, as an event that clients show.

use linger_protocol::event::{PlanEntry, PlanStatus, ToolKind};
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::Effects;
use super::invalid::Invalid;
use super::types::{BoxFuture, Call, Context, Tool, ToolOutput};
use super::workspace::Workspace;
use super::{args, text};

/// The most entries: three screens.
const MAX_ENTRIES: usize = 100;

/// The longest entry, in bytes: some lines of a terminal.
const MAX_ENTRY: usize = 500;

pub(super) struct Plan;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with content and status")]
struct Entry {
    content: String,
    status: Status,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Completed,
}

impl Tool for Plan {
    fn name(&self) -> &str {
        "plan"
    }

    fn description(&self) -> &str {
        include_str!("plan.md")
    }

    fn schema(&self) -> Value {
        let status = json!({ "enum": ["pending", "in_progress", "completed"] });
        let properties = json!({ "content": { "type": "string" }, "status": status });
        let required = ["content", "status"];
        let entry = json!({ "type": "object", "properties": properties, "required": required });
        let entries = json!({ "type": "array", "items": entry });
        json!({ "type": "object", "properties": { "entries": entries }, "required": ["entries"] })
    }

    fn changes(&self) -> bool {
        false
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Think
    }

    fn prepare(&self, input: &Value, _: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { entries } = args::parse(input)?;
        if entries.len() > MAX_ENTRIES {
            return Err(Invalid(format!("`entries` may be {MAX_ENTRIES} at most")));
        }
        let fits = |entry: &Entry| !entry.content.trim().is_empty() && entry.content.len() <= MAX_ENTRY;
        if let Some(at) = entries.iter().position(|entry| !fits(entry)) {
            return Err(Invalid(format!("`entries[{at}].content` must have from 1 to {MAX_ENTRY} bytes")));
        }
        let entry = |Entry { content, status }: Entry| PlanEntry {
            content: text::one_line(content.trim()),
            status: match status {
                Status::Pending => PlanStatus::Pending,
                Status::InProgress => PlanStatus::InProgress,
                Status::Completed => PlanStatus::Completed,
            },
        };
        Ok(Box::new(Showing(entries.into_iter().map(entry).collect())))
    }
}

struct Showing(Vec<PlanEntry>);

impl Call for Showing {
    fn action(&self) -> String {
        let done = self.0.iter().filter(|entry| entry.status == PlanStatus::Completed).count();
        format!("{done} of {} done", self.0.len())
    }

    fn effects(&self) -> Effects {
        // Two plans of one answer are shown in its order.
        Effects { overlaps: false, ..Effects::nothing() }
    }

    fn run(self: Box<Self>, _: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(std::future::ready(ToolOutput { plan: Some(self.0), ..ToolOutput::text("shown") }))
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::tool::tests::{test_context, test_workspace};

    #[tokio::test]
    async fn the_plan_is_shown_as_it_was_given() {
        let (_dir, workspace) = test_workspace();
        let input = json!({ "entries": [
            { "content": "read the\ncode ", "status": "completed" }, { "content": "change it", "status": "in_progress" },
        ] });
        let call = Plan.prepare(&input, &workspace).unwrap();
        assert_eq!(call.action(), "1 of 2 done");
        let shown = call.run(test_context(&workspace, mpsc::channel(1).0)).await.plan.unwrap();
        let entry = |content: &str, status| PlanEntry { content: content.to_owned(), status };
        let expect = [entry("read the\\ncode", PlanStatus::Completed), entry("change it", PlanStatus::InProgress)];
        assert_eq!(shown, expect);
    }

    #[test]
    fn a_plan_that_does_not_fit_is_refused_in_words() {
        let (_dir, workspace) = test_workspace();
        let check = |input: Value, expect: &str| {
            assert_eq!(Plan.prepare(&input, &workspace).err().unwrap().0, expect);
        };
        let entry = |content: &str| json!({ "content": content, "status": "pending" });
        check(json!({ "entries": [entry("a"), entry(" ")] }), "`entries[1].content` must have from 1 to 500 bytes");
        check(json!({ "entries": vec![entry("a"); 101] }), "`entries` may be 100 at most");
        let status = "unknown variant `done`, expected one of `pending`, `in_progress`, `completed`";
        check(json!({ "entries": [{ "content": "a", "status": "done" }] }), &format!("`entries[0].status`: {status}"));
    }
}
