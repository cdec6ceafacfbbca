//! Which command runs the tests of a project: by the files that its directory has. Blocks on the disk.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::tool::handle::Entry;
use crate::tool::text::shell_word;

/// The longest file that is looked into, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// What the error names when nothing is found.
pub(super) const LOOKED_FOR: &str = "Cargo.toml, package.json with a test script, go.mod, pytest's files, a justfile or Makefile with `test`, CTest, Maven, Gradle";

/// The script that `npm init` writes.
const NO_SCRIPT: &str = "no test specified";

/// A command found in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) dir: PathBuf,
    pub(super) command: String,
}

/// The command for the tests of `dir`, or of the nearest directory above it up to `root`; all without links. Fails if the tests
/// that were found take no filter.
pub(super) fn command(dir: &Path, root: &Path, filter: Option<&str>) -> Result<Option<Found>, String> {
    for at in dir.ancestors().take_while(|at| at.starts_with(root)) {
        let place = Place { at, root };
        let found = [cargo, package, go, pytest, just, make, ctest, java].iter().find_map(|find| find(&place));
        let Some((command, takes)) = found else { continue };
        let command = match (filter, takes) {
            (None, _) => command,
            (Some(filter), Some(option)) => format!("{command}{option}{}", shell_word(filter)),
            (Some(_), None) => return Err(format!("`{command}` takes no `filter`; give the whole `command`")),
        };
        return Ok(Some(Found { dir: at.to_path_buf(), command }));
    }
    Ok(None)
}

/// A command, and what comes between it and a filter if it takes one.
type Candidate = Option<(String, Option<&'static str>)>;

/// A directory, and the workspace that it belongs to.
struct Place<'a> {
    at: &'a Path,
    root: &'a Path,
}

impl Place<'_> {
    fn has(&self, name: &str) -> bool {
        self.at.join(name).is_file()
    }

    /// Whether it is here or above, as the lock file of several packages is.
    fn has_above(&self, name: &str) -> bool {
        self.at.ancestors().take_while(|at| at.starts_with(self.root)).any(|at| at.join(name).is_file())
    }

    fn text(&self, name: &str) -> Option<String> {
        let bytes = Entry::at(&self.at.join(name)).ok()?.read(FILE_MAX).ok()??;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn says(&self, name: &str, what: &str) -> bool {
        self.text(name).is_some_and(|text| text.contains(what))
    }

    /// Whether one of these files has a rule or recipe of this name.
    fn has_recipe(&self, files: &[&str], recipe: &str) -> bool {
        files.iter().filter_map(|file| self.text(file)).any(|text| {
            text.lines().any(|line| {
                let rest = line.strip_prefix(recipe).unwrap_or_default();
                // `test:` and `test args:`, and no assignment.
                (rest.starts_with(':') || rest.starts_with(' ')) && rest.contains(':') && !rest.contains(":=")
            })
        })
    }
}

fn some(command: &str, filter: Option<&'static str>) -> Candidate {
    Some((command.to_owned(), filter))
}

fn cargo(place: &Place<'_>) -> Candidate {
    place.has("Cargo.toml").then(|| some("cargo test", Some(" ")))?
}

fn package(place: &Place<'_>) -> Candidate {
    let package: Value = serde_json::from_str(&place.text("package.json")?).ok()?;
    let script = package.get("scripts")?.get("test")?.as_str().filter(|script| !script.contains(NO_SCRIPT))?;
    let filter = [("vitest", " -t "), ("jest", " -t "), ("mocha", " -g "), ("ava", " -m ")];
    let filter = filter.iter().find(|(runner, _)| script.contains(runner)).map(|(_, option)| *option);
    let named = package.get("packageManager").and_then(Value::as_str).unwrap_or_default();
    let is_of = |manager: &str, lock: &str| named.starts_with(&format!("{manager}@")) || place.has_above(lock);
    if is_of("pnpm", "pnpm-lock.yaml") {
        some("pnpm test", filter)
    } else if is_of("yarn", "yarn.lock") {
        some("yarn test", filter)
    } else if is_of("bun", "bun.lock") || place.has_above("bun.lockb") {
        some("bun run test", filter)
    } else {
        // npm takes the options before `--` for its own.
        let filter =
            filter.and_then(|option| [" -- -t ", " -- -g ", " -- -m "].into_iter().find(|it| it.ends_with(option)));
        some("npm test", filter)
    }
}

fn go(place: &Place<'_>) -> Candidate {
    place.has("go.mod").then(|| some("go test ./...", Some(" -run ")))?
}

fn pytest(place: &Place<'_>) -> Candidate {
    let is_configured = ["pytest.ini", ".pytest.ini", "conftest.py"].iter().any(|name| place.has(name))
        || ["pyproject.toml", "tox.ini", "setup.cfg"].iter().any(|name| place.says(name, "pytest"));
    let is_python = ["pyproject.toml", "setup.py", "setup.cfg", "requirements.txt"].iter().any(|name| place.has(name));
    let has_tests = || ["tests", "test"].iter().any(|name| place.at.join(name).is_dir());
    if !(is_configured || is_python && has_tests()) {
        return None;
    }
    let filter = Some(" -k ");
    if place.has_above("uv.lock") {
        some("uv run pytest", filter)
    } else if place.has_above("poetry.lock") {
        some("poetry run pytest", filter)
    } else {
        let own = [".venv/bin/pytest", "venv/bin/pytest"].into_iter().find(|name| place.has(name));
        some(own.unwrap_or("pytest"), filter)
    }
}

fn just(place: &Place<'_>) -> Candidate {
    place.has_recipe(&["justfile", "Justfile", ".justfile"], "test").then(|| some("just test", None))?
}

fn make(place: &Place<'_>) -> Candidate {
    let recipe = ["test", "check"]
        .into_iter()
        .find(|recipe| place.has_recipe(&["GNUmakefile", "makefile", "Makefile"], recipe))?;
    some(&format!("make {recipe}"), None)
}

fn ctest(place: &Place<'_>) -> Candidate {
    if place.has("CTestTestfile.cmake") {
        return some("ctest --output-on-failure", Some(" -R "));
    }
    place.has("build/CTestTestfile.cmake").then(|| some("ctest --test-dir build --output-on-failure", Some(" -R ")))?
}

fn java(place: &Place<'_>) -> Candidate {
    const TABLE: [(&str, &str, &str); 4] = [
        ("mvnw", "./mvnw test", " -Dtest="),
        ("pom.xml", "mvn test", " -Dtest="),
        ("gradlew", "./gradlew test", " --tests "),
        ("build.gradle", "gradle test", " --tests "),
    ];
    let (_, command, filter) = TABLE.iter().find(|(file, ..)| place.has(file))?;
    some(command, Some(filter))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn check(files: &[(&str, &str)], filter: Option<&str>, expect: &str) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for (name, text) in files {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), text).unwrap();
        }
        let found = command(&root, &root, filter);
        let said = found.map(|found| found.map_or_else(|| "none".to_owned(), |found| found.command));
        assert_eq!(said.unwrap_or_else(|why| why), expect, "{files:?}");
    }

    #[test]
    fn a_project_is_known_by_its_files() {
        let jest = r#"{"scripts": {"test": "jest"}}"#;
        check(&[], None, "none");
        check(&[("Cargo.toml", "")], None, "cargo test");
        check(&[("Cargo.toml", "")], Some("my test"), "cargo test 'my test'");
        check(&[("package.json", jest)], Some("a$b"), "npm test -- -t 'a$b'");
        check(&[("package.json", jest), ("pnpm-lock.yaml", "")], Some("x"), "pnpm test -t x");
        check(&[("package.json", jest), ("yarn.lock", "")], None, "yarn test");
        check(&[("package.json", jest), ("bun.lock", "")], None, "bun run test");
        check(&[("package.json", r#"{"scripts":{"test":"node --test"}}"#)], None, "npm test");
        let expect = "`npm test` takes no `filter`; give the whole `command`";
        check(&[("package.json", r#"{"scripts":{"test":"node --test"}}"#)], Some("x"), expect);
        let none = r#"{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}"#;
        check(&[("package.json", none)], None, "none");
        check(&[("package.json", "not json"), ("Makefile", "test:\n\tx\n")], None, "make test");
        check(&[("go.mod", "")], Some("TestX"), "go test ./... -run TestX");
        check(&[("pyproject.toml", "[tool.pytest.ini_options]")], Some("a or b"), "pytest -k 'a or b'");
        check(&[("setup.py", ""), ("tests/test_a.py", "")], None, "pytest");
        check(&[("setup.py", "")], None, "none");
        check(&[("conftest.py", ""), ("uv.lock", "")], None, "uv run pytest");
        check(&[("conftest.py", ""), (".venv/bin/pytest", "")], None, ".venv/bin/pytest");
        check(&[("justfile", "test *args:\n  x")], None, "just test");
        check(&[("Makefile", "test := 1\ncheck: all\n")], None, "make check");
        check(&[("build/CTestTestfile.cmake", "")], Some("x"), "ctest --test-dir build --output-on-failure -R x");
        check(&[("pom.xml", "")], Some("X"), "mvn test -Dtest=X");
    }

    #[test]
    fn the_nearest_project_counts_and_none_above_the_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let inner = root.join("w/a/src");
        fs::create_dir_all(&inner).unwrap();
        fs::write(root.join("Cargo.toml"), "").unwrap();
        assert_eq!(command(&inner, &root.join("w"), None), Ok(None));
        fs::write(root.join("w/a/go.mod"), "").unwrap();
        fs::write(root.join("w/Makefile"), "test:\n").unwrap();
        let found = command(&inner, &root.join("w"), None).unwrap().unwrap();
        assert_eq!(found, Found { dir: root.join("w/a"), command: "go test ./...".to_owned() });
    }
}
