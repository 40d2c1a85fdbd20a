//! Configurations, from text to result.

mod example;
mod layers;
mod refusals;

use std::ffi::OsString;
use std::path::PathBuf;
use tollgate_server::config::{Config, ConfigFile, Loaded, Problems, Sources};

/// The minimal configuration of a server, 7 lines.
const LEAST: &str = r#"[node]
id = 1
data_dir = "/var/lib/tollgate"
[cluster]
name = "test"
members = [{ id = 1, peer = "a:7401", client = "a:7400" }, { id = 2, peer = "b:7401", client = "b:7400" }]
"#;

fn load(text: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Loaded, Problems> {
    let file = ConfigFile { path: PathBuf::from("t.toml"), text: text.to_owned() };
    let env = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
    let flags = flags.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    Config::load(&Sources { file: Some(file), env, flags })
}

/// Loads the minimal configuration with more text behind it.
fn load_with(more: &str) -> Result<Loaded, Problems> {
    load(&format!("{LEAST}{more}"), &[], &[])
}

/// Returns the problems as `line key what`, with the origin's name instead of the line if it is not the file.
fn wrongs(result: Result<Loaded, Problems>) -> Vec<String> {
    use tollgate_server::config::Place;
    let problems = result.expect_err("something is wrong");
    let told = problems.iter().map(|problem| {
        let place = match &problem.place {
            Place::File { line, column, .. } => format!("{line}:{column}"),
            Place::Env { name, .. } | Place::Flag { name, .. } => name.clone(),
            Place::Nowhere => "-".to_owned(),
        };
        format!("{place} {} {}", problem.key, problem.what)
    });
    told.collect()
}
