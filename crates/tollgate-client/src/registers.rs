//! Registers: small values next to the locks, for settings and addresses.
//!
//! Invariant: a write of a session carries a number, so that it takes effect once however often it is sent; a write
//! without a number is sent once, and its error says whether it may have happened. Not here: following registers
//! (`watch`).

mod txn;

pub use txn::{Compare, CompareWith, Relation, Txn, TxnOp, TxnOutcome, TxnResult};

use crate::client::Client;
use crate::consistency::Consistency;
use crate::convert;
use crate::error::Error;
use crate::register::Register;
use crate::session::{Core, Session};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use tokio::time::Instant;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{LeaseId, Revision};

/// Registers of a cluster.
///
/// The registers of a client write without a number: if a connection breaks at the wrong moment, the error says that
/// the write [may have happened](Error::may_have_happened). Guard such writes with a compare ([`Registers::txn`]). The
/// registers of a session ([`Session::registers`]) write with numbers and avoid this uncertainty.
#[derive(Debug, Clone)]
pub struct Registers {
    client: Client,
    /// Session that numbers the writes, if any.
    session: Option<Session>,
}

impl Client {
    /// Returns registers without a session.
    ///
    /// ```no_run
    /// # async fn example(client: tollgate_client::Client) -> Result<(), tollgate_client::Error> {
    /// let registers = client.registers();
    /// registers.put("config/colour", "green").await?;
    /// if let Some(register) = registers.get("config/colour").await? {
    ///     println!("{} at {}", String::from_utf8_lossy(&register.value), register.mod_revision);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn registers(&self) -> Registers {
        Registers { client: self.clone(), session: None }
    }
}

impl Session {
    /// Returns registers whose writes are numbered by this session: each write takes effect once, however often it is
    /// sent.
    ///
    /// ```no_run
    /// # async fn example(session: tollgate_client::Session) -> Result<(), tollgate_client::Error> {
    /// // Gone when the session is: who is here, and where.
    /// session.registers().put("workers/7", "10.0.0.7:9000").lease(session.lease_id()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn registers(&self) -> Registers {
        Registers { client: self.core().client.clone(), session: Some(self.clone()) }
    }
}

impl Registers {
    /// Writes a register, new or existing: `.await` it.
    pub fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Put {
        let request = v1::PutRequest { key: key.into(), value: value.into(), ..Default::default() };
        Put { registers: self.clone(), request }
    }

    /// Reads a register; none if no register has this key.
    pub async fn get(&self, key: impl Into<Vec<u8>>) -> Result<Option<Register>, Error> {
        self.get_with(key, Consistency::Linearizable).await
    }

    /// Reads a register with the given consistency.
    pub async fn get_with(
        &self,
        key: impl Into<Vec<u8>>,
        consistency: Consistency,
    ) -> Result<Option<Register>, Error> {
        let consistency = convert::consistency(consistency);
        let request = v1::GetRequest { key: key.into(), consistency };
        match self.client.call(Op::Get(request)).await? {
            OpResult::Get(response) => response.register.map(convert::register).transpose(),
            _ => Err(Error::unexpected("Get")),
        }
    }

    /// Deletes a register. Returns the number of deleted registers: 0 or 1. After a repeat that number is not known,
    /// and 0.
    pub async fn delete(&self, key: impl Into<Vec<u8>>) -> Result<u64, Error> {
        self.delete_all(v1::DeleteRequest { key: key.into(), ..Default::default() }).await
    }

    /// Deletes all registers whose key begins with `prefix`, which must not be empty. Returns the number of deleted
    /// registers, as [`Registers::delete`].
    pub async fn delete_prefix(&self, prefix: impl Into<Vec<u8>>) -> Result<u64, Error> {
        self.delete_all(v1::DeleteRequest { prefix: prefix.into(), ..Default::default() }).await
    }

    async fn delete_all(&self, mut request: v1::DeleteRequest) -> Result<u64, Error> {
        let write = |number: Option<v1::Request>| {
            request.request = number;
            Op::Delete(request)
        };
        match self.write(write).await? {
            OpResult::Delete(response) => Ok(response.deleted),
            _ => Err(Error::unexpected("Delete")),
        }
    }

    /// Reads all registers whose key begins with `prefix`; empty for all. `.await` it.
    pub fn range(&self, prefix: impl Into<Vec<u8>>) -> Range {
        let prefix = prefix.into();
        let all = prefix.is_empty();
        Range { client: self.client.clone(), request: v1::RangeRequest { prefix, all, ..Default::default() } }
    }

    /// Returns a transaction: it compares, then reads and writes, in one atomic step.
    pub fn txn(&self) -> Txn {
        Txn::new(self.clone())
    }

    /// Makes a write, with a number if there is a session to number it.
    async fn write(&self, op: impl FnOnce(Option<v1::Request>) -> Op) -> Result<OpResult, Error> {
        let Some(session) = &self.session else { return self.client.call(op(None)).await };
        let core = session.core();
        let _place = core.place().await;
        let number = core.seqs.number();
        let request = v1::Request { lease_id: core.lease.get(), ..Core::request(number.seq) };
        let until = Instant::now() + self.client.call_timeout();
        Ok(core.ask(&mut op(Some(request)), Some(until)).await?.result)
    }
}

/// Write of a register: `.await` it.
#[derive(Debug, Clone)]
#[must_use = "nothing is written until it is awaited"]
pub struct Put {
    registers: Registers,
    request: v1::PutRequest,
}

impl Put {
    /// Sets the lease with which the register ends. Without a lease it stays until it is deleted.
    pub fn lease(mut self, lease: LeaseId) -> Put {
        self.request.lease_id = lease.get();
        self
    }

    async fn put(self) -> Result<Revision, Error> {
        let Put { registers, mut request } = self;
        let write = |number: Option<v1::Request>| {
            request.request = number;
            Op::Put(request)
        };
        match registers.write(write).await? {
            OpResult::Put(response) => convert::revision(response.revision),
            _ => Err(Error::unexpected("Put")),
        }
    }
}

/// Returns the revision of the write, which is the register's `mod_revision` from then on.
impl IntoFuture for Put {
    type Output = Result<Revision, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.put())
    }
}

/// Sort order of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sort {
    /// By key, compared byte by byte.
    #[default]
    Key,
    /// By key, in descending order.
    KeyDescending,
    /// By create revision, oldest first.
    Create,
    /// By create revision, newest first.
    CreateDescending,
}

/// Read of several registers: `.await` it.
#[derive(Debug, Clone)]
#[must_use = "nothing is read until it is awaited"]
pub struct Range {
    client: Client,
    request: v1::RangeRequest,
}

/// Registers that a range found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// Registers, in the requested order.
    pub registers: Vec<Register>,
    /// Number of registers that match, including those past the limit. One above the cluster's limit `range_max` means
    /// "more".
    pub count: u64,
}

impl Range {
    /// Sets the maximum number of registers, after sorting.
    pub fn limit(mut self, registers: u32) -> Range {
        self.request.limit = registers;
        self
    }

    /// Sets the order; by key if not given.
    pub fn sort(mut self, sort: Sort) -> Range {
        self.request.sort = convert::sort(sort);
        self
    }

    /// Sets the consistency of the read.
    pub fn consistency(mut self, consistency: Consistency) -> Range {
        self.request.consistency = convert::consistency(consistency);
        self
    }

    async fn read(self) -> Result<Found, Error> {
        let OpResult::Range(response) = self.client.call(Op::Range(self.request)).await? else {
            return Err(Error::unexpected("Range"));
        };
        let registers = response.registers.into_iter().map(convert::register).collect::<Result<_, _>>()?;
        Ok(Found { registers, count: response.count })
    }
}

impl IntoFuture for Range {
    type Output = Result<Found, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.read())
    }
}
