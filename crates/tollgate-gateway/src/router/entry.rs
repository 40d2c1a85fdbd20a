//! Entry of operations: each is sent to its group or, after a split, to several groups, according to the group map.
//!
//! Invariant: nothing is done by a guessed map, and an operation that is tried while the map changes is routed anew.
//! Not here: carrying out an operation in its group (`router`), and splitting (`several`).

use super::repeats::{count_attempt, patience_of, settle};
use super::{CallContext, Router, stopped};
use crate::admission::AdmissionPermit;
use crate::attended_call::{AttendedCall, stand_by};
use crate::link::{Lost, Purpose};
use crate::operation::Prepared;
use crate::queue_notice::OnQueue;
use crate::relay::without_address;
use crate::request_info::RequestInfo;
use crate::several::split;
use std::sync::Arc;
use std::time::Instant;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{Address, GroupId, GroupMap};

impl Router {
    /// Carries out an operation on whichever node leads its group, and returns the final answer.
    ///
    /// If the future is dropped before that, a request that waits in a queue leaves it, unless another caller attends
    /// the same request.
    pub async fn execute(&self, op: Op, from: &Address) -> OpResult {
        self.carry_out(op, None, CallContext::new(from, Purpose::Attended)).await
    }

    /// Carries out an operation of a session: a request that waits in a queue stays there, because its client repeats
    /// it, possibly at another node, and is told its position there.
    pub async fn execute_for_session(&self, op: Op, from: &Address, on_queue: OnQueue) -> OpResult {
        let call_context =
            CallContext { on_queue: Some(&on_queue), ..CallContext::new(from, Purpose::Session) };
        self.carry_out(op, None, call_context).await
    }

    /// Carries out an operation of a session on one group that was prepared already.
    pub async fn execute_prepared_for_session(
        &self,
        op: Op,
        prepared: Prepared,
        from: &Address,
        on_queue: OnQueue,
    ) -> OpResult {
        let call_context =
            CallContext { on_queue: Some(&on_queue), ..CallContext::new(from, Purpose::Session) };
        self.carry_out(op, Some(prepared), call_context).await
    }

    async fn carry_out(&self, op: Op, prepared: Option<Prepared>, call_context: CallContext<'_>) -> OpResult {
        let (asked, began) = (RequestInfo::from(&op), Instant::now());
        let result = match self.closed() {
            Some(error) => OpResult::Error(error),
            None => self.carry_out_by_map(op, prepared, call_context).await,
        };
        self.measure(asked, &result, began.elapsed());
        match result {
            OpResult::Error(error) if self.relay().is_some() => OpResult::Error(without_address(error)),
            result => result,
        }
    }

    /// Carries out an operation in its group or groups, according to the map once it has been seen; starts over if the
    /// map has changed before the operation was done.
    async fn carry_out_by_map(
        &self,
        mut op: Op,
        mut prepared: Option<Prepared>,
        call_context: CallContext<'_>,
    ) -> OpResult {
        let until = Instant::now() + patience_of(&op, call_context.purpose);
        let mut unsure = None;
        loop {
            let (epoch, result) = if let Some(prepared) = prepared.take() {
                (prepared.map_epoch(), self.carry_out_prepared(&mut op, prepared, call_context).await)
            } else {
                let map = match self.seen_map(until).await {
                    Ok(map) => map,
                    Err(error) => return OpResult::Error(unsure.unwrap_or(error)),
                };
                let result = match split(&op, &map) {
                    None => self.carry_out_one(&mut op, call_context).await,
                    Some(several) => self.carry_out_several(several, call_context).await,
                };
                (map.epoch(), result)
            };
            let moved = match &result {
                OpResult::Error(error) if error.reason() == v1::ErrorReason::WrongGroup => error,
                _ => return settle(&op, result, unsure),
            };
            let news = self.known_map().is_some_and(|map| map.epoch() != epoch);
            if !news || Instant::now() >= until {
                return settle(&op, result, unsure);
            }
            if moved.may_have_happened {
                unsure = unsure.or_else(|| Some(Lost::unsure(GroupId::new(moved.group_id))));
            }
            count_attempt(&mut op);
        }
    }

    /// Carries out an operation on one group.
    pub(crate) async fn carry_out_one(&self, op: &mut Op, call_context: CallContext<'_>) -> OpResult {
        match self.prepare(op, call_context) {
            Ok(prepared) => self.carry_out_prepared(op, prepared, call_context).await,
            Err(error) => OpResult::Error(error),
        }
    }

    async fn carry_out_prepared(
        &self,
        op: &mut Op,
        prepared: Prepared,
        call_context: CallContext<'_>,
    ) -> OpResult {
        let permit = match self.admit(RequestInfo::from(&*op)) {
            Ok(permit) => Arc::new(permit),
            Err(error) => return OpResult::Error(error),
        };
        if call_context.purpose == Purpose::Attended && prepared.context.may_wait() {
            return stand_by(self, op.clone(), prepared, call_context.from, permit).await;
        }
        self.until_done(op, prepared, CallContext { permit: Some(&permit), ..call_context }).await
    }

    /// Carries out an operation for an attending caller, or until that caller has gone and the leader has been told.
    pub(crate) async fn carry_out_attended(
        &self,
        mut op: Op,
        prepared: Prepared,
        from: &Address,
        attended_call: &AttendedCall,
        permit: &Arc<AdmissionPermit>,
    ) -> OpResult {
        let call_context = CallContext::new(from, Purpose::Attended);
        let call_context =
            CallContext { attended_call: Some(attended_call), permit: Some(permit), ..call_context };
        self.until_done(&mut op, prepared, call_context).await
    }

    /// Carries out a further step of an operation that was admitted, like giving back what it took. The step is not
    /// admitted as an operation of its own: if it were refused, the effects of earlier steps would have to stay.
    pub(crate) async fn carry_on(&self, mut op: Op, from: &Address) -> OpResult {
        let call_context = CallContext::new(from, Purpose::Session);
        match self.prepare(&op, call_context) {
            Ok(prepared) => self.until_done(&mut op, prepared, call_context).await,
            Err(error) => OpResult::Error(error),
        }
    }

    /// Gives back a grant that no caller was told of.
    pub(crate) async fn take_back(&self, cancel: v1::CancelWaitRequest, from: &Address) {
        self.carry_on(Op::CancelWait(cancel), from).await;
    }

    /// Returns the group map as soon as it is known.
    pub(super) async fn seen_map(&self, until: Instant) -> Result<Arc<GroupMap>, v1::Error> {
        if let Some(map) = self.known_map() {
            return Ok(map);
        }
        self.look_again();
        let mut routing_table = self.shared.routing_table.clone();
        let seen = routing_table.wait_for(|routing_table| routing_table.map.is_some());
        match tokio::time::timeout_at(until.into(), seen).await {
            Ok(Ok(routing_table)) => Ok(routing_table.map.clone().expect("it was waited for")),
            Ok(Err(_)) => Err(stopped(GroupId::MAP)),
            Err(_) => Err(self.no_leader(GroupId::MAP)),
        }
    }
}
