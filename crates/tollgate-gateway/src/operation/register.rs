//! Register requests and their answers. A put or delete is a transaction of one step.
//!
//! Not here: reads (`query`), and the wire form of a register (`view`).

use super::context::{About, Replied};
use super::error::{RESULT_BYTES_MAX, not_supported, too_long};
use super::lock::request;
use super::part::whole;
use super::query::Query;
use super::route::{group_of_keys, groups_of_prefix, same_group};
use super::view;
use super::{Prepared, read_consistency};
use std::collections::BTreeSet;
use tollgate_core::{
    Against, Command, Compare, KeySelector, Op, OpResult, RangeQuery, Relation, Reply, Sort, Txn,
};
use tollgate_proto::BadField;
use tollgate_proto::convert::{self, RequestIdentity};
use tollgate_proto::v1::{self, operation_result::Result as Wire};
use tollgate_types::{GroupId, GroupMap, LeaseId, Revision};

/// Kind of the response message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Put,
    Delete,
    /// Transaction, with the number of steps in each branch.
    Txn {
        then: usize,
        otherwise: usize,
    },
}

pub(super) fn prepare_put(put: &v1::PutRequest, map: &GroupMap) -> Result<Prepared, v1::Error> {
    let key = convert::read_key("key", &put.key)?;
    let value = convert::read_value("value", &put.value)?;
    let lease = convert::read_lease_id_or_none("lease_id", put.lease_id)?;
    let identity = whole(convert::read_request(None, put.request.as_ref())?)?;
    let group = map.group_of(key.slot());
    Ok(write(group, identity, lease, vec![Op::Put { key, value, lease }], Form::Put))
}

pub(super) fn prepare_delete(delete: &v1::DeleteRequest, map: &GroupMap) -> Result<Prepared, v1::Error> {
    let keys = selector(convert::read_key_selector(&delete.key, &delete.prefix, delete.all)?);
    let identity = whole(convert::read_request(None, delete.request.as_ref())?)?;
    let group = group_of_keys(&keys, map)?;
    Ok(write(group, identity, None, vec![Op::Delete(keys)], Form::Delete))
}

/// Returns a write without conditions.
fn write(
    group: GroupId,
    identity: Option<RequestIdentity>,
    lease: Option<LeaseId>,
    then: Vec<Op>,
    form: Form,
) -> Prepared {
    let txn = Txn { request: None, compares: Vec::new(), then, otherwise: Vec::new() };
    numbered(group, identity, lease, txn, form)
}

/// Adds the identity of the request. Its lease, if there is one, is the lease that makes the request.
fn numbered(
    group: GroupId,
    identity: Option<RequestIdentity>,
    lease: Option<LeaseId>,
    txn: Txn,
    form: Form,
) -> Prepared {
    let seq = identity.as_ref().map(|identity| identity.seq);
    let lease = identity.as_ref().map(|identity| identity.lease).or(lease);
    let request = identity.map(|identity| (identity.lease, request(identity)));
    let about = About::Write { form, lease, seq };
    Prepared::command(group, Command::Txn(Txn { request, ..txn }), about)
}

pub(super) fn prepare_txn(txn: &v1::TxnRequest, map: &GroupMap) -> Result<Prepared, v1::Error> {
    let mut group = None;
    let mut compares = Vec::with_capacity(txn.compares.len());
    for given in &txn.compares {
        let compare = compare(convert::read_compare(given)?);
        same_group(&mut group, map.group_of(compare.key.slot()))?;
        compares.push(compare);
    }
    let then = read_ops("then_ops", &txn.then_ops, map, &mut group)?;
    let otherwise = read_ops("else_ops", &txn.else_ops, map, &mut group)?;
    let identity = whole(convert::read_request(None, txn.request.as_ref())?)?;
    let home = identity.as_ref().map(|identity| map.group_of(identity.lease.slot()));
    let group = group.or(home).unwrap_or(GroupId::MAP);
    let form = Form::Txn { then: then.len(), otherwise: otherwise.len() };
    Ok(numbered(group, identity, None, Txn { request: None, compares, then, otherwise }, form))
}

fn read_ops(
    field: &'static str,
    ops: &[v1::TxnOp],
    map: &GroupMap,
    group: &mut Option<GroupId>,
) -> Result<Vec<Op>, v1::Error> {
    let mut out = Vec::with_capacity(ops.len());
    for op in ops {
        let op = match convert::read_txn_op(field, op)? {
            convert::TxnOp::Put { key, value, lease } => Op::Put { key, value, lease },
            convert::TxnOp::Get { keys, limit, sort: by } => {
                Op::Get(RangeQuery { keys: selector(keys), limit, sort: sort(by) })
            }
            convert::TxnOp::Delete(keys) => Op::Delete(selector(keys)),
        };
        let here = match &op {
            Op::Put { key, .. } => map.group_of(key.slot()),
            Op::Get(RangeQuery { keys, .. }) | Op::Delete(keys) => group_of_keys(keys, map)?,
        };
        same_group(group, here)?;
        out.push(op);
    }
    Ok(out)
}

pub(super) fn prepare_get(get: &v1::GetRequest, map: &GroupMap) -> Result<Prepared, v1::Error> {
    let key = convert::read_key("key", &get.key)?;
    let consistency = read_consistency(get.consistency)?;
    let group = map.group_of(key.slot());
    Ok(Prepared::read(group, consistency, Query::Register(key), About::Get))
}

pub(super) fn prepare_range(range: &v1::RangeRequest, map: &GroupMap) -> Result<Prepared, v1::Error> {
    let keys = selector(convert::read_key_selector(&range.key, &range.prefix, range.all)?);
    let sort = sort(convert::read_sort("sort", range.sort)?);
    let consistency = read_consistency(range.consistency)?;
    let group = match read_groups(&range.group_ids, map)?[..] {
        [] => group_of_keys(&keys, map)?,
        [group] => group,
        _ => return Err(not_supported("several groups are read one by one: name one, or none to read all")),
    };
    let query = Query::Registers(RangeQuery { keys, limit: range.limit, sort });
    Ok(Prepared::read(group, consistency, query, About::Range))
}

/// Returns the groups that can have registers in a range; none if the range is invalid.
pub fn groups_of_range(range: &v1::RangeRequest, map: &GroupMap) -> Option<Vec<GroupId>> {
    if !range.group_ids.is_empty() {
        return read_groups(&range.group_ids, map).ok();
    }
    Some(match convert::read_key_selector(&range.key, &range.prefix, range.all).ok()? {
        convert::KeySelector::Key(key) => vec![map.group_of(key.slot())],
        convert::KeySelector::Prefix(prefix) => groups_of_prefix(prefix.as_bytes(), map),
        convert::KeySelector::All => map.groups(),
    })
}

/// Returns the named groups, each once, so never more than exist.
fn read_groups(numbers: &[u32], map: &GroupMap) -> Result<Vec<GroupId>, v1::Error> {
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let known = map.groups();
    let mut groups = BTreeSet::new();
    for number in numbers {
        let group = GroupId::new(*number);
        if !known.contains(&group) {
            let says = format!("there is no group {number}: leave it out to read all groups");
            let error = v1::Error::new(v1::ErrorReason::NoSuchGroup, says);
            return Err(v1::Error { group_id: *number, ..error });
        }
        if !groups.insert(group) {
            let says = format!("group {number} is named twice: name each once, or none to read all");
            return Err(BadField::new("group_ids", says).into());
        }
    }
    Ok(groups.into_iter().collect())
}

fn selector(keys: convert::KeySelector) -> KeySelector {
    match keys {
        convert::KeySelector::Key(key) => KeySelector::Key(key),
        convert::KeySelector::Prefix(prefix) => KeySelector::Prefix(prefix),
        convert::KeySelector::All => KeySelector::All,
    }
}

fn sort(sort: v1::Sort) -> Sort {
    match sort {
        v1::Sort::Unspecified | v1::Sort::Key => Sort::Key,
        v1::Sort::KeyDescending => Sort::KeyDescending,
        v1::Sort::Create => Sort::Create,
        v1::Sort::CreateDescending => Sort::CreateDescending,
    }
}

fn compare(compare: convert::Compare) -> Compare {
    let relation = match compare.relation {
        v1::Relation::Unspecified | v1::Relation::Equal => Relation::Equal,
        v1::Relation::NotEqual => Relation::NotEqual,
        v1::Relation::Less => Relation::Less,
        v1::Relation::Greater => Relation::Greater,
    };
    let against = match compare.against {
        convert::Against::Create(revision) => Against::Create(revision),
        convert::Against::Mod(revision) => Against::Mod(revision),
        convert::Against::Version(version) => Against::Version(version),
        convert::Against::Value(value) => Against::Value(value),
        convert::Against::Lease(lease) => Against::Lease(lease),
    };
    Compare { key: compare.key, relation, against }
}

pub(super) fn written(form: Form, mut replied: Replied<'_>) -> Wire {
    let reply = std::mem::replace(&mut replied.reply, Reply::Done);
    let Reply::TxnDone { succeeded, revision, results } = reply else { return replied.does_not_fit() };
    let length: usize = results.iter().map(length_of_result).sum();
    if length > RESULT_BYTES_MAX {
        // The transaction is done, even if its results are too long to send.
        let may_have_happened = results.iter().any(|result| !matches!(result, OpResult::Got { .. }));
        return Wire::Error(v1::Error { may_have_happened, ..too_long(length, RESULT_BYTES_MAX) });
    }
    let header = replied.head();
    match form {
        Form::Put => Wire::Put(v1::PutResponse { header, revision: revision.get() }),
        Form::Delete => {
            // A repeat no longer knows the count.
            let deleted = results.first().map_or(0, |result| match result {
                OpResult::Deleted(count) => *count,
                OpResult::Put | OpResult::Got { .. } => 0,
            });
            Wire::Delete(v1::DeleteResponse { header, deleted, revision: revision.get() })
        }
        Form::Txn { then, otherwise } => {
            let steps = if succeeded { then } else { otherwise };
            Wire::Txn(v1::TxnResponse {
                header,
                succeeded,
                revision: revision.get(),
                without_results: results.is_empty() && steps > 0,
                results: results.iter().map(|result| op_result(result, revision)).collect(),
            })
        }
    }
}

/// Estimates the length of a step's result on the wire.
fn length_of_result(result: &OpResult) -> usize {
    match result {
        OpResult::Got { registers, .. } => registers.iter().map(view::length_of_register).sum::<usize>() + 32,
        OpResult::Put | OpResult::Deleted(_) => 32,
    }
}

fn op_result(result: &OpResult, revision: Revision) -> v1::TxnOpResult {
    use v1::txn_op_result::Result as Step;
    let (header, revision) = (None, revision.get());
    let result = match result {
        OpResult::Put => Step::Put(v1::PutResponse { header, revision }),
        OpResult::Got { registers, count } => {
            let registers = registers.iter().map(view::register).collect();
            Step::Get(v1::RangeResponse { header, registers, count: *count })
        }
        OpResult::Deleted(deleted) => {
            Step::Delete(v1::DeleteResponse { header, deleted: *deleted, revision })
        }
    };
    v1::TxnOpResult { result: Some(result) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Kind;

    fn txn(prepared: Prepared) -> Txn {
        match prepared.kind {
            Kind::Command { command: Command::Txn(txn), fast: false } => txn,
            kind => panic!("{kind:?}"),
        }
    }

    fn put(key: &str) -> v1::PutRequest {
        v1::PutRequest { key: key.into(), value: b"v".to_vec(), ..Default::default() }
    }

    fn step(key: &str) -> v1::TxnOp {
        v1::TxnOp { op: Some(v1::txn_op::Op::Put(put(key))) }
    }

    #[test]
    fn a_put_is_a_transaction_of_one_step() {
        let request = Some(v1::Request { seq: 4, lease_id: 9, ..Default::default() });
        let prepared =
            prepare_put(&v1::PutRequest { lease_id: 7, request, ..put("k") }, &GroupMap::single()).unwrap();
        assert!(prepared.context.may_repeat());
        assert_eq!(prepared.context.lease().map(LeaseId::get), Some(9), "who numbers it asks");
        let txn = txn(prepared);
        assert_eq!(txn.request.map(|(lease, request)| (lease.get(), request.seq.get())), Some((9, 4)));
        assert!(matches!(&txn.then[..], [Op::Put { lease: Some(lease), .. }] if lease.get() == 7));
    }

    #[test]
    fn a_write_without_a_seq_may_not_be_repeated() {
        assert!(!prepare_put(&put("k"), &GroupMap::single()).unwrap().context.may_repeat());
        let delete = v1::DeleteRequest { key: b"k".to_vec(), ..Default::default() };
        assert!(!prepare_delete(&delete, &GroupMap::single()).unwrap().context.may_repeat());
        assert!(!prepare_txn(&v1::TxnRequest::default(), &GroupMap::single()).unwrap().context.may_repeat());
    }

    #[test]
    fn a_transaction_keeps_its_parts() {
        let compare = v1::Compare {
            key: b"{t}a".to_vec(),
            relation: v1::Relation::Less.into(),
            against: Some(v1::compare::Against::Version(3)),
        };
        let get = v1::RangeRequest {
            prefix: b"{t}".to_vec(),
            limit: 5,
            sort: v1::Sort::CreateDescending.into(),
            ..Default::default()
        };
        let request = v1::TxnRequest {
            compares: vec![compare],
            then_ops: vec![step("{t}a")],
            else_ops: vec![v1::TxnOp { op: Some(v1::txn_op::Op::Get(get)) }],
            request: None,
        };
        let prepared = prepare_txn(&request, &GroupMap::even(16).unwrap()).unwrap();
        assert_eq!(prepared.group, GroupMap::even(16).unwrap().group_of(tollgate_types::Slot::of(b"t")));
        let txn = txn(prepared);
        assert_eq!(txn.compares[0].relation, Relation::Less);
        assert_eq!(txn.compares[0].against, Against::Version(3));
        let [Op::Get(query)] = &txn.otherwise[..] else { panic!("{txn:?}") };
        assert_eq!((query.limit, query.sort), (5, Sort::CreateDescending));
    }

    #[test]
    fn a_transaction_over_several_groups_is_refused() {
        let then_ops = (0..8).map(|i| step(&i.to_string())).collect();
        let request = v1::TxnRequest { then_ops, ..Default::default() };
        assert!(prepare_txn(&request, &GroupMap::single()).is_ok());
        assert_eq!(
            prepare_txn(&request, &GroupMap::even(8).unwrap()).unwrap_err().reason(),
            v1::ErrorReason::NotSupported
        );
    }

    #[test]
    fn bad_fields_of_register_requests_are_named() {
        let field = |result: Result<Prepared, v1::Error>| result.unwrap_err().field;
        assert_eq!(field(prepare_put(&put(""), &GroupMap::single())), "key");
        let request = Some(v1::Request { seq: 4, ..Default::default() });
        assert_eq!(
            field(prepare_put(&v1::PutRequest { request, ..put("k") }, &GroupMap::single())),
            "request.lease_id"
        );
        assert_eq!(field(prepare_delete(&v1::DeleteRequest::default(), &GroupMap::single())), "key");
        assert_eq!(field(prepare_get(&v1::GetRequest::default(), &GroupMap::single())), "key");
        let range = v1::RangeRequest { all: true, sort: 77, ..Default::default() };
        assert_eq!(field(prepare_range(&range, &GroupMap::single())), "sort");
        let empty = v1::TxnRequest { then_ops: vec![v1::TxnOp { op: None }], ..Default::default() };
        assert_eq!(field(prepare_txn(&empty, &GroupMap::single())), "then_ops");
    }
}
