//! Tests of the descriptor set that a server offers by reflection, decoded again.

use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet};

/// Returns all files of the package.
pub(crate) fn files() -> FileDescriptorSet {
    FileDescriptorSet::decode(tollgate_proto::FILE_DESCRIPTOR_SET).expect("the build wrote it")
}

/// Returns a message of the package; none of them is nested.
pub(crate) fn message<'a>(files: &'a FileDescriptorSet, name: &str) -> &'a DescriptorProto {
    let mut messages = files.file.iter().flat_map(|file| &file.message_type);
    messages.find(|message| message.name() == name).unwrap_or_else(|| panic!("there is no message {name}"))
}

#[test]
fn every_file_belongs_to_the_package_and_needs_nothing_from_outside() {
    let files = files();
    assert_eq!(files.file.len(), 6);
    for file in &files.file {
        assert_eq!((file.package(), file.syntax()), ("tollgate.v1", "proto3"), "{}", file.name());
        assert!(file.dependency.iter().all(|path| path.starts_with("tollgate/v1/")), "{}", file.name());
    }
}

#[test]
fn every_enum_has_an_unspecified_zero() {
    for file in &files().file {
        for choice in &file.enum_type {
            let first = &choice.value[0];
            assert_eq!(first.number(), 0, "{}", choice.name());
            assert!(first.name().ends_with("_UNSPECIFIED"), "{}", first.name());
        }
    }
}

#[test]
fn no_message_is_nested_and_so_no_field_is_a_map() {
    for file in &files().file {
        for message in &file.message_type {
            assert!(message.nested_type.is_empty(), "{}", message.name());
        }
    }
}
