//! Hand-made HTTP/2 frames that no library would send: in any order, or incomplete.
//!
//! Not here: the reaction of a node.

use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GO_AWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Error codes of ended streams and connections.
pub(crate) const FRAME_SIZE_ERROR: u32 = 6;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// Returns the error code of a reset or go-away frame.
    pub(crate) fn error(&self) -> u32 {
        let at = if self.kind == GO_AWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// Returns the bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the encoded headers of a call, without Huffman coding or tables.
pub(crate) fn call(path: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    // POST, http, :path, :authority, content-type, te.
    let (path, host, kind) = (text(path), text("localhost"), text("application/grpc"));
    let te = [text("te"), text("trailers")].concat();
    [&[0x83, 0x86, 0x04][..], &path, &[0x01], &host, &[0x0f, 0x10], &kind, &[0x00], &te].concat()
}

pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    /// Connects, and sends the preface and empty settings.
    pub(crate) async fn connect(port: u16) -> Raw {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
        Raw(stream)
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// Reads the next frame; `None` at the end of the connection, whatever its cause.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        self.read().await.ok()
    }

    /// Reads the next frame, or returns the error that ended the connection.
    pub(crate) async fn read(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut payload).await?;
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        Ok(Frame { kind: head[3], flags: head[4], stream, payload })
    }
}
