//! The node's answers for the watches of a stream, and their memory until they are passed on.

use crate::session::{Account, Charge};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Notify;
use tollgate_core::{Change, Event, RegisterState};
use tollgate_node::{Answer, Sink};
use tollgate_proto::convert::metadata_fields_len;
use tollgate_replica::WatchNumber;
use tollgate_types::Value;

/// Approximate memory of an answer without texts, and of an event without its texts, in bytes.
const SMALL_BYTES: usize = 256;

/// The node's answers for the watches of a stream.
pub(super) struct Mailbox {
    inner: Mutex<Inner>,
    pub(super) filled: Notify,
    account: Arc<Account>,
}

#[derive(Default)]
struct Inner {
    told: VecDeque<Told>,
    /// True if a flush is still to come.
    touched: bool,
}

/// An answer for one watch, charged to the stream's account as long as it exists.
pub(super) struct Told {
    pub(super) watch: WatchNumber,
    pub(super) answer: Answer,
    pub(super) charge: Charge,
}

impl Mailbox {
    pub(super) fn new(account: Arc<Account>) -> Mailbox {
        Mailbox { inner: Mutex::default(), filled: Notify::new(), account }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Takes the oldest answer.
    pub(super) fn take(&self) -> Option<Told> {
        self.lock().told.pop_front()
    }
}

impl Sink for Mailbox {
    fn answer(&self, watch: u64, answer: Answer) -> bool {
        let charge = self.account.charge(length_of(&answer));
        let mut inner = self.lock();
        inner.told.push_back(Told { watch, answer, charge });
        !std::mem::replace(&mut inner.touched, true)
    }

    fn flush(&self) {
        self.lock().touched = false;
        self.filled.notify_one();
    }
}

/// Returns the approximate size of an answer in bytes.
fn length_of(answer: &Answer) -> usize {
    let Answer::Events { events, .. } = answer else { return SMALL_BYTES };
    SMALL_BYTES + events.iter().map(length_of_event).sum::<usize>()
}

fn length_of_event(event: &Event) -> usize {
    let of_register = |state: &RegisterState| state.value.len();
    let texts = match &event.change {
        Change::Lock(it) => {
            let said = it.value.as_ref().map_or(0, Value::len);
            it.name.len() + it.owner.len() + metadata_fields_len(&it.metadata) + it.note.len() + said
        }
        Change::Register(it) => {
            it.key.len() + it.now.as_ref().map_or(0, of_register) + it.prev.as_ref().map_or(0, of_register)
        }
    };
    SMALL_BYTES + texts
}
