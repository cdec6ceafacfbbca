//! `image`: an image from a prompt and pictures, made by a provider and written to a file.
//!
//! Permission is for the provider's host, for each picture that it gets, and for the file. Deliberately absent: which provider, its
//! key and its wire format ([`ImageModels`]).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use linger_protocol::event::{ModelCost, ToolKind};
use linger_protocol::message::{ContentBlock, MAX_IMAGE, image_type};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::access::{Access, Effects, Targets};
use super::change::{Change, Content, KeptChange};
use super::handle::{self, Entry};
use super::invalid::Invalid;
use super::names::Takes;
use super::types::{BoxFuture, Call, Context, Made, SessionTraits, Tool, ToolOutput, blocking};
use super::workspace::Workspace;
use super::{args, file, path, text};
use crate::provider::image::{ImageRequest, MadeImage};
use crate::store::blob::Blobs;
use crate::sys::task;

/// Name in lists of tools and in rules.
pub const NAME: &str = "image";

/// The most pictures that an image is made from; providers take 3 to 16.
const MAX_PICTURES: usize = 8;

/// The longest prompt, in bytes: what providers take.
const MAX_PROMPT: usize = 32 << 10;

/// How long a provider may take: large images of the best quality take two minutes.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Where images are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageModel {
    /// `provider/model`.
    pub origin: String,
    /// The host that gets prompt and pictures.
    pub host: String,
}

/// The providers, as far as they make images.
pub trait ImageModels: Send + Sync {
    /// The model that would be asked now; absent if no provider can.
    fn chosen(&self) -> Option<ImageModel>;
    /// Asks this model. Fails with a reason for the model and for people.
    fn make(&self, model: ImageModel, request: ImageRequest) -> BoxFuture<'static, Result<MadeImage, String>>;
}

/// The tool, with the providers that it asks.
pub struct Image(pub Arc<dyn ImageModels>);

/// Providers of which none makes images.
struct NoModels;

impl ImageModels for NoModels {
    fn chosen(&self) -> Option<ImageModel> {
        None
    }

    fn make(&self, _: ImageModel, _: ImageRequest) -> BoxFuture<'static, Result<MadeImage, String>> {
        Box::pin(std::future::ready(Err("no configured provider makes images".to_owned())))
    }
}

impl Image {
    /// The tool where no session has it: rules can name it.
    pub(super) fn without_models() -> Self {
        Self(Arc::new(NoModels))
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    prompt: String,
    /// the file to write, .png, .jpg or .webp
    path: String,
    /// files of pictures to begin with
    #[serde(default)]
    pictures: Vec<String>,
    /// such as 1024x1024
    size: Option<String>,
}

impl Tool for Image {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        include_str!("image.md").trim_end()
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Edit
    }

    fn pattern(&self) -> Takes {
        Takes::Host
    }

    fn offered(&self, session: &SessionTraits<'_>) -> bool {
        session.names(NAME) && self.0.chosen().is_some()
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { prompt, path, pictures, size } = args::parse(input)?;
        if prompt.trim().is_empty() || prompt.len() > MAX_PROMPT {
            return Err(Invalid(format!("`prompt` has {} bytes, and may have 1 to {MAX_PROMPT}", prompt.len())));
        }
        if pictures.len() > MAX_PICTURES {
            return Err(Invalid(format!("`pictures` has {}, and may have {MAX_PICTURES}", pictures.len())));
        }
        if let Some(size) = size.as_deref().filter(|size| !is_size(size)) {
            return Err(Invalid(format!("`size` is \"{}\", and should be such as `1024x1024`", text::brief(size))));
        }
        let path = workspace.absolute(&path)?;
        let format = format_of(&path).ok_or_else(|| Invalid("`path` ends in .png, .jpg or .webp".to_owned()))?;
        let pictures: Result<Vec<PathBuf>, Invalid> =
            pictures.iter().map(|picture| workspace.absolute(picture)).collect();
        let Some(model) = self.0.chosen() else {
            return Err(Invalid("no configured provider makes images".to_owned()));
        };
        let (pictures, models, workspace) = (pictures?, self.0.clone(), workspace.clone());
        Ok(Box::new(Making { prompt, path, pictures, size, format, model, models, workspace }))
    }
}

/// Whether this is `auto`, or two numbers of pixels.
fn is_size(size: &str) -> bool {
    let number = |text: &str| (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    size == "auto" || size.split_once('x').is_some_and(|(width, height)| number(width) && number(height))
}

/// The format that a file's name stands for.
fn format_of(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "png" => Some("png"),
        "jpg" | "jpeg" => Some("jpeg"),
        "webp" => Some("webp"),
        _ => None,
    }
}

struct Making {
    prompt: String,
    path: PathBuf,
    pictures: Vec<PathBuf>,
    size: Option<String>,
    format: &'static str,
    model: ImageModel,
    models: Arc<dyn ImageModels>,
    workspace: Workspace,
}

impl Call for Making {
    fn action(&self) -> String {
        let show = |path: &PathBuf| path::show(&self.workspace.cwd, path);
        let from: Vec<String> = self.pictures.iter().map(show).collect();
        let from = if from.is_empty() { String::new() } else { format!(" from {}", from.join(", ")) };
        format!("image {}{from}, made by {}", show(&self.path), self.model.origin)
    }

    fn effects(&self) -> Effects {
        let reads = self.pictures.iter().cloned().map(Access::Read);
        let rest = [Access::Network(self.model.host.clone()), Access::Write(self.path.clone())];
        Effects::several(reads.chain(rest).collect())
    }

    fn refusal(&self, targets: &Targets) -> Option<String> {
        let target = targets.of(&self.path)?;
        self.replaceable(target).err().map(not_made)
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(async move {
            let this = Arc::new(*self);
            let targets: Vec<PathBuf> =
                this.pictures.iter().map(|picture| context.reached(&this.workspace, picture)).collect();
            let target = context.reached(&this.workspace, &this.path);
            // What is wrong with the file is said before anything is paid for.
            let (looking, at) = (this.clone(), target.clone());
            let looked = task::spawn_blocking(move || looking.look(&targets, &at)).await;
            let pictures = match looked.unwrap_or_else(|error| Err(format!("the tool failed: {error}"))) {
                Ok(pictures) => pictures,
                Err(why) => return ToolOutput::error(not_made(why)),
            };
            let (prompt, size) = (this.prompt.clone(), this.size.clone());
            let request = ImageRequest { prompt, pictures, format: this.format, size };
            let making = this.models.make(this.model.clone(), request);
            let late = || Err(format!("no answer within {} s", TIMEOUT.as_secs()));
            let made = match tokio::time::timeout(TIMEOUT, making).await.unwrap_or_else(|_| late()) {
                Ok(made) => made,
                Err(why) => return ToolOutput::error(format!("no image is made: {}: {why}", this.model.origin)),
            };
            let blobs = context.blobs;
            blocking(move |_| this.write(&target, made, &blobs)).await
        })
    }
}

impl Making {
    /// The pictures, once the file can be written.
    fn look(&self, targets: &[PathBuf], target: &Path) -> Result<Vec<(&'static str, Vec<u8>)>, String> {
        if !self.workspace.cwd.is_dir() {
            return Err(file::gone(&self.workspace));
        }
        self.replaceable(target)?;
        let picture = |(path, target): (&PathBuf, &PathBuf)| {
            let shown = path::show(&self.workspace.cwd, path);
            let read = Entry::at(target).and_then(|entry| entry.read(MAX_IMAGE));
            let bytes = read.map_err(|error| file::explain(&self.workspace, path, target, &error))?;
            let bytes = bytes.ok_or_else(|| format!("{shown} has more than {MAX_IMAGE} bytes"))?;
            let media_type = image_type(&bytes).ok_or_else(|| format!("{shown} is no picture"))?;
            Ok((media_type, bytes))
        };
        self.pictures.iter().zip(targets).map(picture).collect()
    }

    /// Fails if the file, as it is now, is not to be written.
    fn replaceable(&self, target: &Path) -> Result<(), String> {
        let before = content(target).map_err(|error| file::explain(&self.workspace, &self.path, target, &error))?;
        self.may_replace(target, &before)
    }

    fn may_replace(&self, target: &Path, before: &Content) -> Result<(), String> {
        let shown = path::show(&self.workspace.cwd, &self.path);
        self.workspace.seen.check(target, before).map_err(|why| format!("{shown} is not overwritten: {why}"))
    }

    fn write(&self, target: &Path, MadeImage { media_type, bytes, usage }: MadeImage, blobs: &Blobs) -> ToolOutput {
        let shown = path::show(&self.workspace.cwd, &self.path);
        let image = ContentBlock::image(media_type, BASE64.encode(&bytes));
        let size = bytes.len();
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let made = vec![Made { name, content_type: media_type.to_owned(), bytes: bytes.clone() }];
        let written = self.replace(target, bytes, blobs);
        let kind = media_type.trim_start_matches("image/");
        let other = if kind == self.format { String::new() } else { format!("; it is {kind}, whatever its name says") };
        let mut output = match written {
            Ok(change) => {
                let said = format!("made {shown}, {size} bytes, by {}{other}", self.model.origin);
                ToolOutput { changes: vec![change], ..ToolOutput::text(said) }
            }
            // It is paid for: the model has it, and the log keeps it.
            Err(why) => ToolOutput::error(format!("the image is made, and not written: {why}")),
        };
        output.content.extend((size as u64 <= MAX_IMAGE).then_some(image));
        let model_cost = Some(ModelCost { model: self.model.origin.clone(), usage });
        ToolOutput { made, model_cost, ..output }
    }

    fn replace(&self, target: &Path, bytes: Vec<u8>, blobs: &Blobs) -> Result<KeptChange, String> {
        let failed = |error: io::Error| file::explain(&self.workspace, &self.path, target, &error);
        let missing = handle::missing_above(target);
        let entry = Entry::make(target).map_err(failed)?;
        let before = content(target).map_err(failed)?;
        self.may_replace(target, &before)?;
        let mut kept = Change::written(target, before, bytes.as_slice()).keep(blobs).map_err(failed)?;
        kept.change.directories = vec![0o755; missing];
        entry.replace(&bytes).map_err(failed)?;
        // A picture has no lines that could fit together with those of another session.
        let _other = self.workspace.seen.wrote(target, &bytes, None);
        Ok(kept)
    }
}

fn not_made(why: String) -> String {
    format!("no image is made: {why}")
}

fn content(target: &Path) -> io::Result<Content> {
    match Entry::at(target).and_then(|entry| Content::of(&entry)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Content::Missing),
        content => content,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use linger_protocol::message::Usage;
    use serde_json::json;

    use super::*;
    use crate::tool::tests::{run, test_workspace};

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";

    #[derive(Default)]
    struct Fake(Mutex<Vec<ImageRequest>>, Option<&'static str>);

    impl ImageModels for Fake {
        fn chosen(&self) -> Option<ImageModel> {
            Some(ImageModel { origin: "work/painter".to_owned(), host: "paint.example".to_owned() })
        }

        fn make(&self, _: ImageModel, request: ImageRequest) -> BoxFuture<'static, Result<MadeImage, String>> {
            self.0.lock().unwrap().push(request);
            let usage = Usage { input_tokens: 7, cost_micros: Some(9), ..Usage::default() };
            let made = MadeImage { media_type: "image/png", bytes: PNG.to_vec(), usage };
            Box::pin(std::future::ready(self.1.map_or(Ok(made), |why| Err(why.to_owned()))))
        }
    }

    #[tokio::test]
    async fn an_image_is_made_from_pictures_and_written() {
        let (_dir, workspace) = test_workspace();
        std::fs::write(workspace.cwd.join("a.png"), PNG).unwrap();
        let fake = Arc::new(Fake::default());
        let tool = Image(fake.clone());
        let input = json!({ "prompt": "a cat", "path": "out/b.png", "pictures": ["a.png"], "size": "1024x1024" });
        let call = tool.prepare(&input, &workspace).unwrap();
        assert_eq!(call.action(), "image out/b.png from a.png, made by work/painter");
        let [a, b] = ["a.png", "out/b.png"].map(|name| workspace.cwd.join(name));
        let host = Access::Network("paint.example".to_owned());
        assert_eq!(call.effects().access, Access::Several(vec![Access::Read(a), host, Access::Write(b.clone())]));
        assert_eq!(run(&tool, &workspace, input.clone()).await.0, "made out/b.png, 12 bytes, by work/painter");
        assert_eq!(std::fs::read(&b).unwrap(), PNG);
        let asked = fake.0.lock().unwrap().pop().unwrap();
        assert_eq!((asked.pictures, asked.format), (vec![("image/png", PNG.to_vec())], "png"));
        // What it wrote it knows, and what another wrote it does not.
        assert!(!run(&tool, &workspace, input.clone()).await.1);
        std::fs::write(&b, "mine").unwrap();
        let (said, failed) = run(&tool, &workspace, input).await;
        assert!(failed && said.starts_with("no image is made: out/b.png is not overwritten: it has changed"), "{said}");
    }

    #[tokio::test]
    async fn what_cannot_be_made_costs_nothing_and_says_why() {
        let (_dir, workspace) = test_workspace();
        std::fs::write(workspace.cwd.join("text"), "x").unwrap();
        let fake = Arc::new(Fake(Mutex::default(), Some("it gave no image: SAFETY")));
        let tool = Image(fake.clone());
        for (input, expect) in [
            (json!({ "prompt": "", "path": "a.png" }), "`prompt` has 0 bytes"),
            (json!({ "prompt": "x", "path": "a.gif" }), "`path` ends in .png"),
            (json!({ "prompt": "x", "path": "a.png", "size": "big" }), "`size` is \"big\""),
            (json!({ "prompt": "x", "path": "a.png", "pictures": ["text"] }), "no image is made: text is no picture"),
            (json!({ "prompt": "x", "path": "a.png", "pictures": ["none"] }), "no image is made: none does not exist"),
            (json!({ "prompt": "x", "path": "text/a.png" }), "no image is made: text/a.png"),
        ] {
            let (said, failed) = run(&tool, &workspace, input).await;
            assert!(failed && said.starts_with(expect), "{said}");
        }
        assert!(fake.0.lock().unwrap().is_empty());
        let (said, failed) = run(&tool, &workspace, json!({ "prompt": "x", "path": "a.png" })).await;
        assert!(failed && said == "no image is made: work/painter: it gave no image: SAFETY", "{said}");
        assert!(!workspace.cwd.join("a.png").exists());
    }
}
