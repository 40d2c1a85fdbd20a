//! `RegisterService`.

use crate::grpc::rpc;
use tollgate_gateway::Router;
use tollgate_proto::v1::register_service_server::RegisterService;
use tollgate_proto::v1::{
    DeleteRequest, DeleteResponse, GetRequest, GetResponse, PutRequest, PutResponse, RangeRequest,
    RangeResponse, TxnRequest, TxnResponse,
};

pub(crate) struct Registers {
    pub(crate) router: Router,
}

#[tonic::async_trait]
impl RegisterService for Registers {
    rpc!(put, PutRequest => Put, Put(PutResponse));
    rpc!(get, GetRequest => Get, Get(GetResponse));
    rpc!(delete, DeleteRequest => Delete, Delete(DeleteResponse));
    rpc!(range, RangeRequest => Range, Range(RangeResponse));
    rpc!(txn, TxnRequest => Txn, Txn(TxnResponse));
}
