//! Tests that frames of a session survive encoding and decoding.

use prost::Message;
use tollgate_proto::v1::{
    Error, ErrorReason, LockRequest, LockResponse, Mode, Operation, OperationResult, Queued, Request,
    SeqRange, SessionRequest, SessionResponse, UnlockRequest, operation, operation_result,
};

fn round_trip<M: Message + Default + PartialEq + std::fmt::Debug>(frame: &M) -> usize {
    let bytes = frame.encode_to_vec();
    assert_eq!(&M::decode(bytes.as_slice()).expect("what was encoded"), frame);
    bytes.len()
}

fn lock(id: u64) -> Operation {
    let request = Request { seq: id, acked: vec![SeqRange { first: 1, last: id - 1 }], ..Request::default() };
    let lock = LockRequest {
        name: "db/migrate".into(),
        lease_id: 1 << 50,
        timeout_ms: 30_000,
        owner: "t1".into(),
        request: Some(request),
        ..LockRequest::default()
    };
    Operation { id, op: Some(operation::Op::Lock(lock)), client_address: String::new() }
}

#[test]
fn a_frame_of_operations_survives_the_wire() {
    let unlock = UnlockRequest { name: "jobs".into(), fencing_token: 17, ..UnlockRequest::default() };
    let unlock = Operation { id: 3, op: Some(operation::Op::Unlock(unlock)), client_address: "h:1".into() };
    round_trip(&SessionRequest { operations: vec![lock(2), unlock], hung_up: vec![1, u64::MAX] });
}

#[test]
fn a_frame_of_results_survives_the_wire() {
    let granted = LockResponse {
        key: "db/migrate/0004000000000000/t1".into(),
        fencing_token: 42,
        acquired: true,
        mode: Mode::Exclusive.into(),
        create_revision: 40,
        ..LockResponse::default()
    };
    let queued = Queued { position: 1, create_revision: 40 };
    let refused = Error { fencing_token: 20, ..Error::new(ErrorReason::StaleToken, "token 17 is stale") };
    let result = |id, result| OperationResult { id, result: Some(result) };
    round_trip(&SessionResponse {
        header: None,
        results: vec![
            result(2, operation_result::Result::Queued(queued)),
            result(3, operation_result::Result::Error(refused)),
            result(2, operation_result::Result::Lock(granted)),
        ],
    });
}

#[test]
fn a_lock_in_a_full_frame_takes_few_bytes() {
    let frame = SessionRequest { operations: (1_000..1_100).map(lock).collect(), hung_up: Vec::new() };
    let each = round_trip(&frame) / 100;
    assert!(each <= 60, "{each} bytes");
}

#[test]
fn an_operation_that_an_older_server_does_not_know_has_an_id_and_no_op() {
    // Tag 1,000, a message of zero bytes.
    let frame = [0x0a, 0x05, 0x08, 0x07, 0xc2, 0x3e, 0x00];
    let read = SessionRequest::decode(frame.as_slice()).unwrap();
    assert_eq!(read.operations, [Operation { id: 7, ..Operation::default() }]);
}

#[test]
fn a_frame_that_is_cut_short_is_refused() {
    let bytes = SessionRequest { operations: vec![lock(2)], hung_up: Vec::new() }.encode_to_vec();
    assert!(SessionRequest::decode(&bytes[..bytes.len() - 1]).is_err());
}
