//! Messages that never reach a service: too long, or not of the method's type.

use crate::sessions::{Cluster, PATIENCE};
use tokio_stream::StreamExt;
use tollgate_proto::error_of_status;
use tollgate_proto::v1::{Error, ErrorReason};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

/// A codec that sends bytes as they are.
#[derive(Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, bytes: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(into, &bytes);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        let length = bytes::Buf::remaining(from);
        bytes::Buf::advance(from, length);
        Ok(Some(()))
    }
}

/// Returns the error of a call that sends one message, alone or on a stream.
async fn refused(channel: &Channel, method: &'static str, message: Vec<u8>, streams: bool) -> (Code, Error) {
    let path = PathAndQuery::from_static(method);
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let call = async {
        if !streams {
            return client.unary(Request::new(message), path, Raw).await.unwrap_err();
        }
        let requests = tokio_stream::once(message).chain(tokio_stream::pending());
        let mut answers = match client.streaming(Request::new(requests), path, Raw).await {
            Ok(answers) => answers.into_inner(),
            Err(status) => return status,
        };
        loop {
            match answers.next().await {
                Some(Ok(())) => {}
                Some(Err(status)) => return status,
                None => return Status::ok("it ended as if all were well"),
            }
        }
    };
    let status = tokio::time::timeout(PATIENCE, call).await.unwrap();
    let error = error_of_status(&status);
    (status.code(), error.unwrap_or_else(|| panic!("{method}: no details: {status:?}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_not_be_read_has_the_same_error_by_every_door() {
    let cluster = Cluster::start_with(&[false], &[("server.frame_bytes_max", "64KiB")]).await;
    let channel = cluster.channel(0).await;
    let name = b"\x0a\x02\xff\xff".to_vec();
    let frame = b"\x0a\x06\x12\x04\x0a\x02\xff\xff".to_vec();
    let metadata = b"\x22\x01\xff".to_vec();
    for (method, message, streams, field) in [
        ("/tollgate.v1.LockService/Lock", name.clone(), false, "name"),
        ("/tollgate.v1.LockService/Lock", metadata, false, "metadata"),
        ("/tollgate.v1.LockService/Lock", b"\xff".to_vec(), false, ""),
        ("/tollgate.v1.AdminService/SetLimits", b"\x0a\x01\x08".to_vec(), false, ""),
        ("/tollgate.v1.LockService/LeaseKeepAlive", b"\x0a\x02\xff\xff".to_vec(), true, ""),
        ("/tollgate.v1.LockService/Watch", b"\x0a\x02\xff\xff".to_vec(), true, ""),
        ("/tollgate.v1.SessionService/Session", frame, true, "operations.op.name"),
    ] {
        let (code, error) = refused(&channel, method, message, streams).await;
        assert_eq!(
            (code, error.reason()),
            (Code::InvalidArgument, ErrorReason::BadField),
            "{method}: {error:?}"
        );
        assert!(
            !error.may_have_happened && (field.is_empty() || error.field == field),
            "{method}: {error:?}"
        );
    }
    let long = vec![0; (64 << 10) + 2_048];
    for (method, streams) in [
        ("/tollgate.v1.LockService/Lock", false),
        ("/tollgate.v1.LockService/LeaseKeepAlive", true),
        ("/tollgate.v1.LockService/Watch", true),
        ("/tollgate.v1.SessionService/Session", true),
    ] {
        let (code, error) = refused(&channel, method, long.clone(), streams).await;
        assert_eq!((code, error.reason()), (Code::ResourceExhausted, ErrorReason::LimitExceeded), "{method}");
        let limit = (error.limit.as_str(), error.limit_value, error.may_have_happened);
        assert_eq!(limit, ("frame_bytes_max", 64 << 10, false), "{method}: {error:?}");
    }
    cluster.stop().await;
}
