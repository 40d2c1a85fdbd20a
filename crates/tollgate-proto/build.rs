//! Generates the Rust side of the wire from the `.proto` files, with a compiler written in Rust: no `protoc` needed.
//!
//! The descriptors are written out as well, comments included, so that a server can offer them by reflection and a user
//! who runs `grpcurl describe` can read the comments of the files.

use prost::Message;
use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

/// The `.proto` files: one per service, and one for shared types.
const FILES: [&str; 6] = [
    "tollgate/v1/common.proto",
    "tollgate/v1/lock.proto",
    "tollgate/v1/register.proto",
    "tollgate/v1/election.proto",
    "tollgate/v1/admin.proto",
    "tollgate/v1/session.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("tollgate_descriptors.bin"), descriptors.encode_to_vec())?;
    // Transport belongs to the crates that connect or listen: they pass in a channel or a router.
    tonic_prost_build::configure().build_transport(false).compile_fds(descriptors)?;
    Ok(())
}
