//! Text as people type and read it: quoted for a shell, cut and wrapped for a terminal.

/// Quotes text for a shell if necessary: names of locks, addresses, arguments of commands that can be pasted.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "/._-:@%+=,".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Breaks text at spaces into lines of this width; lines after the first begin with `indent`. A word without spaces
/// stays whole.
pub(crate) fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let is_first = line.is_empty() || line == indent;
        if !is_first && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
        } else if !is_first {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n")
}

/// Cuts text to `width` characters; text that was cut ends with an ellipsis.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_take_them_apart() {
        assert_eq!(quoted("db/migrate-v2"), "db/migrate-v2");
        assert_eq!(quoted("10.0.0.1:7400,b:1"), "10.0.0.1:7400,b:1");
        assert_eq!(quoted("two words"), "'two words'");
        assert_eq!((quoted("it's"), quoted("")), (r"'it'\''s'".to_owned(), "''".to_owned()));
    }

    #[test]
    fn text_is_wrapped_at_spaces_and_long_words_stay_whole() {
        assert_eq!(wrapped("one two three", 8, "  "), "one two\n  three");
        assert_eq!(wrapped("one two three", 80, "  "), "one two three");
        assert_eq!(wrapped("/a/path/of/great/length and more", 8, ""), "/a/path/of/great/length\nand more");
        assert_eq!(wrapped("", 8, ""), "");
    }

    #[test]
    fn what_is_cut_shows_that_it_was() {
        assert_eq!((cut("abcdef", 4), cut("abcd", 4)), ("abc…".to_owned(), "abcd".to_owned()));
    }
}
