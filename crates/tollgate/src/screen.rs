//! How wide the terminals are that people read on.

use rustix::termios::tcgetwinsize;
use std::io::IsTerminal;
use std::os::fd::AsFd;

/// In columns; none where it is no terminal, or one that does not say. What is narrower than any help would be is taken
/// for one that does not.
pub(crate) fn width(stream: &(impl AsFd + IsTerminal)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let size = tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns >= WIDTH_MIN)
}

const WIDTH_MIN: usize = 20;
