//! Endpoint of a node: the address for clients as people write it, and connections to it.

use crate::error::{Error, ErrorKind};
use std::fmt;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint as Transport};

/// Interval of pings on a connection, and maximum time for the answer. A node that hangs keeps its connections open, so
/// only silence shows that it hangs.
const PING_EVERY: Duration = Duration::from_millis(500);
const PING_PATIENCE: Duration = Duration::from_secs(1);

/// Maximum time to find out what else listens on a port.
const LOOK_PATIENCE: Duration = Duration::from_millis(300);

/// Flow control windows: bytes in flight on one stream and on one connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Address of a node, as a URI.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Endpoint(String);

impl Endpoint {
    /// Parses an address as people write it: `http://host:port`, or `host:port`.
    pub(crate) fn parse(text: &str) -> Result<Endpoint, Error> {
        let text = text.trim().trim_end_matches('/');
        let uri = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let wrong = |says: &str| Error::invalid("endpoints", format!("{text:?} is no endpoint: {says}"));
        if uri.starts_with("https://") {
            return Err(wrong("this version speaks plain http only"));
        }
        if !uri.starts_with("http://") {
            return Err(wrong("write http://host:port"));
        }
        let transport = Transport::from_shared(uri.clone()).map_err(|_| wrong("write http://host:port"))?;
        if transport.uri().port().is_none() {
            return Err(wrong("it has no port; nodes serve clients at 7400 by default"));
        }
        Ok(Endpoint(uri))
    }

    /// Opens a connection within `patience`.
    pub(crate) async fn dial(&self, patience: Duration) -> Result<Channel, Error> {
        let failed = |says: String| Error::new(ErrorKind::Unreachable, says, false);
        let transport = Transport::from_shared(self.0.clone()).map_err(|error| failed(error.to_string()))?;
        let transport = transport
            .connect_timeout(patience)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_PATIENCE)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        match tokio::time::timeout(patience, transport.connect()).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(error)) => Err(failed(cause_of(&error))),
            Err(_) => Err(failed(format!("no connection within {} ms", patience.as_millis()))),
        }
    }
}

impl Endpoint {
    /// Returns an error that says what answers here instead of a client port, if that can be found out: a port that
    /// speaks HTTP/1 is the port for browsers and monitoring, and a port that closes the connection silently is likely
    /// the port for other nodes.
    pub(crate) async fn what_else_it_is(&self) -> Option<Error> {
        let authority = self.0.strip_prefix("http://").unwrap_or(&self.0);
        let asked = async {
            let mut stream = TcpStream::connect(authority).await.ok()?;
            stream.write_all(b"GET /livez HTTP/1.0\r\n\r\n").await.ok()?;
            let mut answer = [0; 7];
            let heard = stream.read_exact(&mut answer).await;
            Some(heard.is_ok().then_some(answer))
        };
        let heard = tokio::time::timeout(LOOK_PATIENCE, asked).await.ok()??;
        let says = match heard {
            Some(answer) if answer == *b"HTTP/1." => {
                "this looks like the HTTP port (7402 by default): clients use the client port, 7400 by default"
            }
            Some(_) => return None,
            None => {
                "it hangs up without a word: if this is the port for the other nodes (7401 by default), clients use \
                 the client port, 7400 by default"
            }
        };
        Some(Error::new(ErrorKind::Unreachable, says, false))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the innermost cause of an error: the outer ones say "transport error".
pub(crate) fn cause_of(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_and_without_its_scheme() {
        let one = Endpoint::parse("http://127.0.0.1:7400/").unwrap();
        assert_eq!(one, Endpoint::parse("127.0.0.1:7400").unwrap());
        assert_eq!(one.to_string(), "http://127.0.0.1:7400");
        assert_eq!(Endpoint::parse("[::1]:7400").unwrap().to_string(), "http://[::1]:7400");
    }

    #[test]
    fn a_wrong_address_is_refused_with_what_is_wrong() {
        for (text, says) in [
            ("localhost", "no port"),
            ("ftp://a:1", "write http://host:port"),
            ("https://a:1", "plain http only"),
            ("", "http://host:port"),
        ] {
            let error = Endpoint::parse(text).unwrap_err();
            assert_eq!(error.field(), Some("endpoints"));
            assert!(error.message().contains(says), "{error}");
        }
    }
}
