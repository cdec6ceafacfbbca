//! Nothing is read without asking that lies outside the workspace or that a rule hides (I17): one table of all readers, the ways
//! to a file, and the two kinds of files.
//!
//! A reader is whatever opens a file that a model or a repository names. Each is sent along each way to a secret, and must not give
//! it away; along a plain way to an open file it must work. Two lists notice a reader that is missing here: the built-in tools, and
//! the sources of the daemon that open files. That the table can fail is shown with the check planted out.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::message::ContentBlock;
use linger_protocol::permission::Mode;
use linger_protocol::place::Places as Directories;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::agent::{FileKind, Library, Places};
use crate::config::{ConfigStore, Policy, Settled, instructions};
use crate::process::{Input, Stderr};
use crate::question::permission::planted;
use crate::question::permission::{CallInfo, ResolvedAccess, Rule, Rules, Verdict, decide, hides};
use crate::session::delegate::answer::check_sources;
use crate::tool::image::{Image, ImageModel, ImageModels};
use crate::tool::program::{Program, ProgramTool};
use crate::tool::set::{ToolSet, Tools};
use crate::tool::skills::SkillFiles;
use crate::tool::tests::test_context;
use crate::tool::{Access, BoxFuture, Context, Hidden, Tool, Workspace, builtin};

use super::layers::source;

/// Names a secret: whoever shows it has read the file. In the open file it is [`OPEN`].
const SECRET: &str = "SECRET-7711";
const OPEN: &str = "OPEN-4242";

/// Whose file a reader is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// It lies beside the workspace.
    Outside,
    /// A rule in `deny` hides it.
    Denied,
    /// A rule in `ask` hides it.
    AskedAbout,
    /// A rule hides the place at which the reader looks.
    Place,
}

const GOALS: [Goal; 3] = [Goal::Outside, Goal::Denied, Goal::AskedAbout];

impl Goal {
    /// The spellings of a path to the file `name`, from the workspace: the way's name, and the path.
    fn ways(self, name: &str, at: &Path) -> Vec<(&'static str, String)> {
        let at = at.display();
        let ways: &[(&str, &str)] = match self {
            Self::Outside => &[
                ("link to a directory", "hout/NAME"),
                ("link to a directory", "hroot/<AT>/out/d/NAME"),
                ("link to a link", "hlink/NAME"),
                ("link to a file", "links/out/NAME"),
                ("dots", "../out/d/NAME"),
                ("dots", "open/d/../../../out/d/NAME"),
                ("dots", "hout/../d/NAME"),
                ("absolute", "/<AT>/out/d/NAME"),
                ("absolute", "/<AT>/w/../out/d/NAME"),
                ("magic", ":(top)hout/NAME"),
                ("magic", ":(literal)hout/NAME"),
                ("magic", ":(glob)hou*/NAME"),
                ("magic", ":(icase)HOUT/NAME"),
                ("magic", ":/hout/NAME"),
                ("magic", ":(top)../out/d/NAME"),
                ("magic", "hou?/NAME"),
                ("magic", "~/out/d/NAME"),
                ("spelling", "./hout/./NAME"),
                ("spelling", "hout//NAME"),
                ("spelling", "open/../hout/NAME"),
                ("spelling", "hout/NAME/"),
                ("spelling", "HOUT/NAME"),
                ("spelling", "file:///<AT>/out/d/NAME"),
            ],
            Self::Denied | Self::AskedAbout => &[
                ("plain", "private/d/NAME"),
                ("link to a directory", "hpriv/NAME"),
                ("link to a link", "hplink/NAME"),
                ("link to a file", "links/private/NAME"),
                ("dots", "open/../private/d/NAME"),
                ("dots", "../w/private/d/NAME"),
                ("dots", "hpriv/../d/NAME"),
                ("absolute", "/<AT>/w/private/d/NAME"),
                ("magic", ":(top)private/d/NAME"),
                ("magic", ":(literal)private/d/NAME"),
                ("magic", ":(top,literal)private/d/NAME"),
                ("magic", ":(glob)priv*/**/NAME"),
                ("magic", ":(icase)PRIVATE/d/NAME"),
                ("magic", ":/private/d/NAME"),
                ("magic", ":(attr:x)private/d/NAME"),
                ("magic", "priv*/d/NAME"),
                ("magic", ":!open"),
                ("magic", "~/w/private/d/NAME"),
                ("spelling", "./private//d/./NAME"),
                ("spelling", "private/d/NAME/"),
                ("spelling", "PRIVATE/d/NAME"),
                ("spelling", "private/d"),
                ("spelling", "private"),
                ("spelling", "."),
            ],
            Self::Place => &[("plain", "out/d/NAME")],
        };
        let at = at.to_string().trim_start_matches('/').to_owned();
        ways.iter().map(|(way, path)| (*way, path.replace("NAME", name).replace("<AT>", &at))).collect()
    }
}

/// A way of reading.
#[derive(Clone, Copy)]
enum Kind {
    /// A call of a tool, with the path in the place of `PATH`, in this mode.
    Tool(&'static str, &'static str, Mode),
    /// A call of `git` with these arguments.
    Git(&'static str),
    /// A file of the repository that counts by its place: it is a link to the path.
    Placed(&'static str, Placed),
    /// A file that a command names.
    CommandFile,
    /// A file that the answer of a child names.
    Source,
}

/// Readers of files that have a place.
#[derive(Clone, Copy)]
enum Placed {
    Instructions,
    Library(FileKind),
    /// The files that say what a walk leaves out.
    Ignored,
    TestRunner,
    Configuration,
}

/// A row of the table.
struct Reader {
    /// The name of the file that it reads.
    file: &'static str,
    /// The content of that file, with the word that gives it away in the place of `WORD`.
    content: &'static str,
    kind: Kind,
    /// Whether it gives the secret away when the check is left out; else something else keeps it too.
    needs_the_check: bool,
}

const fn row(file: &'static str, content: &'static str, kind: Kind, needs_the_check: bool) -> Reader {
    Reader { file, content, kind, needs_the_check }
}

const PAGE: &str = "---\nname: d\ndescription: WORD\n---\nWORD\n";

/// Every reader.
const READERS: &[Reader] = &[
    row("x.txt", "WORD\n", Kind::Tool("read", r#"{"path":"PATH"}"#, Mode::Ask), true),
    row("x.txt", "WORD\n", Kind::Tool("read", r#"{"path":"PATH"}"#, Mode::Plan), true),
    row(
        "x.txt",
        "WORD\n",
        Kind::Tool("grep", r#"{"path":"PATH","pattern":"[A-Z]+-\\d+","hidden":true}"#, Mode::Ask),
        true,
    ),
    row("x.txt", "WORD\n", Kind::Tool("edit", r#"{"path":"PATH","old":"-","new":"_"}"#, Mode::Edit), true),
    row(
        "x.txt",
        "WORD\n",
        Kind::Tool(
            "apply_patch",
            r#"{"input":"*** Begin Patch\n*** Update File: PATH\n@@\n-nothing\n+x\n*** End Patch"}"#,
            Mode::Edit,
        ),
        true,
    ),
    row(
        "x.png",
        "\u{89}PNG\r\n\u{1a}\nWORD",
        Kind::Tool("image", r#"{"prompt":"x","path":"new.png","pictures":["PATH"]}"#, Mode::Ask),
        true,
    ),
    row("x.txt", "WORD\n", Kind::Tool("skill", r#"{"name":"s","file":"PATH"}"#, Mode::Ask), false),
    row("x.txt", "WORD\n", Kind::Tool("tool__cat", r#"{"a":"PATH"}"#, Mode::Ask), true),
    row("x.txt", "WORD\n", Kind::Tool("tool__cat", r#"{"a":"PATH"}"#, Mode::Plan), true),
    row("x.txt", "WORD\n", Kind::Git("diff HEAD:README.md -- PATH"), true),
    row("x.txt", "WORD\n", Kind::Git("diff HEAD:README.md PATH"), true),
    row("x.txt", "WORD\n", Kind::Git("diff HEAD~1 -- PATH"), true),
    row("x.txt", "WORD\n", Kind::Git("diff --no-index README.md PATH"), false),
    row("x.txt", "WORD\n", Kind::Git("log -p --all -- PATH"), true),
    row("x.txt", "WORD\n", Kind::Git("show HEAD -- PATH"), true),
    row("x.txt", "WORD\n", Kind::Git("show HEAD:PATH"), true),
    row("x.txt", "WORD\n", Kind::Git("show :PATH"), true),
    row("x.txt", "WORD\n", Kind::Git("show HEAD:./PATH"), true),
    row("x.txt", "WORD\n", Kind::Git("blame PATH"), true),
    row("x.txt", "WORD\n", Kind::Git("blame -p -- PATH"), true),
    row("x.txt", "WORD\n", Kind::Git("blame HEAD -- PATH"), true),
    row("x.txt", "WORD\n", Kind::Tool("bash", r#"{"command":"cat PATH"}"#, Mode::Ask), true),
    row("x.txt", "WORD\n", Kind::Tool("bash", r#"{"command":"cat < PATH"}"#, Mode::Ask), true),
    row("x.txt", "WORD\n", Kind::Tool("bash", r#"{"command":"cd open && cat ../PATH"}"#, Mode::Plan), true),
    row("x.txt", "WORD\n", Kind::Tool("bash", r#"{"command":"sed -n 1,9p PATH"}"#, Mode::Ask), true),
    row("x.txt", "WORD\n", Kind::Tool("bash", r#"{"command":"sort -r PATH | uniq"}"#, Mode::Plan), true),
    row("x.txt", "WORD\n", Kind::Tool("bash", r#"{"command":"grep -n . PATH"}"#, Mode::Ask), true),
    row("x.txt", "WORD\n", Kind::Tool("bash", r#"{"command":"cat PATH*"}"#, Mode::Plan), true),
    row("AGENTS.md", "WORD\n", Kind::Placed("AGENTS.md", Placed::Instructions), true),
    row("AGENTS.md", "WORD\n", Kind::Placed("CLAUDE.md", Placed::Instructions), true),
    row("SKILL.md", PAGE, Kind::Placed(".linger/skills/d/SKILL.md", Placed::Library(FileKind::Skill)), true),
    row("SKILL.md", PAGE, Kind::Placed(".claude/skills/d/SKILL.md", Placed::Library(FileKind::Skill)), true),
    row("x.md", PAGE, Kind::Placed(".linger/commands/d.md", Placed::Library(FileKind::Command)), true),
    row("x.md", PAGE, Kind::Placed(".linger/agents/d.md", Placed::Library(FileKind::Agent)), true),
    row(
        "x.md",
        "---\ncommand: x\n---\nWORD\n",
        Kind::Placed(".linger/tools/d.md", Placed::Library(FileKind::Tool)),
        true,
    ),
    row(
        "x.md",
        "---\ncommand: x\n---\nWORD\n",
        Kind::Placed(".linger/mcp/d.md", Placed::Library(FileKind::Server)),
        true,
    ),
    row(".gitignore", "seen.txt\n", Kind::Placed(".gitignore", Placed::Ignored), false),
    row(".ignore", "seen.txt\n", Kind::Placed(".ignore", Placed::Ignored), false),
    row("package.json", r#"{"scripts":{"test":"x"}}"#, Kind::Placed("package.json", Placed::TestRunner), true),
    row(
        "config.toml",
        "[permissions]\nallow = [\"bash(WORD)\"]\n",
        Kind::Placed(".linger/config.toml", Placed::Configuration),
        false,
    ),
    row("x.txt", "WORD\n", Kind::CommandFile, true),
    row("x.txt", "WORD\n", Kind::Source, true),
];

/// Built-in tools that read no file of the disk, or only ask for it.
const READ_NOTHING: [(&str, &str); 10] = [
    ("write", "says nothing of what was there"),
    ("ls", "gives names, of a directory that is decided on like a file"),
    ("glob", "gives names, as `ls`; the files that say what it leaves out are in the table"),
    ("bash_output", "gives output of the session's own commands"),
    ("bash_kill", "reads nothing"),
    ("fetch", "reads the network, and no `file:`"),
    ("plan", "reads nothing"),
    ("ask_user", "reads nothing"),
    ("delegate", "passes names of files on; the other agent reads them like any"),
    ("memory", "reads notes, which lie in a directory of linger's and have names without a path"),
];

/// Sources that open files whose names neither a model nor a repository chooses, or for a person who chose them.
const OWN: &[&str] = &[
    "diagnostics",
    "fault",
    "face/gateway",
    "keeper",
    "log",
    "process",
    "provider",
    "recover",
    "store",
    "sys",
    "config/edit",
    "config/store",
    "mcp/cache",
    "session/env/attention",
    "config/providers",
    "face/serve/mod",
    "session/actor",
    "session/reading/search",
    "tool/git/checkpoint",
    "tool/output",
];

/// Sources whose readers are in the table, or belong to the check.
const KNOWN: &[&str] = &[
    "agent/find",
    "config/instructions",
    "config/policy",
    "config/workspace",
    "question/permission/unasked",
    "session/delegate/answer",
    "tool/apply_patch",
    "tool/change",
    "tool/edit",
    "tool/file",
    "tool/git/checkpoint/contents",
    "tool/git/checkpoint/directory",
    "tool/git/places",
    "tool/git/plain",
    "tool/git/private",
    "tool/git/worktree/index",
    "tool/git/worktree/merge",
    "tool/git/worktree/mod",
    "tool/git/worktree/run",
    "tool/grep",
    "tool/handle",
    "tool/ignored",
    "tool/image",
    "tool/memory",
    "tool/notes",
    "tool/read",
    "tool/restore",
    "tool/skill",
    "tool/test_run",
    "tool/write",
];

/// A provider that gives back the first picture it is sent.
struct Mirror;

impl ImageModels for Mirror {
    fn chosen(&self) -> Option<ImageModel> {
        Some(ImageModel { origin: "a/b".to_owned(), host: "h.example".to_owned() })
    }

    fn make(
        &self,
        _: ImageModel,
        request: crate::provider::image::ImageRequest,
    ) -> BoxFuture<'static, Result<crate::provider::image::MadeImage, String>> {
        let sent =
            request.pictures.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect::<String>();
        Box::pin(std::future::ready(Err(sent)))
    }
}

/// A tool of a Markdown file that says that it only reads.
fn cat() -> Arc<dyn Tool> {
    Arc::new(ProgramTool::new(Program {
        name: "tool__cat".to_owned(),
        description: "shows a file".to_owned(),
        parameters: json!({ "type": "object", "properties": { "a": {} } }),
        command: vec!["cat".to_owned(), "{a}".to_owned()],
        is_vector: true,
        only_reads: true,
        timeout_s: 20,
        file: "/x.md".into(),
        digest: "sha256:00".to_owned(),
    }))
}

/// `at/w` is the workspace, a git repository; `at/out` is beside it.
struct Scene {
    _dir: tempfile::TempDir,
    at: PathBuf,
    workspace: Arc<Workspace>,
    config: Arc<ConfigStore>,
    rules: Rules,
    tools: Vec<Arc<dyn Tool>>,
    /// Whether the check is left out.
    is_open: bool,
}

impl Scene {
    async fn new(reader: &Reader, goal: Goal, is_open: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        let content = |word: &str| reader.content.replace("WORD", word);
        for (place, word) in
            [("out/d", SECRET), ("w/private/d", SECRET), ("w/open/d", OPEN), ("w/.linger/skills/s", OPEN)]
        {
            fs::create_dir_all(at.join(place)).unwrap();
            let text = if content(word).starts_with('\u{89}') {
                content(word).chars().map(|c| c as u8).collect()
            } else {
                content(word).into_bytes()
            };
            fs::write(at.join(place).join(reader.file), text).unwrap();
        }
        for dir in ["w/links/out", "w/links/private"] {
            fs::create_dir_all(at.join(dir)).unwrap();
        }
        for (link, target) in [
            ("w/hout", "../out/d".to_owned()),
            ("w/hroot", "/".to_owned()),
            ("w/hlink", "hout".to_owned()),
            ("w/hpriv", "private/d".to_owned()),
            ("w/hplink", "./hpriv/".to_owned()),
            ("w/links/up", "../../out".to_owned()),
        ] {
            symlink(target, at.join(link)).unwrap();
        }
        symlink(format!("../../../out/d/{}", reader.file), at.join("w/links/out").join(reader.file)).unwrap();
        symlink(format!("../../private/d/{}", reader.file), at.join("w/links/private").join(reader.file)).unwrap();
        fs::write(at.join("w/README.md"), "read me\n").unwrap();
        fs::write(at.join("w/seen.txt"), "").unwrap();
        fs::write(at.join("w/.linger/skills/s/SKILL.md"), "---\nname: s\n---\n").unwrap();
        let mut workspace = Workspace::of_files(&at.join("w"), &at.join("w"));
        let path = std::env::var("PATH").unwrap();
        let env = [("PATH", path), ("HOME", at.display().to_string())];
        workspace.env = Arc::new(env.map(|(name, value)| (name.to_owned(), value)).into());
        workspace.timeout_s = 30;
        let (name, file) = ("s".to_owned(), at.join("w/.linger/skills/s/SKILL.md"));
        workspace.skills.set(vec![SkillFiles { name, file, digest: None, limit: None }]);
        let hiding = match goal {
            Goal::Outside => String::new(),
            Goal::Denied => "[permissions]\ndeny = [\"read(**/private/**)\"]\n".to_owned(),
            Goal::Place => {
                let Kind::Placed(place, _) = reader.kind else { unreachable!() };
                format!("[permissions]\ndeny = [\"read({place})\"]\n")
            }
            Goal::AskedAbout => format!("[permissions]\nask = [\"read({}/w/private/**)\"]\n", at.display()),
        };
        let directories = Directories::below(&at.join("linger")).unwrap();
        fs::create_dir_all(&directories.config).unwrap();
        fs::write(directories.config_file(), hiding).unwrap();
        let config = Arc::new(ConfigStore::open(directories, Some(at.clone()), Tools::default()));
        config.look(&at.join("w"));
        let rules = config.current().unwrap().rules.clone();
        let image: Arc<dyn Tool> = Arc::new(Image(Arc::new(Mirror)));
        let tools = [image, cat()].into_iter().chain(builtin()).collect();
        let scene = Self { _dir: dir, at, workspace: Arc::new(workspace), config, rules, tools, is_open };
        if matches!(reader.kind, Kind::Git(_)) {
            scene.sh("git init -q -b main; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m begin; git add -f .
                git -c user.name=a -c user.email=a@b commit -q -m all; echo more >> README.md").await;
        }
        if is_open {
            planted::leave_out(&scene.at);
        }
        scene
    }

    fn root(&self) -> &Path {
        &self.workspace.root
    }

    fn tool(&self, name: &str) -> &Arc<dyn Tool> {
        self.tools.iter().find(|tool| tool.name() == name).unwrap()
    }

    async fn sh(&self, script: &str) -> String {
        let process =
            self.workspace.spawn(Default::default(), None).shell(script, Input::Nothing, Stderr::Merged).await.unwrap();
        let done = process.finish(Duration::from_secs(60), 1 << 20).await.unwrap();
        String::from_utf8_lossy(&done.output).into_owned()
    }

    /// What a model or a provider gets when `reader` is sent to this path.
    async fn read(&self, reader: &Reader, path: &str) -> String {
        match reader.kind {
            Kind::Tool(tool, input, mode) => {
                let input: Value = serde_json::from_str(&input.replace("PATH", path)).unwrap();
                self.call(tool, input, mode).await
            }
            Kind::Git(line) => {
                let args: Vec<String> = line.split(' ').map(|word| word.replace("PATH", path)).collect();
                self.call("git", json!({ "args": args }), Mode::Plan).await
            }
            Kind::Placed(place, how) => {
                self.place(place, path);
                self.placed(how)
            }
            Kind::CommandFile => {
                let settled = Settled { mode: Mode::Ask, grants: &[], denied: &[] };
                let path = match path.strip_prefix("~/") {
                    Some(below) => self.at.join(below),
                    None => self.root().join(path),
                };
                let policy = Policy::new(self.config.clone());
                if self.is_open {
                    return self
                        .config
                        .unasked("read", self.root(), &self.workspace)
                        .open(&path)
                        .map_or_else(|error| error.to_string(), |opened| fs::read_to_string(opened.real).unwrap());
                }
                policy.read_unasked(settled, &self.workspace, &path, 1 << 10).await.unwrap_or_else(|why| why)
            }
            Kind::Source => {
                let mut answer =
                    json!({ "caveats": [], "sources": [{ "file": path, "lines": "1-99", "summary": "" }] });
                let hidden: Hidden = Policy::new(self.config.clone()).hidden(
                    "read",
                    &Access::Read(self.root().to_path_buf()),
                    &self.workspace,
                );
                check_sources(&mut answer, &self.workspace, self.root(), hidden).await;
                answer["caveats"].to_string().replace("the file has", &format!("{SECRET} {OPEN}"))
            }
        }
    }

    /// Puts the file that counts by its place: a link to this path, as the repository would write it.
    fn place(&self, place: &str, path: &str) {
        let link = self.root().join(place);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let _absent = fs::remove_file(&link);
        let up = "../".repeat(Path::new(place).components().count() - 1);
        let target = if path.starts_with('/') { path.to_owned() } else { format!("{up}{path}") };
        symlink(target, link).unwrap();
    }

    fn placed(&self, how: Placed) -> String {
        let root = self.root();
        match how {
            Placed::Instructions => {
                let unasked = self.config.unasked("read", root, &self.workspace);
                format!("{:?}", instructions::load(None, root, root, &unasked))
            }
            Placed::Library(kind) => {
                let (config, cwd) = (self.at.join("config"), root.to_path_buf());
                let places = Places { config, home: Some(self.at.join("home")), root: cwd.clone(), cwd };
                format!("{:?}", Library::load(&self.config, &places).rows(kind, true))
            }
            Placed::Ignored => {
                let call = self.tool("glob").prepare(&json!({ "pattern": "*.txt" }), &self.workspace).unwrap();
                let output = futures_executor(call.run(test_context(&self.workspace, mpsc::channel(9).0)));
                let text: String = output.content.iter().filter_map(ContentBlock::as_text).collect();
                if text.contains("seen.txt") { text } else { format!("{SECRET} {OPEN}") }
            }
            Placed::TestRunner => {
                let hidden: Hidden = Arc::new(hides(&self.rules, "test_run", root, &self.workspace));
                let found = self.tool("test_run").complete(&json!({}), &self.workspace, &hidden);
                found.map_or_else(|why| why.0, |_| format!("{SECRET} {OPEN}"))
            }
            Placed::Configuration => {
                let now = self.config.look(root);
                format!("{:?} {:?}", now.waiting, now.error)
            }
        }
    }

    /// A call, decided on as a turn does, and run if nothing asks.
    async fn call(&self, name: &str, input: Value, mode: Mode) -> String {
        let tool = self.tool(name);
        let call = match tool.prepare(&input, &self.workspace) {
            Ok(call) => call,
            Err(invalid) => return invalid.0,
        };
        let effects = call.effects();
        let resolved = ResolvedAccess::of(&effects.access, &self.workspace, &self.rules);
        let info = CallInfo { tool: name, changes: effects.changes, access: effects.access.clone() };
        // The pictures of `image` go to a host, which asks by itself.
        let mut rules = self.rules.clone();
        if name == "image" {
            let names = ToolSet::new(self.tools.clone()).names().clone();
            let allow = ["image(h.example)", "edit(new.png)"];
            rules.allow = allow.map(|rule| Rule::parse(rule, &names).unwrap()).into();
        }
        let verdict = decide(&rules, &[], mode, &info, &resolved);
        if !self.is_open && !matches!(verdict, Verdict::Allow { .. }) {
            return format!("{verdict:?}");
        }
        if self.is_open && effects.changes && name == "git" {
            return "asks".to_owned();
        }
        let root = effects.access.each().iter().find_map(Access::reads).unwrap_or(self.root()).to_path_buf();
        let (sender, _receiver) = mpsc::channel(4096);
        let context = Context {
            targets: resolved.targets(&effects.access),
            hidden: Arc::new(hides(&self.rules, name, &root, &self.workspace)),
            ..test_context(&self.workspace, sender)
        };
        let output = call.run(context).await;
        let text: String = output.content.iter().filter_map(ContentBlock::as_text).collect();
        // What these say of a file is whether it has a text.
        let is_there = !["does not exist", "is a directory"].iter().any(|why| text.contains(why));
        if ["edit", "apply_patch"].contains(&name) && is_there { format!("ran: {OPEN} {SECRET} {text}") } else { text }
    }
}

/// Runs a future of a blocking call, on a thread of its own.
fn futures_executor<T: Send>(future: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| {
        let run = || tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future);
        scope.spawn(run).join().unwrap()
    })
}

/// The name of a row, for messages.
fn name(reader: &Reader) -> String {
    match reader.kind {
        Kind::Tool(tool, _, mode) => format!("{tool} in mode {mode}"),
        Kind::Git(line) => format!("git {line}"),
        Kind::Placed(place, _) => place.to_owned(),
        Kind::CommandFile => "a file of a command".to_owned(),
        Kind::Source => "a source of an answer".to_owned(),
    }
}

/// The cells of a row in which the secret is given away.
async fn leaks(reader: &Reader, is_open: bool) -> Vec<String> {
    let mut leaks = Vec::new();
    for goal in GOALS {
        let scene = Scene::new(reader, goal, is_open).await;
        for (way, path) in goal.ways(reader.file, &scene.at) {
            let text = scene.read(reader, &path).await;
            if text.contains(SECRET) {
                leaks.push(format!("{} x {way} x {goal:?}: {path}: {text}", name(reader)));
            }
        }
    }
    if let Kind::Placed(place, how @ (Placed::Instructions | Placed::Library(_) | Placed::TestRunner)) = reader.kind {
        let scene = Scene::new(reader, Goal::Place, is_open).await;
        let file = scene.root().join(place);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::copy(scene.at.join("out/d").join(reader.file), file).unwrap();
        if scene.placed(how).contains(SECRET) {
            leaks.push(format!("{} x plain x a rule about its place", name(reader)));
        }
    }
    leaks
}

#[tokio::test]
async fn nothing_is_read_without_asking_that_lies_outside_or_that_a_rule_hides() {
    let mut wrong = Vec::new();
    for reader in READERS {
        wrong.extend(leaks(reader, false).await);
    }
    assert!(wrong.is_empty(), "{} cells: {wrong:#?}", wrong.len());
}

#[tokio::test]
async fn every_reader_of_the_table_reads_what_is_open() {
    let mut wrong = Vec::new();
    for reader in READERS {
        let scene = Scene::new(reader, Goal::Denied, false).await;
        let text = match reader.kind {
            Kind::Placed(place, how) => {
                let file = scene.root().join(place);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::copy(scene.root().join("open/d").join(reader.file), file).unwrap();
                scene.placed(how)
            }
            Kind::Tool("skill", ..) => scene.read(reader, reader.file).await,
            _ => scene.read(reader, &format!("open/d/{}", reader.file)).await,
        };
        if !text.contains(OPEN) && !matches!(reader.kind, Kind::Git(line) if line.contains("--no-index")) {
            wrong.push(format!("{}: {text}", name(reader)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn the_table_finds_a_check_that_is_left_out() {
    let mut wrong = Vec::new();
    for reader in READERS {
        let finds = !leaks(reader, true).await.is_empty();
        if finds != reader.needs_the_check {
            wrong.push(format!("{}: finds it: {finds}", name(reader)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_built_in_tool_is_in_the_table_of_readers_or_reads_nothing() {
    let in_table = |tool: &str| {
        READERS.iter().any(|reader| match reader.kind {
            Kind::Tool(name, ..) => name == tool,
            Kind::Git(_) => tool == "git",
            Kind::Placed(_, Placed::TestRunner) => tool == "test_run",
            _ => false,
        })
    };
    let tools = builtin();
    let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
    let unknown: Vec<&&str> =
        names.iter().filter(|name| !in_table(name) && !READ_NOTHING.iter().any(|(known, _)| known == *name)).collect();
    assert!(unknown.is_empty(), "neither in READERS nor in READ_NOTHING: {unknown:?}");
    let gone: Vec<&(&str, &str)> = READ_NOTHING.iter().filter(|(name, _)| !names.contains(name)).collect();
    assert!(gone.is_empty(), "no tool: {gone:?}");
    for kind in FileKind::ALL {
        let has = |reader: &Reader| matches!(reader.kind, Kind::Placed(_, Placed::Library(of)) if of == kind);
        assert!(READERS.iter().any(has), "{kind:?}");
    }
}

#[test]
fn every_source_that_opens_files_is_known() {
    let opens = [
        ".open()",
        "File::open(",
        "fs::read(",
        "fs::read_to_string(",
        "OpenOptions::new()",
        ".read(SMALL",
        ".read(MAX",
        ".read(FILE",
        ".read(TEXT",
        "fs::copy(",
    ];
    let mut unknown = BTreeMap::new();
    for file in source::read("daemon/src/lib.rs") {
        let path = file.path.to_string_lossy().into_owned();
        let path = path.trim_start_matches("daemon/src/").trim_end_matches(".rs").to_owned();
        let is_known = OWN.iter().any(|own| path == *own || path.starts_with(&format!("{own}/")))
            || KNOWN.contains(&path.as_str());
        if let Some(how) = opens.iter().find(|how| file.text.contains(**how)).filter(|_| !is_known) {
            unknown.insert(path, how);
        }
    }
    assert!(unknown.is_empty(), "put what it reads into READERS, or say in OWN that it is no one else's: {unknown:#?}");
}
