//! Clients that use server reflection read the comments of the `.proto` files: everything must have a comment.

use crate::descriptors::files;
use prost_types::FileDescriptorProto;
use std::collections::BTreeMap;
use tollgate_proto::v1::ErrorReason;
use tonic::Code;

/// Field numbers of descriptors, which make up the paths of comments.
const MESSAGES: i32 = 4;
const ENUMS: i32 = 5;
const SERVICES: i32 = 6;
const MEMBERS: i32 = 2;
const ONEOFS: i32 = 8;

/// Returns everything in a file that must have a comment: its path, and its name for the message of a failing test.
fn subjects(file: &FileDescriptorProto) -> Vec<(Vec<i32>, String)> {
    let mut out = Vec::new();
    let mut add = |path: &[usize], kinds: &[i32], name: String| {
        let path = kinds.iter().zip(path).flat_map(|(kind, at)| [*kind, i32::try_from(*at).expect("few")]);
        out.push((path.collect(), name));
    };
    for (i, message) in file.message_type.iter().enumerate() {
        add(&[i], &[MESSAGES], message.name().to_owned());
        for (j, field) in message.field.iter().enumerate() {
            add(&[i, j], &[MESSAGES, MEMBERS], format!("{}.{}", message.name(), field.name()));
        }
        for (j, oneof) in message.oneof_decl.iter().enumerate() {
            add(&[i, j], &[MESSAGES, ONEOFS], format!("{}.{}", message.name(), oneof.name()));
        }
    }
    for (i, choice) in file.enum_type.iter().enumerate() {
        add(&[i], &[ENUMS], choice.name().to_owned());
        for (j, value) in choice.value.iter().enumerate() {
            add(&[i, j], &[ENUMS, MEMBERS], value.name().to_owned());
        }
    }
    for (i, service) in file.service.iter().enumerate() {
        add(&[i], &[SERVICES], service.name().to_owned());
        for (j, call) in service.method.iter().enumerate() {
            add(&[i, j], &[SERVICES, MEMBERS], format!("{}.{}", service.name(), call.name()));
        }
    }
    out
}

/// Returns the comments that stand before things, by the path of the thing.
fn comments(file: &FileDescriptorProto) -> BTreeMap<&[i32], &str> {
    let source = file.source_code_info.as_ref().expect("the build keeps the comments");
    source.location.iter().map(|place| (place.path.as_slice(), place.leading_comments().trim())).collect()
}

#[test]
fn everything_has_a_comment_of_whole_sentences() {
    let mut seen = 0;
    for file in &files().file {
        let comments = comments(file);
        for (path, name) in subjects(file) {
            let comment = comments.get(path.as_slice()).copied().unwrap_or_default();
            assert!(!comment.is_empty(), "{name} has no comment");
            assert!(comment.ends_with('.'), "the comment of {name} has no end: {comment:?}");
            seen += 1;
        }
    }
    assert!(seen > 500, "only {seen} things were looked at");
}

/// Returns the code as the comments spell it.
pub(crate) fn spelled(code: Code) -> String {
    let camel = format!("{code:?}");
    let mut out = String::new();
    for letter in camel.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_uppercase());
    }
    out
}

#[test]
fn every_error_reason_has_the_code_that_its_comment_promises() {
    let files = files();
    let file = files.file.iter().find(|file| file.name().ends_with("/common.proto")).unwrap();
    let comments = comments(file);
    let mut seen = 0;
    for (path, name) in subjects(file) {
        let Some(reason) = ErrorReason::from_str_name(&name) else { continue };
        // The first reason has no code to promise; the other has the code of the first answer.
        if matches!(reason, ErrorReason::Unspecified | ErrorReason::RejectedBefore) {
            continue;
        }
        let promised = comments[path.as_slice()].split('.').next().unwrap();
        assert_eq!(promised, spelled(reason.code()), "{name}");
        seen += 1;
    }
    assert!(seen >= 40, "only {seen} reasons were looked at");
}
