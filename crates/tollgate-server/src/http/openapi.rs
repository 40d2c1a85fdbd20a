//! The description of all routes, in the form of `OpenAPI` 3.1, made from the same tables and descriptors that
//! serve them.
//!
//! What it says of fields is what the comments in the proto files say. Invariant: nothing is described by hand that is
//! known from elsewhere. Not here: the routes (`endpoint`, `page`).

use super::endpoint::{ENDPOINTS, Endpoint, Verb};
use super::json::{message, names_of};
use super::page::PAGES;
use prost_reflect::{FieldDescriptor, FileDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// The description.
pub(super) static TEXT: LazyLock<String> = LazyLock::new(|| document().to_string());

/// Which way a message goes: 64-bit numbers are read in two forms and written in one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

fn document() -> Value {
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for page in &PAGES {
        let mut answers = json!({ "200": { "description": "As asked.", "content": { page.kind: {} } } });
        if page.path == "/readyz" {
            answers["503"] = json!({ "description": "Not ready.", "content": { page.kind: {} } });
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
    // Errors say their code by name here.
    schemas["Error"]["properties"]["code"]["type"] = "string".into();
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
    let error = json!({
        "type": "object",
        "required": ["error"],
        "properties": { "error": reference(&message("Error")) },
    });
    let mut operation = json!({
        "operationId": method.name(),
        "summary": comment(&method.parent_service().parent_file(), method.path()),
        "responses": {
            "200": { "description": "The answer.", "content": content(&reference(&output)) },
            "default": { "description": "It failed.", "content": content(&error) },
        },
    });
    if endpoint.verb == Verb::Get {
        operation["parameters"] = input.fields().map(|field| parameter(&field, schemas)).collect();
    } else {
        add_schema(&input, Way::In, schemas);
        operation["requestBody"] = json!({ "required": true, "content": content(&reference(&input)) });
    }
    operation
}

fn content(schema: &Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

fn parameter(field: &FieldDescriptor, schemas: &mut Map<String, Value>) -> Value {
    json!({
        "name": field.name(),
        "in": "query",
        "description": comment(&field.parent_file(), field.path()),
        "schema": one(&field.kind(), Way::In, schemas),
    })
}

fn reference(message: &MessageDescriptor) -> Value {
    json!({ "$ref": format!("#/components/schemas/{}", message.name()) })
}

/// Adds a message and all that it has in it.
fn add_schema(message: &MessageDescriptor, way: Way, schemas: &mut Map<String, Value>) {
    if schemas.contains_key(message.name()) {
        return;
    }
    // Known before its fields are looked at, should they lead back to it.
    schemas.insert(message.name().to_owned(), Value::Null);
    let mut properties = Map::new();
    for field in message.fields() {
        let mut schema = one(&field.kind(), way, schemas);
        if field.is_list() {
            schema = json!({ "type": "array", "items": schema });
        }
        schema["description"] = comment(&field.parent_file(), field.path()).into();
        properties.insert(field.name().to_owned(), schema);
    }
    let mut schema = json!({
        "type": "object",
        "description": comment(&message.parent_file(), message.path()),
        "properties": properties,
    });
    if way == Way::In {
        schema["additionalProperties"] = false.into();
    }
    schemas.insert(message.name().to_owned(), schema);
}

fn one(kind: &Kind, way: Way, schemas: &mut Map<String, Value>) -> Value {
    match (kind, way) {
        (Kind::Bool, _) => json!({ "type": "boolean" }),
        (Kind::Uint64, Way::In) => {
            json!({ "type": ["string", "integer"], "pattern": "^[0-9]+$", "minimum": 0 })
        }
        (Kind::Uint64, Way::Out) => json!({ "type": "string", "pattern": "^[0-9]+$" }),
        (Kind::Int64, Way::In) => json!({ "type": ["integer", "string"], "pattern": "^-?[0-9]+$" }),
        (Kind::Int64, Way::Out) => json!({ "type": "integer", "format": "int64" }),
        (Kind::Uint32, _) => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        (Kind::Int32, _) => json!({ "type": "integer", "format": "int32" }),
        (Kind::Enum(of), _) => json!({ "type": "string", "enum": names_of(of) }),
        (Kind::Message(of), _) => {
            add_schema(of, way, schemas);
            reference(of)
        }
        _ => json!({ "type": "string" }),
    }
}

/// What the proto file says above a thing, on one line.
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
                    Kind::Bytes | Kind::Float | Kind::Double => panic!("{} can't be said", field.full_name()),
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
}
