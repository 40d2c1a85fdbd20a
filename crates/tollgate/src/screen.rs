//! Width of the terminal behind a stream.

use rustix::termios::tcgetwinsize;
use std::io::IsTerminal;
use std::os::fd::AsFd;

/// Returns the width in columns; `None` if the stream is no terminal, or one that does not report its size. A width
/// below that of any help text counts as not reported.
pub(crate) fn width(stream: &(impl AsFd + IsTerminal)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let size = tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns >= WIDTH_MIN)
}

const WIDTH_MIN: usize = 20;
