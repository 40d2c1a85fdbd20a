//! Rust source text with everything but the code blanked out, line numbers kept.
//!
//! A scanner of comments, strings and braces, not a parser: enough to look for words that code must not use. It blanks
//! comments, doc comments (and so doc tests), string literals and character literals. Inline `#[cfg(test)] mod name {
//! .. }` can be blanked too; a test module in a file of its own, or an item that is not a module, stays.

/// Returns the source with every byte that is no code or line break replaced by a space.
pub(crate) fn code(source: &str) -> String {
    let mut scanner = Scanner { bytes: source.as_bytes(), at: 0, out: Vec::with_capacity(source.len()) };
    scanner.run();
    String::from_utf8(scanner.out).expect("only whole comments and literals were blanked")
}

/// Returns `code` without its inline test modules.
pub(crate) fn without_test_modules(code: &str) -> String {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let mut out = code.as_bytes().to_vec();
    let mut from = 0;
    while let Some(found) = code[from..].find(ATTRIBUTE) {
        let start = from + found;
        from = start + ATTRIBUTE.len();
        if let Some(end) = module_end(code, from) {
            blank(&mut out[start..end]);
            from = end;
        }
    }
    String::from_utf8(out).expect("blanked from one ASCII character to another")
}

/// Returns the lines of `code`, from 1, that contain `word` as a word or path of its own; each line once.
pub(crate) fn lines_with(code: &str, word: &str) -> Vec<usize> {
    crate::tree::numbered(code).filter(|(_, line)| has_word(line, word)).map(|(number, _)| number).collect()
}

/// True if `word` occurs in `line` with no letter, digit or underscore on either side.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Returns the names of modules declared in `code`, inline or not, with their lines.
pub(crate) fn modules(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in crate::tree::numbered(code) {
        let mut words = line.split(|c: char| !is_word(c)).filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            if word == "mod" {
                found.extend(words.next().map(|name| (number, name)));
            }
        }
    }
    found
}

/// Returns the first-level names in the braces of `use std::{...}`, as (line, name), such as (3, "io").
pub(crate) fn grouped_std_imports(code: &str) -> Vec<(usize, &str)> {
    const OPENING: &str = "std::{";
    let mut found = Vec::new();
    for (at, _) in code.match_indices(OPENING) {
        let body = at + OPENING.len();
        let (mut depth, mut begins) = (1, true);
        for (offset, c) in code[body..].char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 1 => break,
                '}' => depth -= 1,
                ',' if depth == 1 => begins = true,
                _ if begins && is_word(c) => {
                    let item = &code[body + offset..];
                    let name = &item[..item.find(|c| !is_word(c)).unwrap_or(item.len())];
                    found.push((line_of(code, body + offset), name));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    found
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn blank(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
}

/// Returns the end of the `mod name { .. }` that follows `from`, past other attributes and a visibility; `None` if no
/// module follows.
fn module_end(code: &str, from: usize) -> Option<usize> {
    let mut rest = code[from..].trim_start();
    while let Some(attribute) = rest.strip_prefix("#[") {
        rest = attribute[attribute.find(']')? + 1..].trim_start();
    }
    if let Some(visible) = rest.strip_prefix("pub") {
        rest = visible.trim_start();
        if rest.starts_with('(') {
            rest = rest[rest.find(')')? + 1..].trim_start();
        }
    }
    let body = rest.strip_prefix("mod ")?.trim_start().trim_start_matches(is_word).trim_start();
    let mut depth = 0;
    for (offset, c) in body.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(code.len() - body.len() + offset + 1),
            '}' => depth -= 1,
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    out: Vec<u8>,
}

impl Scanner<'_> {
    fn run(&mut self) {
        while self.at < self.bytes.len() {
            let length = self.comment().or_else(|| self.string()).or_else(|| self.character());
            match length {
                Some(length) => self.blank(length),
                None => self.keep(),
            }
        }
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    fn blank(&mut self, length: usize) {
        let end = (self.at + length).min(self.bytes.len());
        let from = self.out.len();
        self.out.extend_from_slice(&self.bytes[self.at..end]);
        blank(&mut self.out[from..]);
        self.at = end;
    }

    /// Keeps one byte, or a whole word: the `r` of `for` opens no raw string.
    fn keep(&mut self) {
        let word =
            self.rest().iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        let end = self.at + word.max(1);
        self.out.extend_from_slice(&self.bytes[self.at..end]);
        self.at = end;
    }

    fn comment(&self) -> Option<usize> {
        let rest = self.rest();
        if rest.starts_with(b"//") {
            return Some(rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()));
        }
        if !rest.starts_with(b"/*") {
            return None;
        }
        let (mut depth, mut at) = (0, 0);
        while at < rest.len() {
            if rest[at..].starts_with(b"/*") {
                (depth, at) = (depth + 1, at + 2);
            } else if rest[at..].starts_with(b"*/") {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    break;
                }
            } else {
                at += 1;
            }
        }
        Some(at)
    }

    /// Returns the length of a string literal of any kind, prefix included.
    fn string(&self) -> Option<usize> {
        let rest = self.rest();
        let prefix = [&b"br"[..], b"cr", b"b", b"c", b"r", b""].into_iter().find(|prefix| {
            let after = &rest[prefix.len().min(rest.len())..];
            let hashes = if prefix.ends_with(b"r") { leading_hashes(after) } else { 0 };
            rest.starts_with(prefix) && after.get(hashes) == Some(&b'"')
        })?;
        if prefix.ends_with(b"r") {
            let hashes = leading_hashes(&rest[prefix.len()..]);
            let body = prefix.len() + hashes + 1;
            let closing: Vec<u8> = [b"\"".to_vec(), vec![b'#'; hashes]].concat();
            let end = rest[body..].windows(closing.len()).position(|window| window == closing);
            return Some(end.map_or(rest.len(), |end| body + end + closing.len()));
        }
        let mut at = prefix.len() + 1;
        while at < rest.len() && rest[at] != b'"' {
            at += if rest[at] == b'\\' { 2 } else { 1 };
        }
        Some(at + 1)
    }

    /// Returns the length of a character literal. A lifetime or label is none.
    fn character(&self) -> Option<usize> {
        let rest = self.rest();
        if rest.first() != Some(&b'\'') {
            return None;
        }
        if rest.get(1) == Some(&b'\\') {
            // The character after the backslash may be a quote itself.
            let close = rest.iter().skip(3).position(|byte| *byte == b'\'')?;
            return Some(close + 4);
        }
        let width = match rest.get(1)? {
            0..0x80 => 1,
            0x80..0xe0 => 2,
            0xe0..0xf0 => 3,
            _ => 4,
        };
        (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
    }
}

fn leading_hashes(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| **byte == b'#').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn squeezed(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let cases = [
            ("a // b\nc", "a c"),
            ("a /* b /* c */ d */ e", "a e"),
            ("/// b\n//! c\na", "a"),
            (r#"f("b\"c", d)"#, "f( , d)"),
            (r##"f(r#"b"c"#, br"\", d)"##, "f( , , d)"),
            ("f(b'\"', '\\'', 'é', d)", "f(b , , , d)"),
            ("fn f<'a>(x: &'a str) { 'outer: loop {} }", "fn f<'a>(x: &'a str) { 'outer: loop {} }"),
            ("for x in y", "for x in y"),
            ("a(\"// no comment\"); b", "a( ); b"),
            ("a \"never closed", "a"),
        ];
        for (source, expected) in cases {
            let code = code(source);
            assert_eq!(squeezed(&code), expected, "{source}");
            assert_eq!(code.len(), source.len(), "{source}");
            assert_eq!(code.matches('\n').count(), source.matches('\n').count(), "{source}");
        }
    }

    #[test]
    fn inline_test_modules_are_blanked_and_nothing_else() {
        let cases = [
            ("a #[cfg(test)] mod tests { b { c } } d", "a d"),
            ("a #[cfg(test)]\n#[allow(x)]\npub(crate) mod tests {\n b\n}\nd", "a d"),
            ("#[cfg(test)] mod tests; d", "#[cfg(test)] mod tests; d"),
            ("#[cfg(test)] fn f() { b }", "#[cfg(test)] fn f() { b }"),
            ("#[cfg(any(test, x))] mod m { b }", "#[cfg(any(test, x))] mod m { b }"),
            ("mod tests { b }", "mod tests { b }"),
        ];
        for (source, expected) in cases {
            assert_eq!(squeezed(&without_test_modules(source)), expected, "{source}");
        }
    }

    #[test]
    fn words_stand_alone() {
        assert_eq!(lines_with("random\nrand::x\n(rand)\nmy_rand", "rand"), [2, 3]);
        assert_eq!(lines_with("std::iox\n::std::io::Write", "std::io"), [2]);
    }

    #[test]
    fn modules_are_seen_inline_and_not() {
        assert_eq!(modules("mod a;\npub(crate) mod b {\n modern"), [(1, "a"), (2, "b")]);
    }

    #[test]
    fn a_grouped_import_is_taken_apart() {
        let code = "use std::{\n  fmt, io::{self, Read},\n  fs\n};\nuse std::fmt;";
        assert_eq!(grouped_std_imports(code), [(2, "fmt"), (2, "io"), (3, "fs")]);
        assert_eq!(grouped_std_imports("use std::{io,}; struct X { fs: u8 }"), [(1, "io")]);
    }
}
