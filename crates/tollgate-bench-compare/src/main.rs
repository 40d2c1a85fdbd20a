//! Tollgate beside etcd, ZooKeeper and Redis: the same load on each, on one machine, over several rounds.
//!
//! Each service runs as real processes with durable defaults, is used through a client crate of its own, and is driven
//! by the loop of `tollgate-bench`. Invariant: one service runs at a time, and all take part in each round, so that
//! other load on the machine affects all alike. Not here: starting and connecting to a service (`contender`).

mod arguments;
mod charts;
mod contender;
mod document;
mod figure;
mod machine;
mod process;
mod result;
mod rounds;
mod table;

use anyhow::Context;
use arguments::Arguments;
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match compare(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("error: {failed} figures could not be had; they are left out above");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and prints everything; returns the number of missing figures.
fn compare(arguments: &Arguments) -> anyhow::Result<usize> {
    arguments.check()?;
    // One thread carries the load, as it does in `tollgate bench`: on a small machine more threads would take
    // processors from the servers.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let results = runtime.block_on(async {
        tokio::select! {
            results = rounds::all(arguments) => results,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
        }
    })?;
    println!("{}", table::of(arguments, &results));
    if let Some(path) = &arguments.document {
        let charts = path.with_extension("");
        std::fs::create_dir_all(&charts).with_context(|| format!("can't make {}", charts.display()))?;
        charts::write(&charts, arguments, &results)?;
        let page = document::page(arguments, &results);
        std::fs::write(path, page).with_context(|| format!("can't write {}", path.display()))?;
        eprintln!("written: {} and the charts in {}", path.display(), charts.display());
    }
    Ok(results.missing())
}
