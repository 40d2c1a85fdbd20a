//! Clients that lock and unlock over one shared stream, each with its own name under its own lease.

use crate::cluster::Cluster;
use prost::Message;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{LeaseId, Name};

pub(crate) struct Clients(Vec<Client>);

struct Client {
    name: String,
    lease: LeaseId,
    seq: u64,
    /// Fencing token of the lock that the client holds, if any.
    token: Option<u64>,
}

impl Clients {
    pub(crate) fn new(count: usize) -> Clients {
        Clients((0..count).map(Client::new).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Grants the lease of every client.
    pub(crate) fn grant(&self, cluster: &mut Cluster) {
        let operations = self.0.iter().enumerate().map(|(at, client)| client.grant().numbered(at));
        let frame = v1::SessionRequest { operations: operations.collect(), hung_up: Vec::new() };
        let answers = cluster.carry_out(&frame.encode_to_vec(), self.len());
        let answers = v1::SessionResponse::decode(answers.as_slice()).expect("encoded by the cluster");
        let granted = |it: &v1::OperationResult| matches!(it.result, Some(OpResult::LeaseGrant(_)));
        assert!(answers.results.iter().all(granted), "{:?}", answers.results.first());
    }

    /// Returns a frame with the next operation of the first `count` clients.
    pub(crate) fn ask(&mut self, count: usize) -> Vec<u8> {
        let first = self.0[..count].iter_mut().enumerate();
        let operations = first.map(|(at, client)| client.next().numbered(at)).collect();
        v1::SessionRequest { operations, hung_up: Vec::new() }.encode_to_vec()
    }

    /// Applies a frame of answers to the clients.
    pub(crate) fn hear(&mut self, answers: &[u8]) {
        let answers = v1::SessionResponse::decode(answers).expect("encoded by the cluster");
        for v1::OperationResult { id, result } in answers.results {
            let client = &mut self.0[usize::try_from(id).expect("an index")];
            client.token = match result {
                Some(OpResult::Lock(lock)) if lock.acquired => Some(lock.fencing_token),
                Some(OpResult::Unlock(_)) => None,
                other => panic!("{other:?}"),
            };
        }
    }
}

trait Numbered {
    fn numbered(self, at: usize) -> v1::Operation;
}

impl Numbered for Op {
    fn numbered(self, at: usize) -> v1::Operation {
        v1::Operation { id: at as u64, op: Some(self), client_address: String::new() }
    }
}

impl Client {
    fn new(number: usize) -> Client {
        let name = format!("bench/uncontended/{number:06}");
        let slot = Name::new(name.as_str()).expect("valid").slot();
        Client { lease: LeaseId::assigned(slot, number as u64 + 1), name, seq: 0, token: None }
    }

    fn grant(&self) -> Op {
        Op::LeaseGrant(v1::LeaseGrantRequest {
            id: self.lease.get(),
            ttl: 600,
            client_id: "bench".to_owned(),
            ..Default::default()
        })
    }

    fn next(&mut self) -> Op {
        self.seq += 1;
        // All earlier requests have been answered.
        let acked = (self.seq > 1).then(|| v1::SeqRange { first: 1, last: self.seq - 1 });
        let request =
            Some(v1::Request { seq: self.seq, acked: acked.into_iter().collect(), ..Default::default() });
        // A lock and its unlock have one owner, as they do with the client library.
        let owner = self.seq.div_ceil(2).to_string();
        let (name, lease_id) = (self.name.clone(), self.lease.get());
        match self.token {
            None => Op::Lock(v1::LockRequest {
                name,
                lease_id,
                owner,
                timeout_ms: -1,
                request,
                ..Default::default()
            }),
            Some(fencing_token) => Op::Unlock(v1::UnlockRequest {
                name,
                lease_id,
                owner,
                fencing_token,
                request,
                ..Default::default()
            }),
        }
    }
}
