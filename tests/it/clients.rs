//! The client libraries of `contrib`, used by programs (`clients/`) while the daemon is killed under them.

use std::path::{Path, PathBuf};

use linger_tests::harness::{Cli, Daemon, profile, programs};
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

fn contrib(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib").join(path).canonicalize().unwrap()
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name)
}

/// A turn that is cut by a kill of the daemon, one with a question, one that is cancelled, one that a kill of both processes cuts.
fn turns() -> ModelServer {
    ModelServer::with([
        Reply::new().text_in_deltas("begun ünï", 2).stall(),
        Reply::new().text_in_deltas("begun again: ünï✓", 3),
        Reply::tool("bash", json!({ "command": "echo hi" })),
        Reply::text("It said hi."),
        Reply::new().text_in_deltas("cancel me", 2).stall(),
        Reply::new().text_in_deltas("nearly", 2).stall(),
        Reply::text("done"),
    ])
}

/// Runs a program with the library in `library`, below `contrib`.
async fn program(interpreter: &Path, options: &[&str], name: &str, library: &str) {
    let model = turns();
    let daemon = Daemon::start(&model).await;
    let (script, library) = (script(name), contrib(library));
    let args = [script.to_str().unwrap(), library.to_str().unwrap(), programs().client.to_str().unwrap()];
    let args: Vec<&str> = options.iter().copied().chain(args).collect();
    let output = Cli::new(interpreter, daemon.env(true), daemon.workspace(), &args).run().await.exits(0);
    assert!(output.stdout.contains("all is well"), "{output:?}");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_python_program_loses_nothing_and_sees_nothing_twice_while_the_daemon_is_killed() {
    program(Path::new("/usr/bin/env"), &["python3"], "client.py", "python").await;
}

/// What `.ci/run` puts into `target/NAME`, or where `variable` says; nothing where it is not, which is said.
fn installed(variable: &str, name: &str, file: &str) -> Option<PathBuf> {
    let place = std::env::var_os(variable).map(PathBuf::from);
    let place = place.unwrap_or_else(|| profile().parent().unwrap().join(name));
    if place.join(file).exists() {
        return Some(place);
    }
    assert!(std::env::var_os("CI").is_none(), "{} has no {file}: see tests/README.md", place.display());
    eprintln!("not run: {} has no {file}; tests/README.md says how to install it", place.display());
    None
}

#[tokio::test]
async fn a_typescript_program_loses_nothing_and_sees_nothing_twice_while_the_daemon_is_killed() {
    let Some(place) = installed("LINGER_MCP_CONFORMANCE", "mcp-conformance", "node") else { return };
    let options = ["--experimental-strip-types", "--no-warnings"];
    program(&place.join("node"), &options, "client.ts", "typescript").await;
}

#[tokio::test]
async fn the_checkers_of_both_languages_take_the_libraries_and_the_programs_that_use_them() {
    let Some(place) = installed("LINGER_TYPE_CHECKERS", "type-checkers", "venv/bin/mypy") else { return };
    let env = vec![("PATH".to_owned(), std::env::var("PATH").unwrap())];
    let run = |program: PathBuf, args: Vec<String>| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Cli::new(&program, env.clone(), place.clone(), &args).run()
    };
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let cache = "--cache-dir=/dev/null".to_owned();
    let checked =
        run(place.join("venv/bin/mypy"), vec![cache, "--strict".to_owned(), path(&contrib("python/linger.py"))]);
    checked.await.exits(0);
    let tsc = path(&place.join("node_modules/typescript/bin/tsc"));
    let options = "--strict --noEmit --erasableSyntaxOnly --target es2022 --module esnext --moduleResolution bundler --allowImportingTsExtensions --types node";
    let roots = ["--typeRoots".to_owned(), path(&place.join("node_modules/@types"))];
    let files = [path(&contrib("typescript/linger.ts")), path(&script("client.ts"))];
    let args = [tsc].into_iter().chain(options.split(' ').map(str::to_owned)).chain(roots).chain(files).collect();
    run(place.join("node"), args).await.exits(0);
}
