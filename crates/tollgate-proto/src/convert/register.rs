//! Requests about registers: which keys, which conditions, which steps.

use crate::bad_field::BadField;
use crate::convert::choice::{read_relation, read_sort};
use crate::convert::number::{read_lease_id_or_none, read_revision};
use crate::convert::text::{read_key, read_value};
use crate::v1::{self, Relation, Sort, compare, txn_op};
use tollgate_types::{Key, LeaseId, Revision, Value};

/// One key, or all that begin with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySelector {
    /// Exactly this one.
    Key(Key),
    /// All that begin with it.
    Prefix(Key),
    /// All there are.
    All,
}

/// The fields `key`, `prefix` and `all`, of which exactly one must be set: forgetting one never means "all".
pub fn read_key_selector(key: &[u8], prefix: &[u8], all: bool) -> Result<KeySelector, BadField> {
    match (key.is_empty(), prefix.is_empty(), all) {
        (false, true, false) => read_key("key", key).map(KeySelector::Key),
        (true, false, false) => read_key("prefix", prefix).map(KeySelector::Prefix),
        (true, true, true) => Ok(KeySelector::All),
        (true, true, false) => Err(BadField::new("key", "no register is given: set key, prefix or all")),
        (_, false, _) => Err(BadField::new("prefix", "set one of key, prefix and all")),
        (false, true, true) => Err(BadField::new("all", "set one of key, prefix and all")),
    }
}

/// One condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// The register.
    pub key: Key,
    /// How its attribute must stand to the given one; never `Unspecified`.
    pub relation: Relation,
    /// The attribute, and what it is held against.
    pub against: Against,
}

/// An attribute of a register with a value to compare it to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Against {
    /// When it was created; 0 if it was not.
    Create(Revision),
    /// When it was last put.
    Mod(Revision),
    /// How often it was put.
    Version(u64),
    /// Its value.
    Value(Value),
    /// Its lease.
    Lease(Option<LeaseId>),
}

/// One element of the field `compares`.
pub fn read_compare(compare: &v1::Compare) -> Result<Compare, BadField> {
    let against = match &compare.against {
        None => {
            return Err(BadField::new(
                "compares.against",
                "say what to compare: a revision, version, value or lease",
            ));
        }
        Some(compare::Against::CreateRevision(revision)) => {
            Against::Create(read_revision("compares.create_revision", *revision)?)
        }
        Some(compare::Against::ModRevision(revision)) => {
            Against::Mod(read_revision("compares.mod_revision", *revision)?)
        }
        Some(compare::Against::Version(version)) => Against::Version(*version),
        Some(compare::Against::Value(value)) => Against::Value(read_value("compares.value", value)?),
        Some(compare::Against::LeaseId(lease)) => {
            Against::Lease(read_lease_id_or_none("compares.lease_id", *lease)?)
        }
    };
    Ok(Compare {
        key: read_key("compares.key", &compare.key)?,
        relation: read_relation("compares.relation", compare.relation)?,
        against,
    })
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TxnOp {
    /// Writes a register.
    Put {
        /// Which.
        key: Key,
        /// What.
        value: Value,
        /// The lease with which it ends.
        lease: Option<LeaseId>,
    },
    /// Reads registers.
    Get {
        /// Which.
        keys: KeySelector,
        /// At most so many; 0 is as many as allowed.
        limit: u32,
        /// In which order; never `Unspecified`.
        sort: Sort,
    },
    /// Deletes registers.
    Delete(KeySelector),
}

/// One element of `then_ops` or `else_ops`, which `field` tells apart. What belongs to the transaction as a whole must
/// not stand in a step.
pub fn read_txn_op(field: &'static str, op: &v1::TxnOp) -> Result<TxnOp, BadField> {
    let refuse_own = |own: bool| {
        let says =
            "a step has no request, no consistency and no group of its own: they are the transaction's";
        if own { Err(BadField::new(field, says)) } else { Ok(()) }
    };
    match &op.op {
        None => Err(BadField::new(field, "a step does nothing: set put, get or delete")),
        Some(txn_op::Op::Put(put)) => {
            refuse_own(put.request.is_some())?;
            let (key, value) = (read_key("put.key", &put.key)?, read_value("put.value", &put.value)?);
            Ok(TxnOp::Put { key, value, lease: read_lease_id_or_none("put.lease_id", put.lease_id)? })
        }
        Some(txn_op::Op::Get(get)) => {
            refuse_own(get.consistency != 0 || !get.group_ids.is_empty())?;
            let keys = read_key_selector(&get.key, &get.prefix, get.all)?;
            Ok(TxnOp::Get { keys, limit: get.limit, sort: read_sort("get.sort", get.sort)? })
        }
        Some(txn_op::Op::Delete(delete)) => {
            refuse_own(delete.request.is_some())?;
            read_key_selector(&delete.key, &delete.prefix, delete.all).map(TxnOp::Delete)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn keys_are_one_a_prefix_or_all() {
        assert_eq!(read_key_selector(b"k", b"", false), Ok(KeySelector::Key(key("k"))));
        assert_eq!(read_key_selector(b"", b"k", false), Ok(KeySelector::Prefix(key("k"))));
        assert_eq!(read_key_selector(b"", b"", true), Ok(KeySelector::All));
    }

    #[test]
    fn keys_that_are_not_or_twice_given_are_refused() {
        let field_of = |key, prefix, all| read_key_selector(key, prefix, all).unwrap_err().field;
        assert_eq!(field_of(b"", b"", false), "key");
        assert_eq!(field_of(b"k", b"k", false), "prefix");
        assert_eq!(field_of(b"", b"k", true), "prefix");
        assert_eq!(field_of(b"k", b"", true), "all");
        assert_eq!(field_of(&[0; 513], b"", false), "key");
    }

    #[test]
    fn every_attribute_can_be_compared() {
        let revision = Revision::new(4).unwrap();
        let lease = LeaseId::new(7).unwrap();
        let cases = [
            (compare::Against::CreateRevision(0), Against::Create(Revision::ZERO)),
            (compare::Against::ModRevision(4), Against::Mod(revision)),
            (compare::Against::Version(2), Against::Version(2)),
            (compare::Against::Value(b"v".to_vec()), Against::Value(Value::new("v").unwrap())),
            (compare::Against::LeaseId(0), Against::Lease(None)),
            (compare::Against::LeaseId(7), Against::Lease(Some(lease))),
        ];
        for (wire, against) in cases {
            let compare = v1::Compare { key: b"k".to_vec(), relation: 0, against: Some(wire) };
            let expected = Compare { key: key("k"), relation: Relation::Equal, against };
            assert_eq!(read_compare(&compare), Ok(expected));
        }
    }

    #[test]
    fn a_compare_that_is_not_whole_is_refused() {
        let whole = v1::Compare {
            key: b"k".to_vec(),
            relation: Relation::Less.into(),
            against: Some(compare::Against::Version(1)),
        };
        let field_of = |compare| read_compare(&compare).unwrap_err().field;
        assert_eq!(field_of(v1::Compare { against: None, ..whole.clone() }), "compares.against");
        assert_eq!(field_of(v1::Compare { key: vec![], ..whole.clone() }), "compares.key");
        assert_eq!(field_of(v1::Compare { relation: 9, ..whole.clone() }), "compares.relation");
        let future = Some(compare::Against::ModRevision(u64::MAX));
        assert_eq!(field_of(v1::Compare { against: future, ..whole }), "compares.mod_revision");
    }

    #[test]
    fn steps_put_get_and_delete() {
        let read = |op| read_txn_op("then_ops", &v1::TxnOp { op: Some(op) });
        let put = v1::PutRequest { key: b"k".to_vec(), value: b"v".to_vec(), ..Default::default() };
        let value = Value::new("v").unwrap();
        assert_eq!(read(txn_op::Op::Put(put)), Ok(TxnOp::Put { key: key("k"), value, lease: None }));
        let get = v1::RangeRequest { prefix: b"k".to_vec(), limit: 3, ..Default::default() };
        let keys = KeySelector::Prefix(key("k"));
        assert_eq!(read(txn_op::Op::Get(get)), Ok(TxnOp::Get { keys, limit: 3, sort: Sort::Key }));
        let delete = v1::DeleteRequest { all: true, ..Default::default() };
        assert_eq!(read(txn_op::Op::Delete(delete)), Ok(TxnOp::Delete(KeySelector::All)));
    }

    #[test]
    fn a_step_that_is_empty_or_has_what_is_the_transaction_s_is_refused() {
        let field_of = |op| read_txn_op("else_ops", &v1::TxnOp { op }).unwrap_err().field;
        let request = Some(v1::Request::default());
        let put = v1::PutRequest { key: b"k".to_vec(), request: request.clone(), ..Default::default() };
        let get = v1::RangeRequest { all: true, consistency: 3, ..Default::default() };
        let delete = v1::DeleteRequest { all: true, request, ..Default::default() };
        assert_eq!(field_of(None), "else_ops");
        assert_eq!(field_of(Some(txn_op::Op::Put(put))), "else_ops");
        assert_eq!(field_of(Some(txn_op::Op::Get(get))), "else_ops");
        assert_eq!(field_of(Some(txn_op::Op::Delete(delete))), "else_ops");
        let none = v1::DeleteRequest::default();
        assert_eq!(field_of(Some(txn_op::Op::Delete(none))), "key");
    }
}
