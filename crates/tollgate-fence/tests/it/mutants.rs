//! Every planted bug is caught by the random histories.

use crate::histories::{many_fences, one_fence};
use tollgate_fence::Bug;

#[test]
fn p3_every_planted_bug_is_caught() {
    for &bug in Bug::ALL {
        let caught = (0..2_000).find_map(|seed| {
            let one = one_fence(seed, |fence| fence.with_bug(bug));
            one.and_then(|()| many_fences(seed, |fences| fences.with_bug(bug))).err()
        });
        println!("{bug:?}: {}", caught.as_deref().unwrap_or("NOT CAUGHT"));
        assert!(caught.is_some(), "{bug:?} is caught by no history");
    }
}
