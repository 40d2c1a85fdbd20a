//! Catches panics of a run, and keeps their messages.
//!
//! A host that finds itself broken panics: in a server that stops the process, here it ends the run as a violation.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Message of the last panic, while panics of this thread are caught.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
    static CATCHING: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs a function; if it panics, returns the message and place of the panic.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    install_hook();
    CATCHING.with(|catching| *catching.borrow_mut() = true);
    let result = catch_unwind(AssertUnwindSafe(run));
    CATCHING.with(|catching| *catching.borrow_mut() = false);
    result.map_err(|_| {
        CAUGHT.with(|caught| caught.borrow_mut().take()).unwrap_or_else(|| "without a word".to_owned())
    })
}

/// Installs a panic hook that does not print the panics caught here; all others are printed, as ever.
fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if CATCHING.with(|catching| *catching.borrow()) {
                let says = format!("{info}").replace('\n', " ");
                CAUGHT.with(|caught| *caught.borrow_mut() = Some(says));
            } else {
                before(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_with_what_it_said() {
        assert_eq!(caught(|| 7), Ok(7));
        let says = caught(|| panic!("two is not below one")).unwrap_err();
        assert!(says.contains("two is not below one") && says.contains("panics.rs"), "{says}");
    }
}
