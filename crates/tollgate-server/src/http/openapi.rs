//! The description of all routes as `OpenAPI` 3.1, made from the same tables and descriptors that serve them.
//!
//! Descriptions of fields are the comments in the proto files. Invariant: nothing is described by hand that is known
//! from elsewhere; only the required fields of requests are (`NEEDS`), and a test sends requests without them. Not
//! here: the routes (`endpoint`, `page`).

use super::endpoint::{ENDPOINTS, Endpoint, MISSED, MISSED_AS, Verb};
use super::error::ALWAYS;
use super::json::{is_always_written, is_lease_id, message, names_of};
use super::page::PAGES;
use prost_reflect::{FieldDescriptor, FileDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;
use tollgate_types::{ClientId, Metadata, NAMES_MAX, Name, Owner, Reason, SEQ_RANGES_MAX};

/// The description as JSON text.
pub(super) static TEXT: LazyLock<String> = LazyLock::new(|| document().to_string());

/// Maximum lease id.
const LEASE_ID_MAX: u64 = (1 << 63) - 1;

/// Direction of a message: 64-bit numbers are read in two forms and written in one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// Required fields of a request. A zero or empty value counts as missing.
struct Needs {
    message: &'static str,
    all: &'static [&'static str],
    /// Exactly one of these is required.
    one: &'static [&'static str],
    /// At least one of these is required.
    any: &'static [&'static str],
}

impl Needs {
    const fn all(message: &'static str, all: &'static [&'static str]) -> Needs {
        Needs { message, all, one: &[], any: &[] }
    }
}

/// A request for locks has one name or several.
const LOCKS: &[&str] = &["name", "names"];

static NEEDS: [Needs; 11] = [
    Needs { one: LOCKS, ..Needs::all("LockRequest", &["lease_id"]) },
    Needs { one: LOCKS, ..Needs::all("ConvertRequest", &["lease_id"]) },
    Needs { one: LOCKS, any: &["lease_id", "fencing_token"], ..Needs::all("UnlockRequest", &[]) },
    Needs { any: &["seq", "name"], ..Needs::all("CancelWaitRequest", &["lease_id"]) },
    Needs::all("ForceReleaseRequest", &["name", "fencing_token", "reason"]),
    Needs::all("GetLockRequest", &["name"]),
    Needs { any: &["ttl", "ttl_ms"], ..Needs::all("LeaseGrantRequest", &[]) },
    Needs::all("LeaseRevokeRequest", &["id"]),
    Needs::all("LeaseKeepAliveRequest", &["id"]),
    Needs::all("LeaseTimeToLiveRequest", &["id"]),
    Needs::all("SeqRange", &["first", "last"]),
];

impl Needs {
    fn of(message: &MessageDescriptor) -> Option<&'static Needs> {
        NEEDS.iter().find(|needs| needs.message == message.name())
    }
}

fn document() -> Value {
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for page in &PAGES {
        let kinds: Map<String, Value> =
            page.kinds.iter().map(|kind| ((*kind).to_owned(), json!({}))).collect();
        let mut answers = json!({ "200": { "description": "As asked.", "content": kinds } });
        if page.path == "/readyz" {
            answers["503"] = json!({ "description": "Not ready.", "content": kinds });
            let error = content(&error_schema());
            answers["default"] = json!({ "description": "It failed.", "content": error });
        }
        paths.insert(page.path.to_owned(), json!({ "get": { "summary": page.says, "responses": answers } }));
    }
    for endpoint in &ENDPOINTS {
        let verb = match endpoint.verb {
            Verb::Get => "get",
            Verb::Post => "post",
        };
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[verb] = operation(endpoint, &mut schemas);
    }
    add_schema(&message("Error"), Way::Out, &mut schemas);
    // Errors give their code by name, and leave out empty fields.
    schemas["Error"]["properties"]["code"] =
        json!({ "type": "string", "description": "The gRPC code, by name." });
    schemas["Error"]["required"] = json!(ALWAYS);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tollgate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Named locks with leases, fair queues and fencing tokens. 64-bit ids, tokens and revisions \
                            are strings; they are taken as numbers too. Unknown fields are refused.",
        },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

fn operation(endpoint: &Endpoint, schemas: &mut Map<String, Value>) -> Value {
    let method = endpoint.method();
    let (input, output) = (method.input(), method.output());
    add_schema(&output, Way::Out, schemas);
    let mut operation = json!({
        "operationId": method.name(),
        "summary": comment(&method.parent_service().parent_file(), method.path()),
        "responses": {
            "200": { "description": "The answer.", "content": content(&reference(&output)) },
            "default": { "description": "It failed.", "content": content(&error_schema()) },
        },
    });
    if endpoint.verb == Verb::Get {
        operation["parameters"] = input.fields().map(|field| parameter(&field, schemas)).collect();
    } else {
        add_schema(&input, Way::In, schemas);
        operation["requestBody"] = json!({ "required": true, "content": content(&reference(&input)) });
    }
    if let Some(status) = endpoint.missed {
        operation["responses"][status.as_str()] = json!({
            "description": "Another answer than what was asked for: the lock is not held, or the lease has ended.",
            "content": content(&reference(&output)),
        });
        operation["parameters"] = json!([{
            "name": MISSED,
            "in": "query",
            "description": format!("Has such an answer sent with the status {MISSED_AS}, as all others are."),
            "schema": { "type": "string", "enum": [MISSED_AS] },
        }]);
    }
    operation
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": { "error": reference(&message("Error")) },
    })
}

fn content(schema: &Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

fn parameter(field: &FieldDescriptor, schemas: &mut Map<String, Value>) -> Value {
    let needed = Needs::of(field.parent_message()).is_some_and(|needs| needs.all.contains(&field.name()));
    let mut schema = one(field, Way::In, schemas);
    if needed {
        must_say_something(field, &mut schema);
    }
    json!({
        "name": field.name(),
        "in": "query",
        "required": needed,
        "description": comment(&field.parent_file(), field.path()),
        "schema": schema,
    })
}

fn reference(message: &MessageDescriptor) -> Value {
    json!({ "$ref": format!("#/components/schemas/{}", message.name()) })
}

/// Adds the schemas of a message and of all messages in it.
fn add_schema(message: &MessageDescriptor, way: Way, schemas: &mut Map<String, Value>) {
    if schemas.contains_key(message.name()) {
        return;
    }
    // Inserted before its fields are visited, in case they lead back to it.
    schemas.insert(message.name().to_owned(), Value::Null);
    let mut properties = Map::new();
    for field in message.fields() {
        let mut schema = one(&field, way, schemas);
        if field.is_list() {
            schema = json!({ "type": "array", "items": schema });
            if let (Way::In, Some(max)) = (way, elements_max(&field)) {
                schema["maxItems"] = max.into();
            }
        }
        schema["description"] = comment(&field.parent_file(), field.path()).into();
        properties.insert(field.name().to_owned(), schema);
    }
    let mut schema = json!({
        "type": "object",
        "description": comment(&message.parent_file(), message.path()),
        "properties": properties,
    });
    match way {
        Way::In => {
            schema["additionalProperties"] = false.into();
            if let Some(needs) = Needs::of(message) {
                add_needs(&mut schema, message, needs);
            }
        }
        Way::Out => {
            let always = message.fields().filter(is_always_written);
            schema["required"] = always.map(|field| field.name().to_owned()).collect();
        }
    }
    schemas.insert(message.name().to_owned(), schema);
}

fn add_needs(schema: &mut Value, message: &MessageDescriptor, needs: &Needs) {
    let field = |name: &str| message.get_field_by_name(name).expect("a test knows");
    if !needs.all.is_empty() {
        schema["required"] = json!(needs.all);
    }
    for name in needs.all {
        must_say_something(&field(name), &mut schema["properties"][name]);
    }
    let alone = |name: &&str| {
        let mut says = json!({});
        must_say_something(&field(name), &mut says);
        json!({ "required": [name], "properties": { *name: says } })
    };
    if !needs.one.is_empty() {
        schema["oneOf"] = needs.one.iter().map(alone).collect();
    }
    if !needs.any.is_empty() {
        schema["anyOf"] = needs.any.iter().map(alone).collect();
    }
}

/// Excludes zero and the empty value from a required field.
fn must_say_something(field: &FieldDescriptor, schema: &mut Value) {
    let (rule, value) = match field.kind() {
        _ if field.is_list() => ("minItems", json!(1)),
        Kind::String => ("minLength", json!(1)),
        _ => ("not", json!({ "enum": [0, "0"] })),
    };
    schema[rule] = value;
}

/// Returns the maximum length of a text in letters. The limit itself is in bytes, and a letter has at least one.
fn characters_max(field: &FieldDescriptor) -> Option<usize> {
    match field.name() {
        "name" | "names" | "near" | "prefix" => Some(Name::BYTES_MAX),
        "owner" => Some(Owner::BYTES_MAX),
        "client_id" => Some(ClientId::BYTES_MAX),
        "metadata" => Some(Metadata::BYTES_MAX),
        "reason" => Some(Reason::BYTES_MAX),
        _ => None,
    }
}

fn bytes_max(field: &FieldDescriptor) -> Option<usize> {
    (field.name() == "metadata_bytes").then_some(Metadata::BYTES_MAX)
}

fn elements_max(field: &FieldDescriptor) -> Option<usize> {
    match field.name() {
        "names" => Some(NAMES_MAX),
        "acked" => Some(SEQ_RANGES_MAX),
        _ => None,
    }
}

/// Returns the schema of a field, or of an element if the field is a list.
fn one(field: &FieldDescriptor, way: Way, schemas: &mut Map<String, Value>) -> Value {
    match (&field.kind(), way) {
        (Kind::Bool, _) => json!({ "type": "boolean" }),
        (Kind::Uint64, Way::In) if is_lease_id(field) => json!({
            "type": ["string", "integer"],
            "pattern": "^(0|[1-9][0-9]{0,18}|L-[0-9A-Fa-f]{16})$",
            "minimum": 0,
            "maximum": LEASE_ID_MAX,
        }),
        (Kind::Uint64, Way::In) => {
            let (pattern, max) = ("^[0-9]{1,20}$", u64::MAX);
            json!({ "type": ["string", "integer"], "pattern": pattern, "minimum": 0, "maximum": max })
        }
        (Kind::String, Way::In) => match characters_max(field) {
            Some(max) => json!({ "type": "string", "maxLength": max }),
            None => json!({ "type": "string" }),
        },
        (Kind::Bytes, Way::In) => {
            // Either alphabet, and any padding.
            let letters = bytes_max(field).map(|max| max.div_ceil(3) * 4);
            let mut schema = json!({ "type": "string", "contentEncoding": "base64" });
            if let Some(letters) = letters {
                schema["maxLength"] = json!(letters);
            }
            schema
        }
        (Kind::Bytes, Way::Out) => json!({ "type": "string", "contentEncoding": "base64" }),
        (Kind::Uint64, Way::Out) => json!({ "type": "string", "pattern": "^[0-9]+$" }),
        (Kind::Int64, Way::In) => json!({
            "type": ["integer", "string"],
            "pattern": "^-?[0-9]{1,19}$",
            "minimum": i64::MIN,
            "maximum": i64::MAX,
        }),
        (Kind::Int64, Way::Out) => json!({ "type": "integer", "format": "int64" }),
        (Kind::Uint32, _) => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        (Kind::Int32, _) => {
            json!({ "type": "integer", "format": "int32", "minimum": i32::MIN, "maximum": i32::MAX })
        }
        (Kind::Enum(of), _) => json!({ "type": "string", "enum": names_of(of) }),
        (Kind::Message(of), _) => {
            add_schema(of, way, schemas);
            reference(of)
        }
        _ => json!({ "type": "string" }),
    }
}

/// Returns the comment above an item of the proto file, on one line.
fn comment(file: &FileDescriptor, path: &[i32]) -> String {
    let info = file.file_descriptor_proto().source_code_info.as_ref();
    let mut locations = info.into_iter().flat_map(|info| &info.location);
    let above = locations
        .find(|location| location.path == path)
        .and_then(|location| location.leading_comments.as_deref());
    above.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_is_described_and_nothing_else() {
        let document = document();
        let mut described = BTreeSet::new();
        for (path, verbs) in document["paths"].as_object().unwrap() {
            described.extend(verbs.as_object().unwrap().keys().map(|verb| (path.clone(), verb.clone())));
        }
        let pages = PAGES.iter().map(|page| (page.path.to_owned(), "get".to_owned()));
        let verb = |endpoint: &Endpoint| format!("{:?}", endpoint.verb).to_lowercase();
        let endpoints = ENDPOINTS.iter().map(|endpoint| (endpoint.path.to_owned(), verb(endpoint)));
        assert_eq!(described, pages.chain(endpoints).collect());
    }

    #[test]
    fn every_reference_leads_somewhere_and_everything_has_a_description() {
        let document = document();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let text = document.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
        assert!(!text.contains(r#""description":"""#) && !text.contains(r#""summary":"""#));
    }

    #[test]
    fn no_message_goes_both_ways_or_has_what_json_can_t_carry() {
        fn gather(message: &MessageDescriptor, into: &mut BTreeSet<String>) {
            if !into.insert(message.name().to_owned()) {
                return;
            }
            for field in message.fields() {
                match field.kind() {
                    Kind::Message(of) => gather(&of, into),
                    Kind::Float | Kind::Double => panic!("{} can't be said", field.full_name()),
                    _ => {}
                }
            }
        }
        let (mut inward, mut outward) = (BTreeSet::new(), BTreeSet::new());
        for endpoint in &ENDPOINTS {
            gather(&endpoint.method().input(), &mut inward);
            gather(&endpoint.method().output(), &mut outward);
        }
        assert_eq!(inward.intersection(&outward).collect::<Vec<_>>(), Vec::<&String>::new());
    }

    #[test]
    fn ids_are_described_as_they_are_read_and_written() {
        let schemas = &document()["components"]["schemas"];
        assert_eq!(schemas["LockRequest"]["properties"]["lease_id"]["type"], json!(["string", "integer"]));
        assert_eq!(schemas["LockResponse"]["properties"]["fencing_token"]["type"], "string");
        assert_eq!(schemas["LockRequest"]["additionalProperties"], false);
    }

    #[test]
    fn lengths_and_what_must_be_there_are_described() {
        let document = document();
        let schemas = &document["components"]["schemas"];
        let lock = &schemas["LockRequest"];
        assert_eq!(lock["required"], json!(["lease_id"]));
        let one = [("name", "minLength"), ("names", "minItems")]
            .map(|(field, rule)| json!({ "required": [field], "properties": { field: { rule: 1 } } }));
        assert_eq!(lock["oneOf"], json!(one));
        assert_eq!(lock["properties"]["lease_id"]["not"], json!({ "enum": [0, "0"] }));
        assert_eq!(lock["properties"]["name"]["maxLength"], 512);
        assert_eq!(
            (&lock["properties"]["names"]["maxItems"], &lock["properties"]["names"]["items"]["maxLength"]),
            (&json!(64), &json!(512))
        );
        assert!(schemas["LockResponse"]["required"].as_array().unwrap().contains(&json!("acquired")));
        assert_eq!(schemas["Error"]["required"], json!(ALWAYS));
        let get = &document["paths"]["/v1/lock"]["get"]["parameters"][0];
        assert_eq!((&get["name"], &get["required"]), (&json!("name"), &json!(true)));
        let statuses = document["paths"]["/v1/lock"]["post"]["responses"].as_object().unwrap();
        assert_eq!(statuses.keys().collect::<Vec<_>>(), ["200", "423", "default"]);
        for needs in &NEEDS {
            let message = message(needs.message);
            for field in needs.all.iter().chain(needs.one).chain(needs.any) {
                assert!(message.get_field_by_name(field).is_some(), "{}.{field}", needs.message);
            }
        }
    }
}
