//! Compare, then read and write, in one step.

use super::Registers;
use crate::convert;
use crate::error::Error;
use crate::register::Register;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{LeaseId, Revision};

/// A transaction: if all compares hold, one list of steps is done, otherwise the other; nothing comes between.
///
/// All keys must live in one group: those that share the text inside their first `{...}` do.
///
/// ```no_run
/// # async fn example(client: tollgate_client::Client) -> Result<(), tollgate_client::Error> {
/// use tollgate_client::{Compare, TxnOp};
///
/// // Compare and swap: writes only if nobody has written since we read.
/// let registers = client.registers();
/// let Some(read) = registers.get("config/colour").await? else { return Ok(()) };
/// let outcome = registers
///     .txn()
///     .when(Compare::mod_revision("config/colour", read.mod_revision))
///     .then(TxnOp::put("config/colour", "blue"))
///     .otherwise(TxnOp::get("config/colour"))
///     .commit()
///     .await?;
/// println!("{}", if outcome.succeeded { "it is blue" } else { "somebody was faster" });
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is done until it is committed"]
pub struct Txn {
    registers: Registers,
    request: v1::TxnRequest,
}

impl Txn {
    pub(super) fn new(registers: Registers) -> Txn {
        Txn { registers, request: v1::TxnRequest::default() }
    }

    /// A condition; all must hold.
    pub fn when(mut self, compare: Compare) -> Txn {
        self.request.compares.push(convert::compare(compare));
        self
    }

    /// A step to do if all compares hold.
    pub fn then(mut self, op: TxnOp) -> Txn {
        self.request.then_ops.push(convert::txn_op(op));
        self
    }

    /// A step to do if one does not.
    pub fn otherwise(mut self, op: TxnOp) -> Txn {
        self.request.else_ops.push(convert::txn_op(op));
        self
    }

    /// Does it.
    pub async fn commit(self) -> Result<TxnOutcome, Error> {
        let Txn { registers, mut request } = self;
        let write = |number: Option<v1::Request>| {
            request.request = number;
            Op::Txn(request)
        };
        match registers.write(write).await? {
            OpResult::Txn(response) => convert::txn_outcome(response),
            _ => Err(Error::unexpected("Txn")),
        }
    }
}

/// How an attribute of a register must stand to the given one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Relation {
    /// The same.
    #[default]
    Equal,
    /// Not the same.
    NotEqual,
    /// The register's is below the given one.
    Less,
    /// The register's is above the given one.
    Greater,
}

/// What of a register to compare, and with what.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompareWith {
    /// The revision of its creation; zero if it does not exist.
    CreateRevision(Revision),
    /// The revision of its last put; zero if it does not exist.
    ModRevision(Revision),
    /// How often it was put since its creation; 0 if it does not exist.
    Version(u64),
    /// Its value. No relation holds for that of one that does not exist.
    Value(Vec<u8>),
    /// Its lease, or none.
    Lease(Option<LeaseId>),
}

/// One condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compare {
    /// Which register.
    pub key: Vec<u8>,
    /// How its attribute must stand to the one given.
    pub relation: Relation,
    /// The attribute, and what to compare it with.
    pub with: CompareWith,
}

impl Compare {
    /// Any condition.
    pub fn new(key: impl Into<Vec<u8>>, relation: Relation, with: CompareWith) -> Compare {
        Compare { key: key.into(), relation, with }
    }

    /// The register was last put at this revision: nobody has written since.
    pub fn mod_revision(key: impl Into<Vec<u8>>, revision: Revision) -> Compare {
        Compare::new(key, Relation::Equal, CompareWith::ModRevision(revision))
    }

    /// The register has this value.
    pub fn value(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Compare {
        Compare::new(key, Relation::Equal, CompareWith::Value(value.into()))
    }

    /// There is no such register.
    pub fn missing(key: impl Into<Vec<u8>>) -> Compare {
        Compare::new(key, Relation::Equal, CompareWith::CreateRevision(Revision::ZERO))
    }

    /// There is such a register.
    pub fn exists(key: impl Into<Vec<u8>>) -> Compare {
        Compare::new(key, Relation::Greater, CompareWith::CreateRevision(Revision::ZERO))
    }
}

/// One step of a transaction. A key is written at most once in a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TxnOp {
    /// Writes a register.
    Put {
        /// Which.
        key: Vec<u8>,
        /// What.
        value: Vec<u8>,
        /// The lease with which it ends; none keeps it until it is deleted.
        lease: Option<LeaseId>,
    },
    /// Reads a register, as the steps before left it.
    Get {
        /// Which.
        key: Vec<u8>,
    },
    /// Deletes a register.
    Delete {
        /// Which.
        key: Vec<u8>,
    },
}

impl TxnOp {
    /// Writes a register that stays until it is deleted.
    pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> TxnOp {
        TxnOp::Put { key: key.into(), value: value.into(), lease: None }
    }

    /// Reads a register.
    pub fn get(key: impl Into<Vec<u8>>) -> TxnOp {
        TxnOp::Get { key: key.into() }
    }

    /// Deletes a register.
    pub fn delete(key: impl Into<Vec<u8>>) -> TxnOp {
        TxnOp::Delete { key: key.into() }
    }
}

/// What a transaction did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxnOutcome {
    /// Whether all compares held, and so which branch was taken.
    pub succeeded: bool,
    /// The revision of its writes, or the current one if it wrote nothing.
    pub revision: Revision,
    /// One result per step of the branch taken. None if the answer got lost and was asked for again: whether it
    /// succeeded is kept then, what its steps gave is not.
    pub results: Option<Vec<TxnResult>>,
}

/// What one step of a transaction gave.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TxnResult {
    /// Written.
    Put,
    /// What was found.
    Get(Option<Register>),
    /// How many were deleted: 0 or 1.
    Deleted(u64),
}
