//! Judges recorded histories of Tollgate against its promises.
//!
//! A simulator or a run of real processes records, in order of true time, what clients requested and were answered, and
//! what could be observed of the servers. [`History::judge`] reports each broken promise in a sentence, with the events
//! that show it. A doubt counts in favour of the servers only where the history leaves room for it: a call without an
//! answer may have taken effect at any time, or never. A search that gives up is reported like a broken promise.
//!
//! The model is this crate's own: `tollgate-core` is never used, because a bug there would be a rule here. Not here:
//! the recording of a history (`tollgate-sim`).
//!
//! ```
//! use tollgate_check::{At, Event, FenceMode, History, Promise, Settings};
//! use tollgate_types::{Name, Token};
//!
//! let mut history = History::new(Settings::with_rho_ppm(10_000));
//! for (ms, token) in [(1, 7), (2, 6)] {
//!     let (name, token) = (Name::new("jobs")?, Token::new(token)?);
//!     let mode = FenceMode::Exclusive;
//!     let write = Event::FencedWrite { store: 0, name, token, mode, strict: false, accepted: true };
//!     history.record(At::from_ms(ms), write);
//! }
//! let report = history.judge();
//! assert!(report.blames(Promise::P3));
//! assert_eq!(report.violations[0].events, [0, 1]);
//! # Ok::<(), tollgate_types::Invalid>(())
//! ```

mod at;
mod call;
mod checks;
mod event;
mod evidence;
mod history;
mod report;
mod settings;

pub use at::At;
pub use call::{CallId, EndReason, Holder, Op, Outcome, Wait};
pub use event::{Change, ChangeKind, Event, FenceMode, Filter, FinalLock, LeaseEnd};
pub use history::History;
pub use report::{Kind, Promise, Report, Stats, Violation};
pub use settings::Settings;
