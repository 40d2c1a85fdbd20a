//! Conversion between wire messages and JSON, by descriptors: no message is spelled out twice.
//!
//! Names are those of the proto files. 64-bit ids, tokens, revisions and counts (`uint64`) are written as strings,
//! which no JSON library rounds; times (`int64`) as numbers. Both are read in either form. A lease id is also read as
//! `L-` and sixteen hex digits, the form that people see elsewhere; digits without `L-` that may be hex are not taken
//! for a decimal number. The name of an enum value is written without its prefix (`SHARED`), and read with or without
//! it, in any case, or as its number. Bytes are base64. Invariant: a field that the message does not have is refused by
//! name, so that a typing mistake never does less than was meant. Not here: maps, because no message that is served
//! here has one.

use super::error::bad_field;
use super::query::pairs;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage,
    Value as Field,
};
use serde_json::{Map, Value};
use std::sync::LazyLock;
use tollgate_proto::FILE_DESCRIPTOR_SET;
use tollgate_proto::v1::{Error, ErrorReason};
use tollgate_types::LeaseId;

/// Descriptors of all messages.
pub(super) static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the compiler made it"));

/// Returns the descriptor of one of our messages, which must exist.
pub(super) fn message(name: &str) -> MessageDescriptor {
    POOL.get_message_by_name(&format!("tollgate.v1.{name}")).expect("a message of the proto files")
}

/// Converts a dynamic message to its generated type.
pub(super) fn typed<T: Message + Default>(message: &DynamicMessage) -> Result<T, Error> {
    let says =
        |error| Error::new(ErrorReason::Internal, format!("a message did not fit its descriptor: {error}"));
    message.transcode_to().map_err(says)
}

/// Reads a message from the body of a request.
pub(super) fn read_body(kind: MessageDescriptor, bytes: &[u8]) -> Result<DynamicMessage, Error> {
    if bytes.is_empty() {
        return Ok(DynamicMessage::new(kind));
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        bad_field("body", &format!("it is not JSON: {error}; send one object with its fields"))
    })?;
    read_message(kind, &value, "")
}

/// Reads a message from the query of a request, the part after the `?`.
pub(super) fn read_query(kind: MessageDescriptor, query: &str) -> Result<DynamicMessage, Error> {
    let mut message = DynamicMessage::new(kind);
    for (name, text) in pairs(query)? {
        let field = field_of(&message.descriptor(), &name, &name)?;
        if field.is_list() {
            return Err(bad_field(&name, "it can't be given in a query"));
        }
        if message.has_field(&field) {
            return Err(bad_field(&name, "it is given twice: give it once"));
        }
        let value = match (field.kind(), text.as_str()) {
            (Kind::Bool, "" | "true" | "1") => Value::Bool(true),
            (Kind::Bool, "false" | "0") => Value::Bool(false),
            _ => Value::String(text),
        };
        message.set_field(&field, read_one(&field, &value, &name)?);
    }
    Ok(message)
}

fn field_of(kind: &MessageDescriptor, name: &str, path: &str) -> Result<FieldDescriptor, Error> {
    kind.get_field_by_name(name).ok_or_else(|| {
        let known: Vec<String> = kind.fields().map(|field| field.name().to_owned()).collect();
        let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
        bad_field(path, &format!("there is no such field; known are: {known}"))
    })
}

fn read_message(kind: MessageDescriptor, value: &Value, path: &str) -> Result<DynamicMessage, Error> {
    let Value::Object(fields) = value else {
        return Err(bad_field(if path.is_empty() { "body" } else { path }, "send an object, in braces"));
    };
    let mut message = DynamicMessage::new(kind);
    for (name, value) in fields {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let field = field_of(&message.descriptor(), name, &path)?;
        if value.is_null() {
            continue;
        }
        let read =
            if field.is_list() { read_list(&field, value, &path)? } else { read_one(&field, value, &path)? };
        message.set_field(&field, read);
    }
    Ok(message)
}

fn read_list(field: &FieldDescriptor, value: &Value, path: &str) -> Result<Field, Error> {
    let Value::Array(items) = value else { return Err(bad_field(path, "send a list, in brackets")) };
    items.iter().map(|item| read_one(field, item, path)).collect::<Result<_, _>>().map(Field::List)
}

fn read_one(field: &FieldDescriptor, value: &Value, path: &str) -> Result<Field, Error> {
    match (&field.kind(), value) {
        (Kind::String, Value::String(text)) => Ok(Field::String(text.clone())),
        (Kind::String, _) => Err(bad_field(path, "send a text, in quotes")),
        (Kind::Bytes, Value::String(text)) => read_base64(text, path).map(Field::Bytes),
        (Kind::Bytes, _) => Err(bad_field(path, BASE64_WANTED)),
        (Kind::Bool, Value::Bool(set)) => Ok(Field::Bool(*set)),
        (Kind::Bool, _) => Err(bad_field(path, "send true or false")),
        (Kind::Uint64, Value::String(text)) if is_lease_id(field) && !is_decimal(text) => {
            read_lease_id(text, path).map(Field::U64)
        }
        (Kind::Uint64, _) => read_number(value, path).map(Field::U64),
        (Kind::Int64, _) => read_number(value, path).map(Field::I64),
        (Kind::Uint32, _) => read_number(value, path).map(Field::U32),
        (Kind::Int32, _) => read_number(value, path).map(Field::I32),
        (Kind::Enum(of), _) => read_enum(of, value, path),
        (Kind::Message(of), _) => read_message(of.clone(), value, path).map(Field::Message),
        _ => Err(bad_field(path, "it can't be sent as JSON: use gRPC")),
    }
}

const BASE64_WANTED: &str = "send base64, in quotes";

/// Written with padding, read with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads base64 as protobuf defines it: either alphabet, with or without padding.
fn read_base64(text: &str, path: &str) -> Result<Bytes, Error> {
    let standard = text.replace('-', "+").replace('_', "/");
    BASE64
        .decode(standard)
        .map(Bytes::from)
        .map_err(|error| bad_field(path, &format!("{BASE64_WANTED}: {error}")))
}

/// True if the field is a lease id.
pub(super) fn is_lease_id(field: &FieldDescriptor) -> bool {
    field.name().ends_with("lease_id")
        || (field.name() == "id" && field.parent_message().name().starts_with("Lease"))
}

/// True for a number as protobuf writes it, which can't be meant as hex: digits without leading zeros.
fn is_decimal(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && (text == "0" || !text.starts_with('0'))
}

fn read_lease_id(text: &str, path: &str) -> Result<u64, Error> {
    text.parse().map(LeaseId::get).map_err(|invalid| bad_field(path, &invalid.to_string()))
}

fn read_number<T: TryFrom<i128>>(value: &Value, path: &str) -> Result<T, Error> {
    let number = match value {
        Value::String(text) if text.starts_with('+') => None,
        Value::String(text) => text.parse::<i128>().ok(),
        Value::Number(number) => number.as_u64().map(i128::from).or_else(|| number.as_i64().map(i128::from)),
        _ => None,
    };
    let says = "send a whole number in its range, as a number or in quotes";
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| bad_field(path, says))
}

fn read_enum(of: &EnumDescriptor, value: &Value, path: &str) -> Result<Field, Error> {
    let prefix = prefix_of(of);
    let found = match value {
        Value::String(text) => {
            let name = text.to_ascii_uppercase();
            let short = name.strip_prefix(&prefix).unwrap_or(&name);
            of.get_value_by_name(&format!("{prefix}{short}"))
        }
        Value::Number(number) => number
            .as_i64()
            .and_then(|number| i32::try_from(number).ok())
            .and_then(|number| of.get_value(number)),
        _ => None,
    };
    found
        .map(|found| Field::EnumNumber(found.number()))
        .ok_or_else(|| bad_field(path, &format!("send one of {}", names_of(of).join(", "))))
}

/// Returns the common prefix of the names of an enum's values.
fn prefix_of(of: &EnumDescriptor) -> String {
    let mut prefix = String::new();
    for letter in of.name().chars() {
        if letter.is_ascii_uppercase() && !prefix.is_empty() {
            prefix.push('_');
        }
        prefix.push(letter.to_ascii_uppercase());
    }
    prefix.push('_');
    prefix
}

/// Returns the short names of an enum's values, except the unspecified value 0.
pub(super) fn names_of(of: &EnumDescriptor) -> Vec<String> {
    let prefix = prefix_of(of);
    let values = of.values().filter(|value| value.number() != 0);
    values.map(|value| value.name().trim_start_matches(&prefix).to_owned()).collect()
}

/// Writes a generated message as JSON. `kind` is its descriptor.
pub(super) fn write_message(kind: MessageDescriptor, message: &impl Message) -> Value {
    let mut twin = DynamicMessage::new(kind);
    match twin.transcode_from(message) {
        Ok(()) => write(&twin),
        Err(_) => Value::Null,
    }
}

/// Writes a message as JSON. Unset enums, and unset fields with presence such as messages, are left out; all other
/// fields are written, whatever their value.
pub(super) fn write(message: &DynamicMessage) -> Value {
    let mut fields = Map::new();
    for field in message.descriptor().fields() {
        if !is_always_written(&field) && !message.has_field(&field) {
            continue;
        }
        let value = write_one(&field.kind(), &message.get_field(&field));
        fields.insert(field.name().to_owned(), value);
    }
    Value::Object(fields)
}

/// True for a field that is written even if it is not set.
pub(super) fn is_always_written(field: &FieldDescriptor) -> bool {
    field.is_list() || !(field.supports_presence() || matches!(field.kind(), Kind::Enum(_)))
}

fn write_one(kind: &Kind, value: &Field) -> Value {
    match (kind, value) {
        (_, Field::List(items)) => items.iter().map(|item| write_one(kind, item)).collect(),
        (_, Field::Bool(set)) => Value::Bool(*set),
        (_, Field::String(text)) => Value::String(text.clone()),
        (_, Field::Bytes(bytes)) => Value::String(BASE64.encode(bytes)),
        (_, Field::U64(number)) => Value::String(number.to_string()),
        (_, Field::I64(number)) => (*number).into(),
        (_, Field::U32(number)) => (*number).into(),
        (_, Field::I32(number)) => (*number).into(),
        (_, Field::Message(message)) => write(message),
        (Kind::Enum(of), Field::EnumNumber(number)) => match of.get_value(*number) {
            Some(value) => value.name().trim_start_matches(&prefix_of(of)).into(),
            None => (*number).into(),
        },
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tollgate_proto::v1;

    fn read<T: Message + Default>(name: &str, value: &Value) -> Result<T, Error> {
        typed(&read_body(message(name), value.to_string().as_bytes())?)
    }

    #[test]
    fn bytes_are_base64_of_either_alphabet_with_or_without_padding() {
        let read = |text: &str| read("LockRequest", &json!({ "metadata_bytes": text }));
        for text in ["+/8A/w==", "+/8A/w", "-_8A_w==", "-_8A_w"] {
            let request: v1::LockRequest = read(text).unwrap();
            assert_eq!(request.metadata_bytes, b"\xfb\xff\0\xff", "{text}");
        }
        for wrong in ["?", "a", "+/8A/w===", "Zh=="] {
            let error = read(wrong).map(|_: v1::LockRequest| ()).unwrap_err();
            assert_eq!(error.field, "metadata_bytes", "{wrong}: {error:?}");
            assert!(error.message.contains("send base64, in quotes"), "{error:?}");
        }
        let holder = v1::Holder { metadata_bytes: b"\xfb\xff\0\xff".to_vec(), ..Default::default() };
        let mut told = DynamicMessage::new(message("Holder"));
        told.transcode_from(&holder).unwrap();
        assert_eq!(write(&told)["metadata_bytes"], "+/8A/w==");
    }

    #[test]
    fn a_request_is_read_with_numbers_as_numbers_or_strings() {
        let value = json!({
            "names": ["a", "b/c"], "lease_id": "9223372036854775807", "timeout_ms": -1, "mode": "shared",
            "request": { "seq": 5, "acked": [{ "first": "1", "last": 4 }] }, "owner": null,
        });
        let request: v1::LockRequest = read("LockRequest", &value).unwrap();
        assert_eq!(request.names, ["a", "b/c"]);
        assert_eq!((request.lease_id, request.timeout_ms), (i64::MAX as u64, -1));
        assert_eq!(request.mode(), v1::Mode::Shared);
        let identity = request.request.unwrap();
        assert_eq!((identity.seq, identity.acked), (5, vec![v1::SeqRange { first: 1, last: 4 }]));
    }

    #[test]
    fn a_lease_is_named_in_decimal_or_as_people_see_it_and_not_in_digits_that_may_be_either() {
        let read = |id: Value| read::<v1::UnlockRequest>("UnlockRequest", &json!({ "lease_id": id }));
        for id in [json!(31), json!("31"), json!("L-000000000000001f"), json!("L-000000000000001F")] {
            assert_eq!(read(id.clone()).unwrap().lease_id, 31, "{id}");
        }
        let id = 1_234_567_890_123_456_u64;
        assert_eq!(read(json!(id.to_string())).unwrap().lease_id, id, "sixteen digits are decimal here");
        for id in
            ["0000000000001234", "06666c056fc0de30", "6666c056fc0de300", "007", "L-1f", "l-000000000000001f"]
        {
            let error = read(json!(id)).unwrap_err();
            assert_eq!((error.reason(), error.field.as_str()), (ErrorReason::BadField, "lease_id"), "{id}");
            assert!(error.message.contains("L-"), "{}", error.message);
        }
        let says = read(json!("0000000000001234")).unwrap_err().message;
        assert!(says.contains("L-0000000000001234 if these are hex digits"), "{says}");
        let token = read_body(message("UnlockRequest"), br#"{"fencing_token": "L-0000000000000007"}"#);
        assert_eq!(token.unwrap_err().field, "fencing_token", "only leases are named so");
    }

    #[test]
    fn the_fields_that_name_leases_are_known() {
        let of_requests = |field: &FieldDescriptor| {
            ["Operation", "Request"].iter().any(|end| field.parent_message().name().ends_with(end))
        };
        let fields = POOL.all_messages().flat_map(|message| message.fields().collect::<Vec<_>>());
        let leases =
            fields.filter(|field| field.kind() == Kind::Uint64 && of_requests(field)).filter(is_lease_id);
        let mut leases: Vec<String> =
            leases.map(|field| format!("{}.{}", field.parent_message().name(), field.name())).collect();
        leases.sort();
        let expected = [
            "CampaignRequest.lease_id",
            "CancelWaitRequest.lease_id",
            "ConvertRequest.lease_id",
            "LeaseGrantRequest.id",
            "LeaseKeepAliveRequest.id",
            "LeaseRevokeRequest.id",
            "LeaseTimeToLiveRequest.id",
            "LockRequest.lease_id",
            "ProclaimRequest.lease_id",
            "PutRequest.lease_id",
            "Request.lease_id",
            "ResignRequest.lease_id",
            "UnlockRequest.lease_id",
            "WatchRequest.lease_id",
        ];
        assert_eq!(leases, expected);
    }

    #[test]
    fn an_enum_is_read_in_all_its_spellings() {
        for mode in [json!("INTENT_SHARED"), json!("MODE_INTENT_SHARED"), json!("intent_shared"), json!(3)] {
            let request: v1::LockRequest = read("LockRequest", &json!({ "mode": mode })).unwrap();
            assert_eq!(request.mode(), v1::Mode::IntentShared);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (value, field) in [
            (json!({ "nmae": "a" }), "nmae"),
            (json!({ "request": { "sqe": 1 } }), "request.sqe"),
            (json!({ "request": { "acked": [{ "first": -1 }] } }), "request.acked.first"),
            (json!({ "lease_id": 1.5 }), "lease_id"),
            (json!({ "lease_id": "0x10" }), "lease_id"),
            (json!({ "lease_id": "18446744073709551616" }), "lease_id"),
            (json!({ "permits": 4_294_967_296_u64 }), "permits"),
            (json!({ "name": 7 }), "name"),
            (json!({ "names": "a" }), "names"),
            (json!({ "mode": "BROKEN" }), "mode"),
            (json!({ "mode": 99 }), "mode"),
            (json!({ "tree": "yes" }), "tree"),
            (json!({ "request": 1 }), "request"),
            (json!(["name"]), "body"),
        ] {
            let error = read::<v1::LockRequest>("LockRequest", &value).unwrap_err();
            assert_eq!((error.reason(), error.field.as_str()), (ErrorReason::BadField, field), "{value}");
        }
        let error = read_body(message("LockRequest"), b"{nonsense").unwrap_err();
        assert_eq!(error.reason(), ErrorReason::BadField);
        let deep = "[".repeat(100_000);
        assert!(read_body(message("LockRequest"), deep.as_bytes()).is_err());
    }

    #[test]
    fn a_query_is_read_like_a_body() {
        let query = "prefix=db%2F&limit=5&consistency=stale&cursor=";
        let request: v1::ListLocksRequest =
            typed(&read_query(message("ListLocksRequest"), query).unwrap()).unwrap();
        assert_eq!((request.prefix.as_str(), request.limit), ("db/", 5));
        assert_eq!(request.consistency(), v1::Consistency::Stale);
        let lease = |query: &str| read_query(message("LeaseTimeToLiveRequest"), query);
        for form in ["7", "L-0000000000000007"] {
            let request: v1::LeaseTimeToLiveRequest =
                typed(&lease(&format!("id={form}&keys")).unwrap()).unwrap();
            assert_eq!((request.id, request.keys), (7, true));
        }
        for (query, field) in
            [("id=7&id=8", "id"), ("ids=7", "ids"), ("id=%ff", "id"), ("keys=maybe", "keys")]
        {
            assert_eq!(lease(query).unwrap_err().field, field, "{query}");
        }
    }

    #[test]
    fn an_answer_has_ids_as_strings_and_leaves_out_what_is_not_set() {
        let response = v1::LockResponse {
            header: Some(v1::Header { cluster_id: u64::MAX, ..Default::default() }),
            fencing_token: 9_007_199_254_740_993,
            waited_ms: 12,
            mode: v1::Mode::SharedIntentExclusive.into(),
            tokens: vec![v1::NamedToken { name: "a".into(), fencing_token: 3, create_revision: 2 }],
            ..Default::default()
        };
        let value = write_message(message("LockResponse"), &response);
        assert_eq!(value["header"]["cluster_id"], "18446744073709551615");
        assert_eq!(value["fencing_token"], "9007199254740993");
        assert_eq!((&value["waited_ms"], &value["acquired"]), (&json!(12), &json!(false)));
        assert_eq!(value["mode"], "SHARED_INTENT_EXCLUSIVE");
        assert_eq!(value["tokens"], json!([{ "name": "a", "fencing_token": "3", "create_revision": "2" }]));
        assert_eq!(value["holders"], json!([]));
        assert!(value.get("end_reason").is_none());
        assert!(
            write_message(message("UnlockResponse"), &v1::UnlockResponse::default()).get("header").is_none()
        );
    }
}
