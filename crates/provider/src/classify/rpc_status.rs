//! The names of `google.rpc.Code` and the HTTP statuses that go with them.
//!
//! Source: the table in <https://cloud.google.com/apis/design/errors#handling_errors>.

/// One canonical error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RpcStatus {
    pub(super) name: &'static str,
    pub(super) http: u16,
}

const TABLE: [RpcStatus; 16] = [
    RpcStatus { name: "RESOURCE_EXHAUSTED", http: 429 },
    RpcStatus { name: "INVALID_ARGUMENT", http: 400 },
    RpcStatus { name: "PERMISSION_DENIED", http: 403 },
    RpcStatus { name: "UNAVAILABLE", http: 503 },
    RpcStatus { name: "INTERNAL", http: 500 },
    RpcStatus { name: "NOT_FOUND", http: 404 },
    RpcStatus { name: "FAILED_PRECONDITION", http: 400 },
    RpcStatus { name: "UNAUTHENTICATED", http: 401 },
    RpcStatus { name: "DEADLINE_EXCEEDED", http: 504 },
    RpcStatus { name: "CANCELLED", http: 499 },
    RpcStatus { name: "OUT_OF_RANGE", http: 400 },
    RpcStatus { name: "ABORTED", http: 409 },
    RpcStatus { name: "ALREADY_EXISTS", http: 409 },
    RpcStatus { name: "UNIMPLEMENTED", http: 501 },
    RpcStatus { name: "DATA_LOSS", http: 500 },
    RpcStatus { name: "UNKNOWN", http: 500 },
];

/// The code called `name`, exactly.
pub(super) fn named(name: &str) -> Option<RpcStatus> {
    TABLE.into_iter().find(|status| status.name == name)
}
