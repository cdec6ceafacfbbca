//! Files that start programs elsewhere: mode `edit` asks before one changes, in whatever directory it lies.
//!
//! An editor that opens the workspace, a shell that enters it, git, another agent or a build server reads them and runs what they
//! name, with nobody asking. Build files (`Makefile`, `package.json`, `build.rs`, `Cargo.toml`) are not among them: changing those
//! is the work itself, and they run when somebody builds. Data and its comparison; pure.

use std::path::{Component, Path};

/// Files of one kind.
struct Starters {
    /// Their effect, to stand behind a name: `.envrc` is run by a shell that enters the directory.
    effect: &'static str,
    /// Names, separated by blanks: a file, a directory with all below it, or several parts of a path joined by `/`. A `*` stands for
    /// any characters at the end of a name, at its beginning, or between two dots.
    names: &'static str,
}

/// The table. Names are in lower case: they are compared without case, as some file systems do.
const TABLE: [Starters; 13] = [
    Starters {
        effect: "says what git or another version control runs and where it looks: hooks, filters, submodules",
        names: ".git .gitmodules .gitattributes .gitconfig .gitconfig.* .lfsconfig .githooks .git-hooks .gitlint .hg .hgrc \
                .hgsub .jj .jjconfig.toml .svn .bzr .sl .fossil-settings",
    },
    Starters {
        effect: "names commands that run at a commit",
        names: ".husky .huskyrc* .pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml prek.toml lefthook.yml \
                lefthook.yaml lefthook.toml lefthook.json lefthook-local.* .lefthook* .lintstagedrc* lint-staged.config.* \
                .overcommit.yml .simple-git-hooks* simple-git-hooks.* .commitlintrc* commitlint.config.* .czrc \
                .captainhook.json captainhook.json grumphp.yml grumphp.yml.dist rusty-hook.toml .rusty-hook.toml .cargo-husky",
    },
    Starters {
        effect: "has tasks or settings of an editor, which starts programs by them",
        names: ".vscode *.code-workspace .vs .idea .run .fleet .zed .theia .nova .lapce .atom .helix .lvimrc .nvimrc .nvim.lua \
                .exrc .vimrc .gvimrc _vimrc _gvimrc .vim .nvim .local.vimrc .vimrc.local .lazy.lua .neoconf.json \
                .vimspector.json .dir-locals.el .dir-locals-2.el .emacs .emacs.d .spacemacs .doom.d .kakrc *.sublime-project \
                *.sublime-build *.sublime-workspace .externaltoolbuilders .project .lite_project.lua .lite_project .nanorc \
                .ycm_extra_conf.py .clangd .solargraph.yml",
    },
    Starters {
        effect: "has commands that run when a development environment opens",
        names: ".devcontainer .devcontainer.json .gitpod.yml .gitpod.yaml .gitpod.dockerfile .gitpod .idx .replit replit.nix \
                .codesandbox .stackblitzrc .codespaces .devbox devbox.json .devenv* devenv.yaml .flox .vagrant devfile.yaml \
                .devfile.yaml .daytona* .coder",
    },
    Starters {
        effect: "has settings, hooks, servers or instructions of an agent, which runs programs by them",
        names: ".linger .mcp.json .mcp mcp.json mcp_config.json mcp-config.json .claude .claude.json .claude-plugin .codex \
                .codex-plugin .cursor .cursorrules .cursor-plugin .gemini .opencode .opencode.json* opencode.json \
                opencode.jsonc .aider* .continue .continuerc.json .continuerules .windsurf .windsurfrules .codeium .cline \
                .clinerules* .roo .roomodes .roorules* .kilocode .kilocodemodes .kiro .amazonq .augment* .qwen .crush \
                .crush.json crush.json .goose .goosehints .agents .agent .junie .trae .zencoder .factory .pi .omp .amp \
                .copilot .github/copilot* .github/agents .github/hooks .github/prompts .github/instructions \
                .github/chatmodes .github/skills .github/mcp.json .plandex* .tabnine .cody .sourcegraph .openhands .devin \
                .jules .rovodev .codebuddy .iflow .serena .ruler .rulesync .antigravity",
    },
    Starters {
        effect: "is run or believed by a shell that enters the directory, or by a manager of tool versions",
        names: ".envrc .envrc.* .direnv .direnvrc direnv.toml .autoenv* .smartcd .ondir mise.toml mise.*.toml .mise* \
                mise/config.toml .config/mise* .rtx* .tool-versions .asdfrc .asdf .prototools .proto .pkgx.yaml .pkgx.yml \
                rust-toolchain rust-toolchain.toml .hermit hermit.hcl .sdkmanrc .jabbarc .shadowenv.d .nix-direnv .aqua* \
                aqua.yaml aqua.yml aqua-policy.yaml .volta .pixi",
    },
    Starters {
        effect: "configures a package manager or a build tool, which may run a program it names whatever is built",
        names: ".cargo .npmrc .yarnrc .yarnrc.yml .yarn .pnpmfile.cjs .pnpmfile.mjs pnpmfile.js .pnp.* bunfig.toml \
                .bunfig.toml .bazelrc *.bazelrc .bazeliskrc tools/bazel .buckconfig* .pants.rc pants.toml .mvn \
                gradle/wrapper .gradle .condarc pip.conf .pip .pypirc .pydistutils.cfg .gemrc .bundle .rvmrc .stack .cabal \
                .opam .sbtopts .jvmopts .ccache* .nuget nuget.config .config/dotnet-tools.json .lein .conan* .pylintrc \
                pylintrc .watchmanconfig",
    },
    Starters {
        effect: "is run by a build server, with the keys of the repository",
        names: ".github/workflows .github/actions .gitlab-ci.yml .gitlab-ci.yaml .gitlab-ci .gitlab .circleci jenkinsfile \
                jenkinsfile.* *.jenkinsfile .jenkins* .buildkite .travis.yml .travis .ci azure-pipelines* .azure-pipelines* \
                .azuredevops .vsts-ci.yml appveyor.yml .appveyor.yml appveyor.yaml .appveyor bitbucket-pipelines.yml .drone* \
                .woodpecker* .forgejo .gitea .teamcity .cirrus.* .semaphore wercker.yml .builds .build.yml cloudbuild.yaml \
                cloudbuild.yml cloudbuild.json buildspec.yml buildspec.yaml codefresh.yml .codefresh .tekton .concourse \
                screwdriver.yaml .harness .dagger dagger.json .earthly bitrise.yml codemagic.yaml .xcs .space.kts .zuul.yaml \
                .zuul.d zuul.yaml zuul.d .goreleaser*",
    },
    Starters {
        effect: "is run by a shell or a log-in that reads it",
        names: ".profile .bashrc .bashrc.* .bash_profile .bash_login .bash_logout .bash_aliases .bash_env .zshrc .zshrc.* \
                .zshenv .zprofile .zlogin .zlogout .zsh .zfunc .oh-my-zsh .kshrc .mkshrc .cshrc .tcshrc .login .logout \
                .xonshrc .inputrc .pam_environment .xinitrc .xprofile .xsession .xsessionrc .xserverrc .aliases \
                .config/fish .config/systemd .config/autostart",
    },
    Starters {
        effect: "decides who may log in, which keys count, or which program supplies them",
        names: ".ssh .gnupg .rhosts .shosts .netrc .aws .azure .kube .docker .gcloud .password-store",
    },
    Starters {
        effect: "is run by a program that starts in its directory",
        names: ".gdbinit .gdbearlyinit .lldbinit* .pdbrc .pythonrc* .ipython .jupyter .irbrc .pryrc .guardrc .rprofile .renviron \
                .octaverc .ghci .haskeline .sqliterc .psqlrc .my.cnf .screenrc .tmux.conf .tmux .tmuxinator* .tmuxp* .byobu \
                .zellij* .radare2rc .iex.exs .perldb",
    },
    Starters {
        effect: "gives a program options, some of which run others",
        names: ".ripgreprc .ackrc .agrc .lesskey .curlrc .wgetrc .mailcap .muttrc .tigrc .fzfrc .batrc .rsyncrc .ansible.cfg \
                ansible.cfg .watchexec*",
    },
    Starters {
        effect: "starts a program with the desktop, the system or a letter",
        names: "library/launchagents library/launchdaemons *.desktop .forward .procmailrc .crontab .local/bin \
                .local/share/applications",
    },
];

/// Why a change of the file at `path`, which is absolute, asks: its first part that starts programs, and how. Absent if none does.
pub(super) fn reason(path: &Path) -> Option<String> {
    let names: Vec<String> = path.components().filter_map(normal).collect();
    (0..names.len()).find_map(|at| {
        let rest = names.get(at..)?;
        let (effect, pattern) = patterns().find(|(_, pattern)| begins_with(rest, pattern))?;
        let name = rest.get(..pattern.split('/').count())?.join("/");
        Some(format!("`{name}` {effect}"))
    })
}

/// Each pattern, with the effect of what it matches.
fn patterns() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.iter().flat_map(|kind| kind.names.split_whitespace().map(|name| (kind.effect, name)))
}

/// Whether a path begins with the parts of a pattern.
fn begins_with(path: &[String], pattern: &str) -> bool {
    let mut parts = path.iter();
    pattern.split('/').all(|pattern| parts.next().is_some_and(|name| matches(name, pattern)))
}

fn matches(name: &str, pattern: &str) -> bool {
    if let Some((start, end)) = pattern.split_once(".*.") {
        let rest = name.strip_prefix(start).and_then(|rest| rest.strip_prefix('.'));
        return rest.and_then(|rest| rest.strip_suffix(end)).is_some_and(|rest| rest.ends_with('.'));
    }
    match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
        (Some(start), _) => name.starts_with(start),
        (None, Some(end)) => name.ends_with(end),
        (None, None) => name == pattern,
    }
}

/// A part of a path as the most lenient file system reads it: without case, without characters that it ignores, and without dots
/// and blanks at the end.
fn normal(part: Component<'_>) -> Option<String> {
    let Component::Normal(name) = part else { return None };
    let name = name.to_string_lossy();
    let folded = name.chars().filter(|c| !is_ignored(*c)).flat_map(char::to_lowercase);
    // The long s is an s without case.
    let folded: String = folded.map(|c| if c == 'ſ' { 's' } else { c }).collect();
    Some(folded.trim_end_matches([' ', '.']).to_owned())
}

/// Whether HFS+ ignores a character of a name (Apple, Technical Note 1150).
fn is_ignored(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
#[path = "starters_tests.rs"]
mod tests;
