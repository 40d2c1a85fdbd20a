//! Tests of the wire format as other programs see it: its names, its comments, its bytes.

mod comments;
mod descriptors;
mod error_page;
mod frames;
mod names;
