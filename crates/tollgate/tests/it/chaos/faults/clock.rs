//! A node whose clock runs fast or slow, by less than the tolerated drift (rho).
//!
//! A small library, loaded before the others, stands between the process and the clocks that count time; it is compiled
//! from the C source beside this file. Only nodes load it: the harness and its clients keep the true time, which the
//! judge uses. Wall clocks are not used for any decision, and not changed.

use super::Draw;
use crate::chaos::arena::Arena;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use tempfile::TempDir;

/// Maximum drift in parts per million, in both directions: rho is 10,000, and the judge relies on it.
const OFF_PPM_MAX: u64 = 9_000;

/// The library and the directory that it is in; `None` if there is no C compiler.
static LIBRARY: LazyLock<Option<(TempDir, PathBuf)>> = LazyLock::new(|| {
    let dir = TempDir::with_prefix("tollgate-clock-").ok()?;
    let library = dir.path().join("clock_rate.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/chaos/faults/clock_rate.c");
    let compiled =
        Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    compiled.is_ok_and(|status| status.success()).then_some((dir, library))
});

pub(super) async fn run(arena: &Arena, mut draw: Draw) -> Result<(), String> {
    let Some((_, library)) = &*LIBRARY else {
        println!("no C compiler: the clocks of all nodes stay right");
        return Ok(());
    };
    let (index, mut node) = arena.pick(&draw).await;
    let off_ppm =
        i64::try_from(draw.rng.below(2 * OFF_PPM_MAX + 1)).unwrap() - i64::try_from(OFF_PPM_MAX).unwrap();
    let says = format!("clock of {} runs {off_ppm} ppm off from now on", arena.title(index).await);
    let number = arena.begin(draw.kind, &says);
    node.kill();
    node.variables = vec![
        ("LD_PRELOAD".to_owned(), library.display().to_string()),
        ("CLOCK_OFF_PPM".to_owned(), off_ppm.to_string()),
    ];
    node.start(&[]);
    let recovered = arena.recovered(&mut node).await;
    arena.end(number);
    recovered
}
