//! Display of client text for terminals and logs: characters that move the cursor, break the line or change the text
//! direction are escaped.
//!
//! Names may contain any characters, including the Unicode bidirectional controls: shown unescaped, a name can look
//! like another one, or hide the text after it on the line. Not here: the text that a name may contain (`text`).

use std::fmt;

/// Text that is safe to show, with dangerous characters escaped; see [`escaped`].
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(&'a [u8]);

/// Escapes text, or bytes that are likely to be text, for display: control characters, bidirectional controls and line
/// separators become `\u{202e}`, and bytes that are not UTF-8 become `\xff`.
///
/// All other text is unchanged, including backslashes: the output is meant for people and can't be decoded.
///
/// ```
/// use tollgate_types::escaped;
///
/// assert_eq!(escaped("job/ü/\u{202e}1").to_string(), "job/ü/\\u{202e}1");
/// assert_eq!(escaped(b"two\nlines\xff").to_string(), "two\\u{a}lines\\xff");
/// ```
pub fn escaped<T: AsRef<[u8]> + ?Sized>(text: &T) -> Escaped<'_> {
    Escaped(text.as_ref())
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            write_text(chunk.valid(), f)?;
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

fn write_text(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut plain_from = 0;
    for (at, character) in text.char_indices().filter(|(_, character)| is_spelled_out(*character)) {
        f.write_str(&text[plain_from..at])?;
        write!(f, "\\u{{{:x}}}", u32::from(character))?;
        plain_from = at + character.len_utf8();
    }
    f.write_str(&text[plain_from..])
}

/// True if a character affects the text around it: controls, bidirectional controls and line separators.
fn is_spelled_out(character: char) -> bool {
    let turns_round = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    let ends_line = matches!(character, '\u{2028}' | '\u{2029}');
    character.is_control() || turns_round || ends_line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_do_something_to_a_terminal_or_a_line_is_spelled_out() {
        let spelled_out = [
            '\0', '\t', '\n', '\r', '\u{1b}', '\u{7f}', '\u{9b}', '\u{61c}', '\u{200e}', '\u{200f}',
            '\u{202a}', '\u{202e}', '\u{2028}', '\u{2029}', '\u{2066}', '\u{2069}',
        ];
        for character in spelled_out {
            let shown = escaped(&format!("a{character}b")).to_string();
            assert_eq!(shown, format!("a\\u{{{:x}}}b", u32::from(character)));
        }
    }

    #[test]
    fn all_other_text_stays_as_it_is() {
        for text in
            ["", "jobs/42", "täglich", "日本", "שלום", "👩\u{200d}🚀", r"C:\x", "\u{202f}", "\u{2065}"]
        {
            assert_eq!(escaped(text).to_string(), text);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_one_by_one() {
        assert_eq!(escaped(b"a\xffb\xc3(\xe2\x80").to_string(), r"a\xffb\xc3(\xe2\x80");
        assert_eq!(escaped(&[0x80_u8, b'\n']).to_string(), r"\x80\u{a}");
    }
}
