//! Which files start programs elsewhere, and which are the work itself.

use super::*;

fn starts(path: &str) -> bool {
    reason(&Path::new("/w/proj").join(path)).is_some()
}

#[test]
fn files_that_start_programs_are_known_in_every_directory_and_spelling() {
    let files = [
        ".vscode/tasks.json",
        ".vscode/settings.json",
        ".vscode/mcp.json",
        "proj.code-workspace",
        ".idea/workspace.xml",
        ".run/app.run.xml",
        ".zed/tasks.json",
        ".fleet/run.json",
        ".nvim.lua",
        ".exrc",
        ".vimrc",
        ".dir-locals.el",
        ".helix/languages.toml",
        "x.sublime-project",
        ".devcontainer/devcontainer.json",
        ".devcontainer.json",
        ".gitpod.yml",
        ".claude/settings.json",
        ".claude/settings.local.json",
        ".claude/commands/x.md",
        ".codex/config.toml",
        ".cursor/mcp.json",
        ".cursor/rules/a.mdc",
        ".gemini/settings.json",
        ".opencode/plugin/x.ts",
        "opencode.json",
        ".aider.conf.yml",
        ".continue/config.yaml",
        ".windsurf/hooks.json",
        ".github/copilot-instructions.md",
        ".github/copilot/hooks.json",
        ".mcp.json",
        "mcp.json",
        ".linger/config.toml",
        ".agents/skills/x/SKILL.md",
        ".kiro/hooks/x",
        ".roo/mcp.json",
        ".envrc",
        ".envrc.local",
        "mise.toml",
        ".mise.toml",
        ".mise/config.toml",
        "mise.local.toml",
        ".config/mise/config.toml",
        ".tool-versions",
        "rust-toolchain.toml",
        ".husky/pre-commit",
        ".husky/_/husky.sh",
        ".pre-commit-config.yaml",
        "lefthook.yml",
        ".lefthook/pre-push/x",
        ".lintstagedrc.json",
        ".gitmodules",
        ".gitattributes",
        ".gitconfig",
        ".githooks/pre-commit",
        ".git/config",
        ".git",
        ".hg/hgrc",
        ".jj/repo/config.toml",
        ".cargo/config.toml",
        ".cargo/config",
        ".npmrc",
        ".yarnrc.yml",
        ".yarn/releases/yarn.cjs",
        ".pnpmfile.cjs",
        ".ripgreprc",
        ".bazelrc",
        "ci.bazelrc",
        ".mvn/jvm.config",
        "gradle/wrapper/gradle-wrapper.properties",
        ".github/workflows/ci.yml",
        ".github/actions/x/action.yml",
        ".gitlab-ci.yml",
        ".circleci/config.yml",
        "Jenkinsfile",
        "Jenkinsfile.release",
        ".buildkite/pipeline.yml",
        ".travis.yml",
        "azure-pipelines.yml",
        ".woodpecker.yaml",
        ".forgejo/workflows/x.yml",
        ".bashrc",
        ".zshenv",
        ".ssh/config",
        ".netrc",
        ".gdbinit",
        ".pdbrc",
        ".Rprofile",
        ".ghci",
        ".irbrc",
        ".tmux.conf",
        ".curlrc",
        "x.desktop",
    ];
    for file in files {
        for path in [file.to_owned(), format!("deep/er/{file}"), file.to_uppercase(), format!("{file}/below")] {
            assert!(starts(&path), "{path}");
        }
    }
    for path in [".vscode./tasks.json", ".V\u{200d}SCODE/tasks.json", ".vſcode/x", ".GiT /config", ".\u{212a}iro/x"] {
        assert!(starts(path), "{path}");
    }
}

#[test]
fn the_work_itself_is_free() {
    let files = [
        "Makefile",
        "package.json",
        "build.rs",
        "Cargo.toml",
        "pyproject.toml",
        "setup.py",
        "CMakeLists.txt",
        "justfile",
        "Dockerfile",
        "docker-compose.yml",
        "src/main.rs",
        ".gitignore",
        ".gitkeep",
        ".editorconfig",
        ".env",
        ".env.local",
        ".env.example",
        ".prettierrc",
        ".eslintrc.js",
        ".dockerignore",
        ".rustfmt.toml",
        "clippy.toml",
        ".nvmrc",
        ".node-version",
        ".github/ISSUE_TEMPLATE/bug.md",
        ".github/CODEOWNERS",
        ".github/dependabot.yml",
        "README.md",
        "AGENTS.md",
        "CLAUDE.md",
        "docs/vscode/x.md",
        "git/config",
        "src/vscode.rs",
        "src/mise/mod.rs",
        "tools/run.sh",
        "gradle/libs.toml",
        "ssh/config",
        "workflows/ci.yml",
        "autostart/x.rs",
        "mcp.rs",
        "x.gitattributes.md",
        "my.envrc.md",
        ".changeset/x.md",
        "a.run.rs",
        "mise.md",
        "lefthook.md",
        ".env.production",
        "bin/run",
        "node_modules/x/index.js",
    ];
    for file in files {
        assert_eq!(reason(&Path::new("/w/proj").join(file)), None, "{file}");
    }
}

#[test]
fn the_reason_names_the_part_and_what_it_does() {
    let of = |path: &str| reason(Path::new(path)).unwrap();
    assert_eq!(
        of("/w/a/.github/workflows/ci.yml"),
        "`.github/workflows` is run by a build server, with the keys of the repository"
    );
    assert!(of("/w/.Envrc").starts_with("`.envrc` is run or believed by a shell"));
    // Each name stands once, and in lower case.
    let mut seen = std::collections::BTreeSet::new();
    for (_, name) in patterns() {
        assert!(seen.insert(name), "{name} stands twice");
        assert_eq!(name, name.to_lowercase());
    }
}
