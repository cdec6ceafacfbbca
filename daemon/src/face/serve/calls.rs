//! One call of the host: its arguments, whether it may run, and its result.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use linger_protocol::id::CallId;
use linger_protocol::message::{ContentBlock, ImageSource};
use linger_protocol::permission::Mode;
use serde_json::{Value, json};
use tokio::sync::{RwLock, mpsc};

use crate::process::server::Children;
use crate::question::permission::{CallInfo, ResolvedAccess, Rule, Rules, Verdict, decide, digest, grants_for, hides};
use crate::store::blob::Blobs;
use crate::sys::task;
use crate::tool::background::Jobs;
use crate::tool::set::ToolSet;
use crate::tool::{Access, Call, Context, Effects, Hidden, Invalid, OutputDelta, Targets, ToolOutput, Workspace};

/// Pieces of output that wait for the host; beyond that the tool waits.
const OUTPUT_QUEUE: usize = 4;

/// The services that all calls share.
pub(super) struct Calls {
    /// The tools that the host sees.
    pub(super) tools: ToolSet,
    /// The children of this process.
    pub(super) children: Children,
    rules: Arc<Rules>,
    /// Rules that answers added, until the process ends.
    granted: Mutex<Vec<Rule>>,
    workspace: Arc<Workspace>,
    blobs: Blobs,
    /// Held by those that overlap together, and by the others alone.
    order: RwLock<()>,
    last: AtomicU64,
}

/// A call with good arguments.
pub(super) struct Prepared {
    tool: String,
    effects: Effects,
    resolved: ResolvedAccess,
    call: Box<dyn Call>,
    /// Proves that what runs is what was shown.
    pub(super) digest: String,
}

/// The verdict on a call before it runs.
pub(super) enum Permission {
    /// It runs.
    Given,
    /// A person has to decide.
    Asked {
        /// The call, in one line.
        action: String,
        /// The rules that would allow it from now on.
        grants: Vec<String>,
    },
    /// It does not run; why.
    Refused(String),
}

impl Calls {
    pub(super) fn new(tools: ToolSet, rules: Rules, workspace: Workspace, children: Children, blobs: Blobs) -> Self {
        let (rules, workspace) = (Arc::new(rules), Arc::new(workspace));
        let (granted, order, last) = (Mutex::default(), RwLock::default(), AtomicU64::default());
        Self { tools, children, rules, granted, workspace, blobs, order, last }
    }

    /// Checks the arguments.
    pub(super) async fn prepare(&self, name: &str, input: &Value) -> Result<Prepared, Invalid> {
        let tool = self.tools.find(name)?;
        let mut input = input.clone();
        if tool.completes() {
            let (tool, given, workspace) = (tool.clone(), input.clone(), self.workspace.clone());
            let hidden = self.hidden(name, &Access::Read(workspace.root.clone()));
            let completed = task::spawn_blocking(move || tool.complete(&given, &workspace, &hidden)).await;
            let completed = completed.map_err(|error| Invalid(format!("the tool failed: {error}")))??;
            if let Some(completed) = completed {
                input = completed;
            }
        }
        let call = tool.prepare(&input, &self.workspace)?;
        let effects = call.effects();
        let resolved = self.resolve(&effects.access).await?;
        let digest = digest(name, &input, &self.workspace.cwd);
        Ok(Prepared { tool: name.to_owned(), effects, resolved, call, digest })
    }

    /// Whether a call may run.
    pub(super) fn permission(&self, prepared: &Prepared) -> Permission {
        let info = prepared.info();
        let granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        match decide(&self.rules, &granted, Mode::Ask, &info, &prepared.resolved) {
            Verdict::Allow { .. } => Permission::Given,
            Verdict::Deny { reason, .. } => Permission::Refused(reason),
            Verdict::Ask { .. } => {
                let grants = grants_for(&info, &prepared.resolved);
                Permission::Asked { action: prepared.shown(), grants }
            }
        }
    }

    /// Allows what a rule says until this process ends.
    pub(super) fn grant(&self, rule: &str) {
        match Rule::parse(rule, self.tools.names()) {
            Ok(rule) => self.granted.lock().unwrap_or_else(PoisonError::into_inner).push(rule),
            Err(error) => tracing::warn!(target: "permission", %error, "a rule is left out"),
        }
    }

    /// Runs a call that may run; `shown` gets its output as it comes.
    pub(super) async fn run(&self, prepared: Prepared, shown: mpsc::Sender<String>) -> Value {
        let Prepared { tool, effects, resolved, call, .. } = prepared;
        let _order = if effects.overlaps {
            (Some(self.order.read().await), None)
        } else {
            (None, Some(self.order.write().await))
        };
        let targets = resolved.targets(&effects.access);
        if let Err(why) = self.leads_to(&effects.access, &targets).await {
            return refused(&why);
        }
        let (sender, mut pieces) = mpsc::channel(OUTPUT_QUEUE);
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let id = CallId(format!("c{number}"));
        let nobody = || Err(Invalid("questions to the user are not possible here".to_owned()));
        let context = Context {
            call: format!("serve/{id}"),
            targets,
            output: sender,
            blobs: self.blobs.clone(),
            hidden: self.hidden(&tool, &effects.access),
            spawn: self.workspace.spawn(self.children.clone(), None),
            ask: Arc::new(move |_| Box::pin(std::future::ready(nobody()))),
            id,
            // `fetch` is not served.
            web: Arc::new(|_| Box::pin(std::future::ready(Err("there is no network here".to_owned())))),
            // Nobody takes their reports, so none begins.
            jobs: Jobs::new().0,
            // Nor is `delegate`.
            delegate: crate::tool::delegate::nowhere(),
        };
        let running = call.run(context);
        tokio::pin!(running);
        loop {
            tokio::select! {
                biased;
                Some(OutputDelta { text, .. }) = pieces.recv() => {
                    // A host that reads slowly misses output, and not the result.
                    let _full = shown.try_send(text);
                }
                output = &mut running => return result(&output),
            }
        }
    }

    async fn resolve(&self, access: &Access) -> Result<ResolvedAccess, Invalid> {
        let (access, workspace, rules) = (access.clone(), self.workspace.clone(), self.rules.clone());
        let resolved = task::spawn_blocking(move || ResolvedAccess::of(&access, &workspace, &rules)).await;
        resolved.map_err(|error| Invalid(format!("the path cannot be resolved: {error}")))
    }

    /// Fails if a link has changed since the call was permitted.
    async fn leads_to(&self, access: &Access, permitted: &Targets) -> Result<(), String> {
        if permitted.is_empty() {
            return Ok(());
        }
        let now = self.resolve(access).await.map_err(|invalid| invalid.0)?.targets(access);
        match permitted.moved(&now) {
            None => Ok(()),
            Some((was, _)) => Err(format!("{} was approved, but the path now leads elsewhere", was.display())),
        }
    }

    fn hidden(&self, tool: &str, access: &Access) -> Hidden {
        let Some(root) = access.reads() else { return Arc::new(|_| false) };
        let (rules, root, workspace, tool) =
            (self.rules.clone(), root.to_path_buf(), self.workspace.clone(), tool.to_owned());
        // Computed on the call's own thread, because it blocks on the disk.
        let hidden = OnceLock::new();
        Arc::new(move |path| hidden.get_or_init(|| hides(&rules, &tool, &root, &workspace))(path))
    }
}

impl Prepared {
    fn info(&self) -> CallInfo<'_> {
        CallInfo { tool: &self.tool, changes: self.effects.changes, access: self.effects.access.clone() }
    }

    /// The call in one line, with the file that it reaches.
    fn shown(&self) -> String {
        let action = format!("{}: {}", self.tool, self.call.action());
        action + &self.resolved.targets(&self.effects.access).said()
    }
}

/// The result of a call that does not run.
pub(super) fn refused(why: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": format!("not run: {why}") }], "isError": true })
}

/// A result as MCP has it.
fn result(output: &ToolOutput) -> Value {
    let block = |block: &ContentBlock| match block {
        ContentBlock::Text { text } => Some(json!({ "type": "text", "text": text })),
        ContentBlock::Image { media_type, source: ImageSource::Data { data } } => {
            Some(json!({ "type": "image", "data": data, "mimeType": media_type }))
        }
        ContentBlock::ResourceLink { uri, name, media_type, description } => {
            let mut link = json!({ "type": "resource_link", "uri": uri, "name": name });
            for (field, said) in [("mimeType", media_type), ("description", description)] {
                if let (Some(said), Some(fields)) = (said, link.as_object_mut()) {
                    fields.insert(field.to_owned(), json!(said));
                }
            }
            Some(link)
        }
        _ => None,
    };
    json!({ "content": output.content.iter().filter_map(block).collect::<Vec<_>>(), "isError": output.is_error })
}
