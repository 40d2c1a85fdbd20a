//! P3 on random histories: writes, restarts and dropped resources, beside a model that forgets nothing.
//!
//! Fences that may not forget must give the model's answer each time, and the judge of histories must agree. Fences
//! that may forget must never accept a token that the model refuses, must say when they refuse because of forgetting,
//! and must take every token that is above all they took.

use crate::rng::Rng;
use std::collections::BTreeMap;
use tollgate_check::{At, Event, FenceMode as CheckMode, History, Settings};
use tollgate_fence::{Fence, FenceMode, FencedToken, Fences, Rejected, WhenFull};
use tollgate_types::{Name, Token};

const HISTORIES: u64 = 2_000;
const WRITES: u64 = 60;
const NAMES: u64 = 5;
const TOKENS: u64 = 24;

/// The rule in the words of the promise, on everything that was ever accepted.
#[derive(Default)]
struct Model {
    accepted: BTreeMap<Name, Vec<FencedToken>>,
}

impl Model {
    fn takes(&self, name: &Name, presented: FencedToken, strict: bool) -> bool {
        let accepted = self.accepted.get(name).into_iter().flatten();
        let mut exclusive = accepted.filter(|one| one.mode == FenceMode::Exclusive);
        let once = strict && presented.mode == FenceMode::Exclusive;
        exclusive.all(|one| one.token < presented.token || (one.token == presented.token && !once))
    }

    fn record(&mut self, name: &Name, presented: FencedToken) {
        self.accepted.entry(name.clone()).or_default().push(presented);
    }

    fn is_above_all(&self, presented: FencedToken) -> bool {
        self.accepted.values().flatten().all(|one| one.token < presented.token)
    }
}

fn random_token(rng: &mut Rng) -> FencedToken {
    let mode = FenceMode::ALL[usize::try_from(rng.below(3)).unwrap()];
    FencedToken { token: Token::new(1 + rng.below(TOKENS)).unwrap(), mode, lineage: None }
}

fn random_name(rng: &mut Rng) -> Name {
    Name::new(format!("resource-{}", rng.below(NAMES))).unwrap()
}

fn check_mode(mode: FenceMode) -> CheckMode {
    match mode {
        FenceMode::Exclusive => CheckMode::Exclusive,
        FenceMode::Shared => CheckMode::Shared,
        FenceMode::Permit => CheckMode::Permit,
    }
}

/// One fence, restarted now and then, some restarts from a mark older than its present one.
pub(crate) fn one_fence(seed: u64, plant: impl Fn(Fence) -> Fence) -> Result<(), String> {
    let mut rng = Rng(seed);
    let strict = rng.below(2) == 1;
    let new = || plant(if strict { Fence::strict() } else { Fence::new() });
    let (mut fence, mut older) = (new(), None);
    let (mut model, name) = (Model::default(), Name::new("only").unwrap());
    for step in 0..WRITES {
        match rng.below(12) {
            0 => fence = new().restored(fence.highest()),
            1 => older = fence.highest(),
            2 => fence = fence.restored(older),
            _ => {}
        }
        let presented = random_token(&mut rng);
        let (checked, got) = (fence.check(presented), fence.accept(presented));
        let expected = model.takes(&name, presented, strict);
        if checked != got || got.is_ok() != expected {
            return Err(format!("seed {seed} step {step}: {presented} strict={strict} got {got:?}"));
        }
        if got.is_ok() {
            model.record(&name, presented);
        }
    }
    Ok(())
}

/// Many fences. With room for all names they must answer like the model.
pub(crate) fn many_fences(seed: u64, plant: impl Fn(Fences) -> Fences) -> Result<(), String> {
    let mut rng = Rng(seed);
    let strict = rng.below(2) == 1;
    let when_full = if rng.below(2) == 1 { WhenFull::Forget } else { WhenFull::Refuse };
    let capacity = usize::try_from(rng.below(NAMES + 2)).unwrap();
    let drops = rng.below(2) == 1;
    let exact = !drops && capacity >= usize::try_from(NAMES).unwrap();
    let build = if strict { Fences::strict } else { Fences::new };
    let new = || plant(build(capacity, when_full));

    let (mut fences, mut model) = (new(), Model::default());
    let mut history = History::new(Settings::with_rho_ppm(10_000));
    for step in 0..WRITES {
        match rng.below(16) {
            0 => {
                let kept = fences.marks();
                fences = new();
                fences.restore(&kept).map_err(|unfit| format!("seed {seed} step {step}: {unfit}"))?;
            }
            1 if drops => fences.drop_resource(&random_name(&mut rng)),
            _ => {}
        }
        let (name, presented) = (random_name(&mut rng), random_token(&mut rng));
        let (checked, got) = (fences.check(&name, presented), fences.accept(&name, presented));
        let wrong = |what: &str| {
            Err(format!(
                "seed {seed} step {step}: {what}: {name} {presented} strict={strict} {when_full:?} {got:?}"
            ))
        };
        if checked != got {
            return wrong("check and accept differ");
        }
        let good = model.takes(&name, presented, strict);
        let lost = matches!(got, Err(Rejected::Forgotten { .. } | Rejected::Full { .. }));
        match got {
            Ok(()) if !good => return wrong("accepted what is stale"),
            Err(_) if good && !lost => return wrong("refused what is good"),
            Err(_) if exact && lost => return wrong("forgot although there is room"),
            Err(_) if when_full == WhenFull::Forget && model.is_above_all(presented) => {
                return wrong("refused a token above all");
            }
            _ => {}
        }
        if fences.len() > capacity {
            return wrong("remembers more than it may");
        }
        if got.is_ok() {
            model.record(&name, presented);
        }
        let FencedToken { token, mode, .. } = presented;
        let (mode, accepted) = (check_mode(mode), got.is_ok());
        if accepted || !lost {
            let event = Event::FencedWrite { store: 1, name, token, mode, strict, accepted };
            history.record(At::from_us(step), event);
        }
    }
    let report = history.judge();
    if report.is_clean() {
        Ok(())
    } else {
        Err(format!("seed {seed}: the judge says {:?}", report.violations))
    }
}

#[test]
fn p3_a_fence_answers_as_the_promise_words_it() {
    for seed in 0..HISTORIES {
        one_fence(seed, |fence| fence).unwrap();
    }
}

#[test]
fn p3_many_fences_never_accept_what_one_that_forgets_nothing_would_refuse() {
    for seed in 0..HISTORIES {
        many_fences(seed, |fences| fences).unwrap();
    }
}
