//! Requests for locks of two groups: all or none are granted, with a token for each.
//!
//! The judge sees such a request as one request per group, made at the same moment: a group decides about its part
//! alone, in its own time. If the request is granted, each part is answered with its own token. Otherwise no part is
//! known to have been refused: it may have been granted and released before the answer came. So each part is recorded
//! as never answered, with a cancel that was under way from the beginning; the read of everything at the end shows that
//! nothing is left of it. The revision of a release in each group is not reported to anybody, so releases are recorded
//! without an answer too. Not here: requests for one group (`worker`).

use super::worker::Worker;
use crate::record::count;
use std::time::Duration;
use tollgate_check::{At, CallId, Event, Op, Outcome, Wait};
use tollgate_client::{Acquire, AcquireError, ErrorKind, Guard};
use tollgate_types::{GroupId, Mode, Name, Names, Owner, Token};

/// The part of a request that one group decides.
struct Part {
    name: Name,
    group: GroupId,
    call: CallId,
    caller: u32,
    asked: At,
}

impl Worker {
    /// Takes locks of two groups, writes under them and releases them. Returns false if there are no two groups.
    pub(super) async fn draw_over_groups(&mut self) -> bool {
        let Some(names) = self.names_of_two_groups() else { return false };
        let owner = Owner::new(format!("w{}", self.common.next_call().0)).unwrap();
        let wait_ms = if self.rng.percent(20) { 0 } else { 50 + self.rng.below(3_000) };
        let parts = names.map(|name| self.ask(name, &owner, wait_ms));
        let request =
            self.session.owner(owner.to_string()).locks(parts.iter().map(|part| part.name.to_string()));
        let patience_ms = self.rng.percent(15).then(|| self.rng.below(300));
        let answer = answered(request.exclusive().wait(Duration::from_millis(wait_ms)), patience_ms).await;
        let tokens = match answer.as_ref().map(|answer| answer.as_ref().map(Guard::tokens)) {
            Some(Ok(Ok(tokens))) => tokens,
            other => {
                if let Some(Err(AcquireError::Failed(error))) = other {
                    self.must_make_sense(&parts, error);
                }
                self.none_of(&parts);
                return true;
            }
        };
        let granted: Vec<(Part, Token)> = parts.into_iter().map(|part| with_token(part, &tokens)).collect();
        if let Some(Ok(guard)) = answer {
            self.hold_parts(granted, guard, &owner).await;
        }
        true
    }

    fn names_of_two_groups(&mut self) -> Option<[Name; 2]> {
        let draw = |worker: &mut Worker| worker.common.ground.draw_locks(&mut worker.rng, 1).remove(0);
        let (one, other) = (draw(self), draw(self));
        let group = |name| self.common.recorder.group_of_name(name);
        (group(&one) != group(&other)).then_some([one, other])
    }

    fn ask(&self, name: Name, owner: &Owner, wait_ms: u64) -> Part {
        let group = self.common.recorder.group_of_name(&name);
        let wait = if wait_ms == 0 { Wait::No } else { Wait::ForMs(wait_ms) };
        let (names, lease, owner) = (Names::One(name.clone()), self.session.lease_id(), owner.clone());
        let op = Op::Lock { names, lease, owner, mode: Mode::Exclusive, wait, max_hold_ms: None };
        let (call, caller) = self.common.invoke(group, op);
        let asked = self.common.recorder.now();
        Part { name, group, call, caller, asked }
    }

    fn must_make_sense(&self, parts: &[Part], error: &tollgate_client::Error) {
        let bug = matches!(error.kind(), ErrorKind::Internal | ErrorKind::Invalid | ErrorKind::Unsupported);
        let names: Vec<&Name> = parts.iter().map(|part| &part.name).collect();
        assert!(!bug, "{names:?} was answered {error:?}");
        let mut troubles = self.common.recorder.counts.troubles.lock();
        *troubles.entry(format!("client, over groups: {:?}", error.kind())).or_default() += 1;
    }

    fn none_of(&self, parts: &[Part]) {
        for Part { group, call, caller, asked, .. } in parts {
            let op = Op::Cancel { of: *call, release_if_granted: true };
            let (cancel, client, group) = (self.common.next_call(), *caller, *group);
            let recorder = &self.common.recorder;
            recorder.record_at(*asked, Event::Invoke { call: cancel, client, group, op });
            recorder.record(Event::ClientGone { client });
        }
    }

    async fn hold_parts(&mut self, parts: Vec<(Part, Token)>, guard: Guard, owner: &Owner) {
        let common = std::sync::Arc::clone(&self.common);
        for (part, token) in &parts {
            let name = std::slice::from_ref(&part.name);
            common.holdings.enter(name, &self.session, *token, Mode::Exclusive);
            let outcome = Outcome::Granted { token: *token, create_revision: None, mode: Mode::Exclusive };
            common.answer(part.call, outcome);
            count(&common.recorder.counts.grants);
        }
        for _ in 0..self.rng.below(3) {
            tokio::time::sleep(Duration::from_millis(self.rng.below(30))).await;
            let store = u32::try_from(self.rng.below(2)).unwrap();
            for (part, token) in parts.iter().filter(|_| guard.token().is_ok()) {
                common.recorder.write(store, &part.name, *token, Mode::Exclusive);
            }
        }
        for (part, token) in &parts {
            common.holdings.leave(std::slice::from_ref(&part.name), *token);
            let (names, lease) = (Names::One(part.name.clone()), self.session.lease_id());
            common.invoke(part.group, Op::Unlock { names, lease, owner: owner.clone(), token: None });
        }
        if guard.release().await.is_ok() {
            count(&common.recorder.counts.releases);
        }
    }
}

/// Returns the answer; `None` if the request was dropped before.
async fn answered(request: Acquire, patience_ms: Option<u64>) -> Option<Result<Guard, AcquireError>> {
    let Some(ms) = patience_ms else { return Some(request.acquire().await) };
    tokio::time::timeout(Duration::from_millis(ms), request.acquire()).await.ok()
}

fn with_token(part: Part, tokens: &[(String, Token)]) -> (Part, Token) {
    let own = tokens.iter().find(|(name, _)| *name == part.name.to_string());
    let token = own.unwrap_or_else(|| panic!("no token for {} among {tokens:?}", part.name)).1;
    (part, token)
}
