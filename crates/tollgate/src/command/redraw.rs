//! `--watch`: shows the output of a command again and again.

use crate::globals::Globals;
use crate::output::{self, Output};
use crate::span;
use clap::Args;
use std::io::IsTerminal;
use std::time::Duration;

/// Minimum pause between two outputs, however short a span was given.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The `--watch` flag.
#[derive(Debug, Args)]
pub(crate) struct Redraw {
    /// Show it again every second, or every SPAN
    #[arg(
        short,
        long,
        value_name = "SPAN",
        value_parser = span::parse,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1s"
    )]
    watch: Option<Duration>,
}

impl Redraw {
    /// Shows the output once, or repeatedly until a signal or a failure ends the command.
    pub(crate) async fn show<T>(
        &self,
        globals: &Globals,
        mut once: impl AsyncFnMut(Output) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let Some(pause) = self.watch else { return once(globals.output).await };
        output::while_read(async {
            loop {
                clear(globals)?;
                once(globals.output).await?;
                tokio::time::sleep(pause.max(PAUSE_MIN)).await;
            }
        })
        .await
    }
}

fn clear(globals: &Globals) -> anyhow::Result<()> {
    if globals.output.is_table() && std::io::stdout().is_terminal() {
        // Output starts from the top left corner, over the previous one.
        output::text("\u{1b}[H\u{1b}[2J")?;
    }
    Ok(())
}
