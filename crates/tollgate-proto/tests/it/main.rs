//! The wire as other programs see it: its names, its comments, its bytes.

mod comments;
mod descriptors;
mod frames;
mod names;
