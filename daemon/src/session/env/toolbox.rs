//! The tools that sessions can call: built-in ones, those of MCP servers, and those of Markdown files.

use std::path::Path;
use std::sync::Arc;

use linger_protocol::id::SessionId;
use linger_protocol::place::Places;
use linger_protocol::session::PrefixFingerprint;

use crate::agent::{self, Entry, Library};
use crate::config::providers::Providers;
use crate::config::{ConfigStore, Images};
use crate::mcp::{Outside, Servers};
use crate::provider::catalogue::Resolved;
use crate::sys::disk;
use crate::tool::image::{Image, ImageModels};
use crate::tool::program::Program;
use crate::tool::set::{ToolSet, Tools};
use crate::tool::{SessionTraits, Tool, Workspace};

/// The window of a model that is not known, in tokens.
const USUAL_WINDOW: u64 = 128_000;

/// About how many bytes of a JSON Schema are a token.
const BYTES_PER_TOKEN: u64 = 4;

/// The tools and MCP servers of all sessions.
pub struct Toolbox {
    /// The tools; a turn takes the current set before each step.
    pub tools: Tools,
    /// The MCP servers, which add to the tools.
    pub servers: Arc<Servers>,
    /// The providers that make images.
    pub images: Arc<dyn ImageModels>,
    image_tool: Arc<dyn Tool>,
    /// The beginning of every system prompt.
    pub system: String,
    places: Places,
    pub(super) config: Arc<ConfigStore>,
    providers: Arc<Providers>,
}

impl Toolbox {
    /// The tools, with those of servers that are started `outside` of the daemon.
    pub(super) fn new(
        places: Places,
        config: Arc<ConfigStore>,
        providers: Arc<Providers>,
        tools: Tools,
        system: String,
        outside: Outside,
    ) -> Self {
        let servers = Servers::new(tools.clone(), outside, places.server_tools());
        let images: Arc<dyn ImageModels> = Arc::new(Images(providers.clone()));
        let image_tool = Arc::new(Image(images.clone()));
        Self { tools, servers, images, image_tool, system, places, config, providers }
    }

    /// Takes the MCP servers of the files of a workspace, as they were last read.
    pub fn configure_workspace(&self, root: &Path) {
        let (Some(now), Ok(config)) = (self.config.workspace(root), self.config.current()) else { return };
        self.servers.configure_workspace(root, &now.config.servers, &config.env.keys);
    }

    /// Takes the MCP servers of the configuration in force.
    pub fn configure_servers(&self) {
        if let Ok(config) = self.config.current() {
            self.servers.configure(&config.mcp, self.config.trusted_servers());
        }
    }

    /// Reads the Markdown files of tools and servers that a session in the workspace has, and takes them.
    pub async fn read_tools(&self, workspace: &Workspace) {
        let (config, places) = (self.config.clone(), self.agent_places(workspace));
        let read = move || Library::load_tools(&config, &places);
        if let Some(library) = disk::probe(&workspace.cwd, disk::TIMEOUT, read).await {
            self.install(&library, workspace.rules_root());
        }
    }

    /// Takes the tools and servers of Markdown files, as they were read for the workspace with this root.
    pub fn install(&self, library: &Library, root: &Path) {
        if library.is_own_new {
            self.configure_servers();
        }
        let (of_workspace, own): (Vec<_>, Vec<_>) = library.tools.iter().partition(|it| it.found.within.is_some());
        let programs = |entries: Vec<&Entry<Program>>| entries.into_iter().map(|it| it.item.clone()).collect();
        self.servers.set_programs(root, programs(own), programs(of_workspace));
    }

    /// Where the user's own files lie, and those of no workspace.
    pub fn own_places(&self) -> agent::Places {
        let config = self.places.config.clone();
        let home = self.config.home().map(Path::to_path_buf);
        agent::Places { root: config.clone(), cwd: config.clone(), config, home }
    }

    /// Where the skills, commands and agents of a session lie.
    pub fn agent_places(&self, workspace: &Workspace) -> agent::Places {
        let root = workspace.rules_root().to_path_buf();
        let cwd = workspace.bound_place(&workspace.cwd).unwrap_or_else(|| workspace.cwd.clone());
        agent::Places { config: self.places.config.clone(), home: self.config.home().map(Path::to_path_buf), root, cwd }
    }

    /// The prefix fingerprint of requests to this model by a session in the workspace with this root that has `only` these tools.
    pub fn setup(
        &self,
        resolved: &Resolved,
        root: &Path,
        session: &SessionId,
        only: Option<&[String]>,
        traits: SessionTraits<'_>,
    ) -> PrefixFingerprint {
        let tools = self.tools_of(&resolved.origin, root, session, only, traits);
        resolved.clone().limited(only).setup(&self.system, tools.specs())
    }

    /// The directory of the user's own configuration.
    pub fn config_dir(&self) -> &Path {
        &self.places.config
    }

    /// The traits on which optional tools depend; `depth` is 0 for a session that a user started, and 1 for its children.
    pub fn offered(&self, has_skills: bool, depth: u32) -> SessionTraits<'static> {
        let may_delegate = depth < self.config.delegation().depth;
        SessionTraits { has_skills, has_notes: self.config.memory(), may_delegate, ..SessionTraits::default() }
    }

    /// The tools of a session of the workspace with this model that has `only` these. What those of MCP servers may take of a
    /// request depends on the model's window.
    pub fn tools_of(
        &self,
        model: &str,
        root: &Path,
        session: &SessionId,
        only: Option<&[String]>,
        traits: SessionTraits<'_>,
    ) -> Arc<ToolSet> {
        let window = self.providers.window(model).unwrap_or(USUAL_WINDOW);
        let tokens = window / 100 * u64::from(self.config.mcp_direct_percent());
        let tools = self.servers.tools_in(root, session.as_str());
        let room = usize::try_from(tokens.saturating_mul(BYTES_PER_TOKEN)).unwrap_or(usize::MAX);
        let provider = model.split('/').next().unwrap_or_default();
        let schema = |tool: &str| tools.current().get(tool).map(|tool| tool.schema());
        let refused = self.providers.refused_tools.of(provider, schema);
        let traits = SessionTraits {
            only,
            writes_patches: self.providers.patches(model),
            refused: (!refused.is_empty()).then_some(&refused),
            ..traits
        };
        tools.of(&traits, std::slice::from_ref(&self.image_tool), room)
    }
}
