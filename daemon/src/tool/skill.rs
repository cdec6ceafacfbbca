//! `skill`: a skill's SKILL.md, or a file of its directory.
//!
//! Which skills there are, the turn says at its beginning ([`Skills`](super::skills::Skills)); a session without any has no such tool. What is opened lies
//! below the skill's directory, links resolved, and no link is followed to it. Rules about `read` hold for it too.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use linger_protocol::agent::SkillLimit;
use linger_protocol::event::ToolKind;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::access::Effects;
use super::handle::Entry;
use super::invalid::Invalid;
use super::names::Takes;
use super::skills::SkillFiles;
use super::types::{BoxFuture, Call, Context, SessionTraits, Tool, ToolOutput, blocking};
use super::workspace::Workspace;
use super::{args, text};

/// Name in lists of tools and in rules.
pub const NAME: &str = "skill";

/// The most of a file that one call gives, in bytes: about 12,000 tokens, as `read` gives.
const BYTES_MAX: usize = 48 << 10;

/// The most files of a skill that are listed.
const FILES_MAX: usize = 100;

/// How deep below the skill's directory files are listed; the specification has one level.
const DEPTH_MAX: usize = 3;

/// The most directory entries that are looked at for the list.
const ENTRIES_MAX: usize = 2000;

pub(super) struct Skill;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    name: String,
    /// a file of the skill, relative to its directory; SKILL.md when absent
    file: Option<String>,
}

impl Tool for Skill {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        include_str!("skill.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn changes(&self) -> bool {
        false
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn pattern(&self) -> Takes {
        Takes::Path
    }

    fn offered(&self, session: &SessionTraits<'_>) -> bool {
        session.has_skills && session.names(NAME)
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { name, file } = args::parse(input)?;
        let skills = workspace.skills.get();
        let Some(place) = skills.iter().find(|place| place.name == name) else {
            let names: Vec<&str> = skills.iter().map(|place| place.name.as_str()).collect();
            let near = text::did_you_mean(&name, &names);
            return Err(Invalid(format!("there is no skill `{}`{near}", text::brief(&name))));
        };
        let directory = place.file.parent().unwrap_or(Path::new("/")).to_path_buf();
        let path = match file.as_deref() {
            None | Some("SKILL.md" | "") => place.file.clone(),
            Some(file) => {
                let is_below =
                    Path::new(file).components().all(|it| matches!(it, Component::Normal(_) | Component::CurDir));
                if !is_below {
                    return Err(Invalid("`file` is relative to the skill's directory, without `..`".to_owned()));
                }
                directory.join(file)
            }
        };
        let file = (path != place.file).then(|| file.unwrap_or_default());
        Ok(Box::new(ReadSkill { place: place.clone(), directory, path, file, workspace: workspace.clone() }))
    }
}

struct ReadSkill {
    place: SkillFiles,
    directory: PathBuf,
    path: PathBuf,
    /// As the model named it; absent for SKILL.md.
    file: Option<String>,
    workspace: Workspace,
}

impl Call for ReadSkill {
    fn action(&self) -> String {
        let file = self.file.iter().map(|file| format!(" {}", text::one_line(file))).collect::<String>();
        format!("{NAME} {}{file}", self.place.name)
    }

    fn effects(&self) -> Effects {
        Effects::read(self.path.clone())
    }

    fn limit(&self) -> Option<SkillLimit> {
        self.place.limit.clone().filter(|_| self.file.is_none())
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        blocking(move |_| {
            let target = context.reached(&self.workspace, &self.path);
            self.read(&target).unwrap_or_else(|error| {
                let file = self.file.as_deref().unwrap_or("SKILL.md");
                ToolOutput::error(format!("{}: {error}", text::one_line(file)))
            })
        })
    }
}

impl ReadSkill {
    fn read(&self, target: &Path) -> io::Result<ToolOutput> {
        if !target.starts_with(&self.directory) {
            return Err(io::Error::other("leads out of the skill's directory"));
        }
        let (file, metadata) = Entry::at(target)?.open()?;
        let mut bytes = Vec::new();
        file.take(metadata.len().max(BYTES_MAX as u64).min(1 << 20)).read_to_end(&mut bytes)?;
        if memchr::memchr(0, bytes.get(..8192.min(bytes.len())).unwrap_or_default()).is_some() {
            return Err(io::Error::other(format!("is a binary file of {} bytes", metadata.len())));
        }
        let content = text::lossy(&bytes).replace('\0', "");
        if let (None, Some(trusted)) = (&self.file, &self.place.digest) {
            let now =
                Sha256::digest(&content).iter().fold("sha256:".to_owned(), |hex, byte| format!("{hex}{byte:02x}"));
            if now != *trusted {
                return Err(io::Error::other("has changed since it was trusted; a person has to trust it again"));
            }
        }
        let shown = text::head(&content, BYTES_MAX);
        let mut out = shown.to_owned();
        if shown.len() < content.len() || bytes.len() < usize::try_from(metadata.len()).unwrap_or(usize::MAX) {
            out.push_str(&format!(
                "\n[the file of {} bytes goes on; `read` {} shows the rest]",
                metadata.len(),
                target.display()
            ));
        }
        if self.file.is_none() {
            let files = files(&self.directory);
            out.push_str(&format!(
                "\n\n[directory of the skill: {}]",
                text::one_line(&self.directory.to_string_lossy())
            ));
            if !files.is_empty() {
                out.push_str(&format!("\n[its files: {}]", files.join(", ")));
            }
        }
        Ok(ToolOutput::text(out))
    }
}

/// The other files of the skill, by their paths below the directory; links are left out.
fn files(directory: &Path) -> Vec<String> {
    let (mut found, mut looked) = (Vec::new(), 0);
    let mut queue = vec![(directory.to_path_buf(), 0)];
    while let Some((dir, depth)) = queue.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            looked += 1;
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth < DEPTH_MAX && !entry.file_name().to_string_lossy().starts_with('.') {
                queue.push((entry.path(), depth + 1));
            } else if kind.is_file()
                && let Ok(path) = entry.path().strip_prefix(directory)
            {
                found.push(text::one_line(&path.to_string_lossy()));
            }
            if looked >= ENTRIES_MAX {
                queue.clear();
                break;
            }
        }
    }
    found.retain(|file| file != "SKILL.md");
    found.sort();
    let more = found.len().saturating_sub(FILES_MAX);
    found.truncate(FILES_MAX);
    found.extend((more > 0).then(|| format!("and {more} more")));
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::super::tests::{run, test_workspace};
    use super::*;

    fn scene() -> (tempfile::TempDir, Workspace) {
        let (dir, workspace) = test_workspace();
        let skill = workspace.cwd.join("skills/pdf");
        fs::create_dir_all(skill.join("references")).unwrap();
        fs::write(skill.join("SKILL.md"), "---\nname: pdf\n---\nUse it.\n").unwrap();
        fs::write(skill.join("references/forms.md"), "Forms.").unwrap();
        fs::write(workspace.cwd.join("secret"), "key").unwrap();
        symlink("../../secret", skill.join("link")).unwrap();
        let (name, file) = ("pdf".to_owned(), skill.join("SKILL.md"));
        workspace.skills.set(vec![SkillFiles { name, file, digest: None, limit: None }]);
        (dir, workspace)
    }

    #[tokio::test]
    async fn a_skill_comes_whole_with_the_names_of_its_files() {
        let (_dir, workspace) = scene();
        let (text, failed) = run(&Skill, &workspace, json!({ "name": "pdf" })).await;
        assert!(text.contains("Use it.\n") && text.contains("[its files: references/forms.md]") && !failed, "{text}");
        let (text, failed) = run(&Skill, &workspace, json!({ "name": "pdf", "file": "references/forms.md" })).await;
        assert_eq!((text.as_str(), failed), ("Forms.", false));
        let (text, failed) = run(&Skill, &workspace, json!({ "name": "pfd" })).await;
        assert!(text.starts_with("there is no skill `pfd`") && failed, "{text}");
    }

    #[tokio::test]
    async fn nothing_outside_of_the_skill_is_read() {
        let (_dir, workspace) = scene();
        for file in ["../../secret", "/etc/passwd", "link", "references/../../../secret", "missing", "references"] {
            let (text, failed) = run(&Skill, &workspace, json!({ "name": "pdf", "file": file })).await;
            assert!(failed && !text.contains("key"), "{file}: {text}");
        }
    }

    #[tokio::test]
    async fn a_skill_that_changed_since_it_was_trusted_is_not_read() {
        let (_dir, workspace) = scene();
        let file = workspace.cwd.join("skills/pdf/SKILL.md");
        let (name, digest) = ("pdf".to_owned(), Some("sha256:0".to_owned()));
        workspace.skills.set(vec![SkillFiles { name, file, digest, limit: None }]);
        let (text, failed) = run(&Skill, &workspace, json!({ "name": "pdf" })).await;
        assert!(failed && text.contains("has changed since it was trusted"), "{text}");
    }
}
