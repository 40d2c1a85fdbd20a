//! The server's public parts, used as the binary uses them.

mod config;
