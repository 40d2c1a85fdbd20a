//! The query string of a request: pairs of names and texts.
//!
//! Invariant: a wrong escape, or text that is not UTF-8, is refused and never guessed at: the guess could name another
//! lock. Not here: the known names (`endpoint`, `json`, `page`).

use super::error::bad_field;
use tollgate_proto::v1::Error;

/// Returns all pairs in order, decoded. A name without `=` has an empty text.
pub(super) fn pairs(query: &str) -> Result<Vec<(String, String)>, Error> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let decoded = pairs.map(|pair| {
        let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode(name).map_err(|says| bad_field("query", says))?;
        let text = decode(text).map_err(|says| bad_field(&name, says))?;
        Ok((name, text))
    });
    decoded.collect()
}

/// Decodes a text: `+` is a space, and `%` with two hex digits is a byte.
fn decode(text: &str) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let says = "two hex digits must follow a %: write %25 for the sign itself";
                rest.next().zip(rest.next()).and_then(|(high, low)| escaped(high, low)).ok_or(says)?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes)
        .map_err(|_| "it is not UTF-8: send text, each byte beyond ASCII as % and two hex digits")
}

fn escaped(high: u8, low: u8) -> Option<u8> {
    let digit = |letter: u8| char::from(letter).to_digit(16);
    u8::try_from((digit(high)? << 4) | digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_is_read() {
        let read = pairs("name=db%2Fmigrate%2f%C3%A4&&a+b=1%2B1+=2&keys&cursor=").unwrap();
        let expected = [("name", "db/migrate/ä"), ("a b", "1+1 =2"), ("keys", ""), ("cursor", "")];
        assert_eq!(read, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
        assert_eq!(pairs(""), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_text_is_refused_by_its_name() {
        for (query, field) in [
            ("name=%ff", "name"),
            ("name=jobs%C3", "name"),
            ("name=%", "name"),
            ("name=%4", "name"),
            ("name=%zz", "name"),
            ("name=%+1", "name"),
            ("%ff=jobs", "query"),
        ] {
            assert_eq!(pairs(query).unwrap_err().field, field, "{query}");
        }
    }
}
