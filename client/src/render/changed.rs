//! Changes of a session's settings, as lines: its model, mode, name, and the files it reads.

use std::path::PathBuf;

use linger_protocol::event::{EventBody, Instruction, SessionChanged};
use linger_protocol::session::{Effort, PrefixFingerprint};

use super::renderer::Renderer;
use crate::terminal::{Output, clean_line};

impl Renderer {
    /// Prints what has changed of the session, a line each.
    pub(super) fn session_changed(&mut self, body: &EventBody, out: &mut Vec<Output>) {
        let EventBody::SessionChanged(SessionChanged {
            model,
            mode,
            effort,
            name,
            instructions,
            skills,
            agent,
            setup,
            patience,
            fallback,
            unattended,
            budget,
            additional_directories,
            tools,
            mcp_servers,
            binned,
            by_retention,
            cwd,
            ..
        }) = body
        else {
            return;
        };
        if let Some(binned) = binned {
            let line = match (binned, by_retention) {
                (true, true) => "the session was moved to the bin: it is older than `retention`",
                (true, false) => "the session was moved to the bin",
                (false, _) => "the session was restored from the bin",
            };
            self.say(&self.settings.style.dim(line), out);
        }
        self.changed("directory", cwd.as_ref().map(|cwd| cwd.display().to_string()).as_deref(), out);
        self.changed("model", model.as_deref(), out);
        self.changed("mode", mode.map(|mode| mode.to_string()).as_deref(), out);
        self.changed("effort", effort.map(Effort::name), out);
        self.changed("name", name.as_deref(), out);
        self.changed("patience", patience.map(|patience| patience.to_string()).as_deref(), out);
        self.changed("fallback", fallback.as_ref().map(|models| models.join(", ")).as_deref(), out);
        self.changed("unattended", unattended.map(|it| it.to_string()).as_deref(), out);
        self.changed("budget", budget.map(|it| it.to_string()).as_deref(), out);
        let added = additional_directories.as_deref().map(added);
        self.changed("added directories", added.as_deref(), out);
        let only = tools.as_ref().map(|all| names(all.iter().map(String::as_str)));
        self.changed("tools", only.as_deref().map(|only| if only == "*" { "all" } else { only }), out);
        let brought = mcp_servers.as_ref().map(|all| names(all.iter().map(|server| server.server.as_str())));
        self.changed("MCP servers of the session", brought.as_deref(), out);
        for file in instructions.iter().flatten() {
            self.instructions(file, out);
        }
        let named = skills.as_ref().map(|all| names(all.iter().map(|skill| skill.name.as_str())));
        self.changed("skills", named.as_deref(), out);
        self.changed("agent", agent.as_ref().map(|it| it.name.as_str()), out);
        if let Some(setup) = setup
            && model.is_none()
            && !self.is_new
        {
            self.setup(setup, out);
        }
    }

    fn changed(&mut self, what: &str, to: Option<&str>, out: &mut Vec<Output>) {
        if let Some(to) = to {
            self.say(&self.settings.style.dim(&format!("{what}: {}", clean_line(to))), out);
        }
    }

    /// The requests to the same model changed.
    fn setup(&mut self, setup: &PrefixFingerprint, out: &mut Vec<Output>) {
        let named: Vec<&str> = setup.hosted_tools.iter().map(|tool| tool.name()).collect();
        let tools = if named.is_empty() {
            String::new()
        } else {
            format!("; the provider runs {} itself", named.join(" and "))
        };
        let line = format!("note: system prompt or tools changed; the provider's cache starts over{tools}");
        self.say(&self.settings.style.dim(&line), out);
    }

    /// A file in the system prompt, and how much of it was cut.
    fn instructions(&mut self, file: &Instruction, out: &mut Vec<Output>) {
        let (path, style) = (file.path.to_string_lossy(), self.settings.style);
        let line = match file.cut {
            0 => style.dim(&format!("read {}, {} bytes", clean_line(&path), file.bytes)),
            cut => style.yellow(&format!(
                "warning: {cut} bytes of {} were left out, the first {} were read",
                clean_line(&path),
                file.bytes
            )),
        };
        self.say(&line, out);
    }
}

/// Added directories in a line.
fn added(dirs: &[PathBuf]) -> String {
    let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    if dirs.is_empty() { "none".to_owned() } else { dirs.join(", ") }
}

/// Names in a line.
fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = all.collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}
