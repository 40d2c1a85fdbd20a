//! A frame of operations, encoded as they are added.
//!
//! On the wire it is a [`SessionRequest`](crate::v1::SessionRequest). The caller keeps each operation, to send it again
//! if necessary, and only its encoded bytes are copied. Not here: frames of results, and decoding.

use crate::v1::operation::Op;
use prost::DecodeError;
use prost::Message;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, encode_key, encode_varint, encoded_len_varint, uint64};

/// Field number of `SessionRequest.operations`.
const OPERATIONS: u32 = 1;
/// Field number of `Operation.id`.
const ID: u32 = 1;

/// Frame of encoded operations of a session.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct OperationFrame {
    bytes: Vec<u8>,
    operations: usize,
}

impl OperationFrame {
    /// Adds an operation with an id of at least 1.
    pub fn push(&mut self, id: u64, op: &Op) {
        let length = uint64::encoded_len(ID, &id) + op.encoded_len();
        self.bytes.reserve(length + 2 * encoded_len_varint(u64::MAX));
        encode_key(OPERATIONS, WireType::LengthDelimited, &mut self.bytes);
        encode_varint(length as u64, &mut self.bytes);
        uint64::encode(ID, &id, &mut self.bytes);
        op.encode(&mut self.bytes);
        self.operations += 1;
    }

    /// Returns the number of operations in the frame.
    pub fn operations(&self) -> usize {
        self.operations
    }

    /// Returns the encoded length of the frame in bytes.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }
}

/// Implemented for sending only: a frame is never decoded into this type.
impl Message for OperationFrame {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(&self.bytes);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        prost::encoding::skip_field(wire_type, tag, buf, ctx)
    }

    fn encoded_len(&self) -> usize {
        self.bytes.len()
    }

    fn clear(&mut self) {
        *self = OperationFrame::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1;

    #[test]
    fn it_is_what_a_session_reads() {
        let lock = Op::Lock(v1::LockRequest { name: "jobs".into(), lease_id: 7, ..Default::default() });
        let revoke = Op::LeaseRevoke(v1::LeaseRevokeRequest { id: u64::MAX });
        let mut frame = OperationFrame::default();
        frame.push(1, &lock);
        frame.push(300, &revoke);
        assert_eq!((frame.operations(), frame.length()), (2, frame.encode_to_vec().len()));
        let read = v1::SessionRequest::decode(&frame.encode_to_vec()[..]).unwrap();
        let operation = |id, op: &Op| v1::Operation { id, op: Some(op.clone()), ..Default::default() };
        let operations = vec![operation(1, &lock), operation(300, &revoke)];
        assert_eq!(read, v1::SessionRequest { operations, hung_up: Vec::new() });
    }
}
