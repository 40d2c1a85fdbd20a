//! A token together with its mode, as it travels from the lock's holder to the store.
//!
//! Invariant: the text form is read back to the same value, and nothing else is read at all. Not here: the store's
//! decision about a token (`fence`).

use std::fmt;
use std::str::FromStr;
use tollgate_types::{Invalid, Lineage, Mode, Token};

/// The part of a lock's mode that matters to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FenceMode {
    /// Held alone: the token fences off all tokens before it.
    Exclusive,
    /// Held side by side with others, like readers.
    Shared,
    /// One or more of a semaphore's permits, held side by side with others.
    Permit,
}

impl FenceMode {
    /// All modes.
    pub const ALL: [FenceMode; 3] = [FenceMode::Exclusive, FenceMode::Shared, FenceMode::Permit];

    /// Returns the mode that travels with the token of a grant.
    ///
    /// None for the intent modes: they give no right to touch the resource itself, only to take locks further down, and
    /// those have tokens of their own.
    pub const fn of(mode: Mode) -> Option<FenceMode> {
        match mode {
            Mode::Exclusive => Some(FenceMode::Exclusive),
            Mode::Shared => Some(FenceMode::Shared),
            Mode::Permit { .. } => Some(FenceMode::Permit),
            Mode::IntentShared | Mode::IntentExclusive | Mode::SharedIntentExclusive => None,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            FenceMode::Exclusive => "exclusive",
            FenceMode::Shared => "shared",
            FenceMode::Permit => "permit",
        }
    }
}

impl fmt::Display for FenceMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A fencing token and the mode of its grant, which a writer sends along with each write.
///
/// The text form fits a header, a variable or a column of text:
///
/// ```
/// use tollgate_fence::FencedToken;
/// use tollgate_types::{Lineage, Token};
///
/// let token = FencedToken::shared(Token::new(41)?);
/// assert_eq!(token.to_string(), "41:shared");
/// assert_eq!("41:shared".parse::<FencedToken>()?, token);
///
/// // With the cluster's lineage behind it, if the holder knows that.
/// let token = token.of_lineage(Lineage::new(0x1f));
/// assert_eq!(token.to_string(), "41:shared@000000000000001f");
/// assert_eq!("41:shared@000000000000001f".parse::<FencedToken>()?, token);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A number alone is not read: the program that passes it on must know its mode, and state it.
///
/// ```
/// use tollgate_fence::FencedToken;
/// let error = "41".parse::<FencedToken>().unwrap_err();
/// assert_eq!(error.to_string(), r#""41" has no mode: write it as 41:exclusive, 41:shared or 41:permit"#);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FencedToken {
    /// Number of the token.
    pub token: Token,
    /// Mode of the holder's grant.
    pub mode: FenceMode,
    /// Lineage that the token belongs to, if its holder knows it. A cluster that is restored from a backup keeps the
    /// lineage; a cluster that is founded anew has another one, with tokens from 1 on.
    pub lineage: Option<Lineage>,
}

impl FencedToken {
    /// The HTTP or gRPC header in which a token should travel, so that services agree on one.
    pub const HEADER: &'static str = "tollgate-fencing-token";

    /// The token of an exclusive grant.
    pub const fn exclusive(token: Token) -> FencedToken {
        FencedToken { token, mode: FenceMode::Exclusive, lineage: None }
    }

    /// The token of a shared grant.
    pub const fn shared(token: Token) -> FencedToken {
        FencedToken { token, mode: FenceMode::Shared, lineage: None }
    }

    /// The token of a grant of permits.
    pub const fn permit(token: Token) -> FencedToken {
        FencedToken { token, mode: FenceMode::Permit, lineage: None }
    }

    /// The token of a grant; none for the intent modes, as in [`FenceMode::of`].
    pub fn of_grant(token: Token, mode: Mode) -> Option<FencedToken> {
        Some(FencedToken { token, mode: FenceMode::of(mode)?, lineage: None })
    }

    /// Returns the same token with this lineage.
    #[must_use]
    pub const fn of_lineage(self, lineage: Option<Lineage>) -> FencedToken {
        FencedToken { lineage, ..self }
    }
}

impl fmt::Display for FencedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.token, self.mode)?;
        self.lineage.map_or(Ok(()), |lineage| write!(f, "@{lineage}"))
    }
}

impl FromStr for FencedToken {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<FencedToken, ParseError> {
        let Some((number, rest)) = text.split_once(':') else {
            return Err(ParseError::NoMode { text: shortened(text) });
        };
        let (mode, lineage) = match rest.split_once('@') {
            Some((mode, lineage)) => {
                let read = read_lineage(lineage);
                (mode, Some(read.ok_or_else(|| ParseError::NotALineage { text: shortened(lineage) })?))
            }
            None => (rest, None),
        };
        // `u64::from_str` would read "+41" as well; two texts for one value invite comparing texts.
        let plain =
            !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) && !number.starts_with('0');
        let not_a_number = || ParseError::NotANumber { text: shortened(number) };
        let number =
            if plain { number.parse().map_err(|_| not_a_number())? } else { return Err(not_a_number()) };
        let token = Token::new(number).map_err(ParseError::Token)?;
        let mode = FenceMode::ALL.into_iter().find(|known| known.as_str() == mode);
        let mode = mode.ok_or_else(|| ParseError::UnknownMode { text: shortened(text) })?;
        Ok(FencedToken { token, mode, lineage })
    }
}

/// Reads sixteen hex digits, in the form in which they are written.
fn read_lineage(text: &str) -> Option<Lineage> {
    let lineage = Lineage::new(u64::from_str_radix(text, 16).ok()?)?;
    // `from_str_radix` would read "+1F" as well.
    (lineage.to_string() == text).then_some(lineage)
}

/// At most 40 characters of a received text: enough to recognise it, and no more in our logs.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Reason why a text is not a fenced token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text has no `:`.
    #[error("{text:?} has no mode: write it as {text}:exclusive, {text}:shared or {text}:permit")]
    NoMode {
        /// Beginning of the text.
        text: String,
    },
    /// The part before the `:` is not a plain number.
    #[error("{text:?} is no fencing token: give the number that came with the grant, as in 41:exclusive")]
    NotANumber {
        /// Beginning of that part.
        text: String,
    },
    /// The number is 0, or too great for a token.
    #[error(transparent)]
    Token(Invalid),
    /// The part after the `@` is not a lineage.
    #[error(
        "{text:?} is no lineage: give its 16 hex digits, as in 41:exclusive@0123456789abcdef, or leave it out"
    )]
    NotALineage {
        /// Beginning of that part.
        text: String,
    },
    /// The part after the `:` is not a mode.
    #[error("{text:?} has an unknown mode: it must be exclusive, shared or permit")]
    UnknownMode {
        /// Beginning of the text.
        text: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_types::REVISION_END;

    #[test]
    fn every_token_is_read_back_from_its_text() {
        for number in [1, 7, 41, 1 << 32, REVISION_END - 1] {
            for mode in FenceMode::ALL {
                for lineage in [None, Lineage::new(1), Lineage::new(u64::MAX)] {
                    let token = FencedToken { token: Token::new(number).unwrap(), mode, lineage };
                    assert_eq!(token.to_string().parse(), Ok(token));
                }
            }
        }
    }

    #[test]
    fn nothing_but_the_text_form_is_read() {
        for text in [
            "",
            ":",
            "41",
            "41:",
            "41:Exclusive",
            "41:exclusive ",
            " 41:exclusive",
            "+41:exclusive",
            "041:exclusive",
            "0:exclusive",
            ":exclusive",
            "41:exclusive:1",
            "-1:shared",
            "4.1:shared",
            "9007199254740992:shared",
            "99999999999999999999999:shared",
            "permit:3",
            "41:exclusive@",
            "41:exclusive@0000000000000000",
            "41:exclusive@1f",
            "41:exclusive@000000000000001F",
            "41:exclusive@+00000000000001f",
            "41:exclusive@000000000000001f@000000000000001f",
            "41@000000000000001f:exclusive",
        ] {
            assert!(text.parse::<FencedToken>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn errors_quote_no_more_than_the_beginning() {
        let says = "x".repeat(10_000).parse::<FencedToken>().unwrap_err().to_string();
        assert!(says.len() < 300, "{says}");
    }

    #[test]
    fn intents_have_no_fenced_token() {
        let token = Token::new(1).unwrap();
        for mode in Mode::PLAIN {
            let writes = matches!(mode, Mode::Exclusive | Mode::Shared);
            assert_eq!(FencedToken::of_grant(token, mode).is_some(), writes, "{mode}");
        }
        let permit = Mode::permit(2, 3).unwrap();
        assert_eq!(FencedToken::of_grant(token, permit), Some(FencedToken::permit(token)));
    }
}
