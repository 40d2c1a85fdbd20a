//! The messages for writers that are turned away.

use tollgate_fence::{Fence, FencedToken, Fences, WhenFull};
use tollgate_types::{Name, Token};

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

#[test]
fn every_rejection_names_both_tokens_and_says_what_to_do() {
    let mut fence = Fence::strict();
    fence.accept(FencedToken::exclusive(token(34))).unwrap();
    let stale = fence.accept(FencedToken::shared(token(33))).unwrap_err();
    assert_eq!(
        stale.to_string(),
        "shared token 33 is stale: a write with token 34 came first. Stop writing: the lock is lost. \
         Acquire it again, and read again what you meant to change"
    );
    let repeated = fence.accept(FencedToken::exclusive(token(34))).unwrap_err();
    assert_eq!(
        repeated.to_string(),
        "exclusive token 34 was accepted before (the highest so far is 34), and this store takes each once. \
         If you repeat a write, it has been made; for another one acquire the lock again"
    );

    let (a, b) = (Name::new("a").unwrap(), Name::new("b").unwrap());
    let mut fences = Fences::new(1, WhenFull::Forget);
    fences.accept(&a, FencedToken::exclusive(token(34))).unwrap();
    fences.accept(&b, FencedToken::exclusive(token(35))).unwrap();
    let forgotten = fences.accept(&a, FencedToken::permit(token(33))).unwrap_err();
    assert_eq!(
        forgotten.to_string(),
        "permit token 33 is not above 34, below which this store has forgotten what it took. \
         It may or may not be stale: acquire the lock again and use the new token"
    );
    assert_eq!(forgotten.presented(), FencedToken::permit(token(33)));

    let mut fences = Fences::new(1, WhenFull::Refuse);
    fences.accept(&a, FencedToken::exclusive(token(34))).unwrap();
    let full = fences.accept(&b, FencedToken::exclusive(token(35))).unwrap_err();
    assert_eq!(
        full.to_string(),
        "exclusive token 35 can't be remembered: this store already guards 1 resources, as many as it may. \
         Raise its capacity, or drop resources that no longer exist"
    );
}
