//! Which files count, of those that the disk has; and whether another program says the same of them.

use std::fs;
use std::os::unix::fs::symlink;

use linger_protocol::event::Level;
use linger_protocol::place::Places as Directories;
use tempfile::TempDir;

use super::*;
use crate::tool::set::Tools;

struct Scene {
    dir: TempDir,
    config: ConfigStore,
    places: Places,
}

impl Scene {
    /// Files below the scene's directory: `config`, `home`, and the workspace `w` with the session in `w/sub`.
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        fs::create_dir_all(at.join("w/sub")).unwrap();
        let config = ConfigStore::open(Directories::below(&at.join("linger")).unwrap(), None, Tools::default());
        let places = Places {
            config: at.join("config"),
            home: Some(at.join("home")),
            root: at.join("w"),
            cwd: at.join("w/sub"),
        };
        let scene = Self { dir, config, places };
        files.iter().for_each(|(path, text)| scene.write(path, text));
        scene
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn library(&self) -> Library {
        Library::load(&self.config, &self.places)
    }

    /// Each row of a kind: name, status and the beginning of its path below the scene.
    fn rows(&self, kind: Kind) -> Vec<String> {
        let at = self.dir.path().canonicalize().unwrap();
        let row = |row: Item| {
            let path = row.path.strip_prefix(&at).unwrap().display().to_string();
            format!("{} {:?} {path}", row.name, row.status)
        };
        self.library().rows(kind, false).into_iter().map(row).collect()
    }

    fn trust(&self) -> Vec<String> {
        let waiting = self.config.look(&self.places.root).waiting.clone().unwrap();
        self.config.trust(&self.places.root, &waiting, "me").unwrap();
        waiting.lines()
    }
}

fn skill(name: &str, about: &str) -> String {
    format!("---\nname: {name}\ndescription: {about}\n---\nDo it.\n")
}

#[test]
fn a_file_of_a_workspace_counts_once_it_is_trusted_and_as_long_as_it_stays_the_same() {
    let (mine, theirs) = (skill("pdf", "mine"), skill("pdf", "theirs"));
    let scene = Scene::new(&[("config/skills/pdf/SKILL.md", &mine), ("w/.claude/skills/pdf/SKILL.md", &theirs)]);
    let waits = ["pdf Waits w/.claude/skills/pdf/SKILL.md", "pdf Active config/skills/pdf/SKILL.md"];
    assert_eq!(scene.rows(Kind::Skill), waits);
    let lines = scene.trust();
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("files.\".claude/skills/pdf/SKILL.md\": new, sha256:"), "{lines:?}");
    let trusted = ["pdf Active w/.claude/skills/pdf/SKILL.md", "pdf Hidden config/skills/pdf/SKILL.md"];
    assert_eq!(scene.rows(Kind::Skill), trusted);
    scene.write("w/.claude/skills/pdf/SKILL.md", &skill("pdf", "changed"));
    assert_eq!(scene.rows(Kind::Skill), waits);
    assert!(scene.trust()[0].contains(": changed, sha256:"));
    assert_eq!(scene.rows(Kind::Skill), trusted);
    scene.config.distrust(&scene.places.root, "me").unwrap();
    assert_eq!(scene.rows(Kind::Skill), waits);
}

#[test]
fn a_config_file_cannot_trust_files() {
    let theirs = skill("pdf", "theirs");
    let hash = find::digest(&theirs);
    let config = format!("[files]\n\".agents/skills/pdf/SKILL.md\" = \"{hash}\"\n");
    let scene = Scene::new(&[("w/.agents/skills/pdf/SKILL.md", &theirs), ("w/.linger/config.toml", &config)]);
    assert_eq!(scene.rows(Kind::Skill), ["pdf Waits w/.agents/skills/pdf/SKILL.md"]);
    assert!(scene.config.look(&scene.places.root).error.is_some());
}

#[test]
fn each_kind_is_found_where_programs_keep_it_and_the_nearest_counts() {
    let text = "---\ndescription: x\n---\nText.\n";
    let scene = Scene::new(&[
        ("w/sub/.opencode/agents/near.md", text),
        ("w/.github/agents/copilot.agent.md", text),
        ("w/.linger/agents/near.md", text),
        ("w/.claude/commands/review.md", text),
        ("config/commands/mine.md", text),
        ("config/commands/.hidden.md", text),
        ("config/commands/shell.md", "a\n!`date`\n"),
        ("home/.claude/skills/deep/er/SKILL.md", &skill("er", "x")),
        ("home/.agents/skills/node_modules/no/SKILL.md", &skill("no", "x")),
        ("home/.agents/skills/bad/SKILL.md", "# no header\n"),
    ]);
    scene.library();
    scene.trust();
    let (near, hidden) = ("near Active w/sub/.opencode/agents/near.md", "near Hidden w/.linger/agents/near.md");
    assert_eq!(scene.rows(Kind::Agent), ["copilot Active w/.github/agents/copilot.agent.md", near, hidden]);
    let commands = [
        "mine Active config/commands/mine.md",
        "review Active w/.claude/commands/review.md",
        "shell Broken config/commands/shell.md",
    ];
    assert_eq!(scene.rows(Kind::Command), commands);
    let skills = ["bad Broken home/.agents/skills/bad/SKILL.md", "er Active home/.claude/skills/deep/er/SKILL.md"];
    assert_eq!(scene.rows(Kind::Skill), skills);
}

#[test]
fn a_link_out_of_the_workspace_is_left_out_and_one_of_the_user_is_followed() {
    let scene = Scene::new(&[("dots/pdf/SKILL.md", &skill("pdf", "x")), ("w/.claude/x", ""), ("home/.claude/x", "")]);
    let at = scene.dir.path();
    symlink(at.join("dots"), at.join("w/.claude/skills")).unwrap();
    symlink("/dev/zero", at.join("w/.claude/commands")).unwrap();
    assert_eq!(scene.rows(Kind::Skill), ["skills Broken w/.claude/skills"]);
    let rows = scene.library().rows(Kind::Skill, false);
    assert!(rows[0].problems[0].text.contains("leads out of the workspace"), "{rows:?}");
    symlink(at.join("dots"), at.join("home/.claude/skills")).unwrap();
    let rows = ["pdf Active home/.claude/skills/pdf/SKILL.md", "skills Broken w/.claude/skills"];
    assert_eq!(scene.rows(Kind::Skill), rows);
}

/// A skill's directory, its file, and whether it is as the specification has it.
const TABLE: &[(&str, &str, bool)] = &[
    ("good", "---\nname: good\ndescription: Does it. Use it when asked.\n---\nBody\n", true),
    (
        "full-one",
        "---\nname: full-one\ndescription: Fine\nlicense: MIT\ncompatibility: any\nmetadata:\n  a: b\nallowed-tools: Read Bash(git:*)\n---\n",
        true,
    ),
    ("block", "---\nname: block\ndescription: >\n  Folded\n  text\n---\n", true),
    ("quoted", "---\nname: quoted\ndescription: \"Use when: asked\"\n---\n", true),
    ("number-1", "---\nname: number-1\ndescription: 12\n---\n", true),
    ("colon", "---\nname: colon\ndescription: Use when: asked\n---\n", false),
    ("Upper", "---\nname: Upper\ndescription: x\n---\n", false),
    ("other", "---\nname: another\ndescription: x\n---\n", false),
    ("two--hyphens", "---\nname: two--hyphens\ndescription: x\n---\n", false),
    ("under_score", "---\nname: under_score\ndescription: x\n---\n", false),
    ("no-description", "---\nname: no-description\n---\n", false),
    ("empty-description", "---\nname: empty-description\ndescription:\n---\n", false),
    ("no-name", "---\ndescription: x\n---\n", false),
    ("extra", "---\nname: extra\ndescription: x\nversion: 1\n---\n", false),
    ("no-header", "# Title\n", false),
    ("unclosed", "---\nname: unclosed\ndescription: x\n", false),
    ("list", "---\n- a\n---\n", false),
    ("duplicate", "---\nname: duplicate\nname: duplicate\ndescription: x\n---\n", false),
];

#[test]
#[allow(clippy::disallowed_methods, reason = "the validator of the specification's authors is another program")]
fn the_validator_of_the_specification_says_the_same_of_good_and_bad_skills() {
    let scene = Scene::new(&[]);
    let tools = scene.config.tools().current();
    let program = std::env::var_os("LINGER_AGENTSKILLS").unwrap_or_else(|| "agentskills".into());
    let validator = std::process::Command::new(&program).arg("--help").output().is_ok();
    assert!(validator || std::env::var_os("CI").is_none(), "install skills-ref from PyPI");
    for (name, text, is_good) in TABLE {
        scene.write(&format!("{name}/SKILL.md"), text);
        let path = scene.dir.path().join(name);
        let item = check(Kind::Skill, &path, tools.names(), false);
        let is_right = !item.problems.iter().any(|problem| problem.level == Level::Error);
        assert_eq!(is_right, *is_good, "{name}: {:?}", item.problems);
        if validator {
            let theirs = std::process::Command::new(&program).arg("validate").arg(&path).output().unwrap();
            assert_eq!(theirs.status.success(), *is_good, "{name}: {theirs:?}");
        }
    }
}
