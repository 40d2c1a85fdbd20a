//! Bugs planted on purpose, to prove that tests can fail: the macro that makes a crate's table of planted bugs.
//!
//! With the crate's feature `planted-bugs`, a test switches one bug on at run time. Without it every question "is this
//! bug planted?" is a constant `false`, and the code of the bug is compiled to nothing. Not here: the bugs themselves,
//! a table in each crate's `planted.rs`.

/// Makes `Bug`, the table, and `Planted`, the bug that is switched on, if any.
/// One line per bug: `Name: "what goes wrong",`.
///
/// The crate that uses it must have a feature `planted-bugs`.
#[macro_export]
macro_rules! planted_bugs {
    ($($bug:ident: $says:literal,)*) => {
        /// One planted bug.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $(#[doc = $says] $bug,)*
        }

        impl Bug {
            /// All planted bugs.
            pub const ALL: &'static [Bug] = &[$(Bug::$bug,)*];

            /// Describes the failure in one sentence.
            pub const fn says(self) -> &'static str {
                match self { $(Bug::$bug => $says,)* }
            }
        }

        /// The bug that is planted, if any. Zero-sized in a shipped binary.
        #[derive(Debug, Clone, Copy, Default)]
        pub(crate) struct Planted {
            #[cfg(feature = "planted-bugs")]
            bug: Option<Bug>,
        }

        impl Planted {
            #[cfg(feature = "planted-bugs")]
            pub(crate) fn some(bug: Bug) -> Planted {
                Planted { bug: Some(bug) }
            }

            /// True if `bug` is the planted bug: always false in a shipped binary.
            #[cfg(feature = "planted-bugs")]
            pub(crate) fn is(self, bug: Bug) -> bool {
                self.bug == Some(bug)
            }

            #[cfg(not(feature = "planted-bugs"))]
            #[inline(always)]
            #[allow(
                clippy::inline_always,
                clippy::unused_self,
                reason = "a constant that takes the planted code with it"
            )]
            pub(crate) fn is(self, _: Bug) -> bool {
                false
            }
        }
    };
}
