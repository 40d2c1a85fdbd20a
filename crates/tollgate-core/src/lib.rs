//! Decides who holds each lock, and nothing else.

mod command;
mod event;
mod reply;
mod view;

pub use command::*;
pub use event::{Change, ClaimState, Event, LockChange, RegisterChange, RegisterState, claim_key};
pub use reply::*;
pub use view::*;
