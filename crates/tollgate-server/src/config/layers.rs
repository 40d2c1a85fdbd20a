//! Merges the layers of settings: defaults, file, environment, flags. A mistake in a lower layer is reported even if a
//! higher layer overrides the value.
//!
//! Not here: reading the file and the environment (`file`, `environment`).

use super::keys::{Key, Preset, Table};
use super::kind::{Kind, Value};
use super::member::{Reading, read_members};
use super::origin::Origin;
use super::problem::{Place, Problem, Problems, Wrong};
use super::rules::{BrokenRule, operations_admitted};
use super::settings::{Setting, Settings};
use super::spelling::nearest;
use super::{Sources, cluster_id_of, environment};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use toml::de::DeTable;

/// Settings of the layers read so far.
#[derive(Debug)]
pub(crate) struct Layers {
    /// Table of the settings that exist.
    pub(crate) table: &'static Table,
    given: BTreeMap<String, (Value, Origin)>,
    /// Source position of each key, and of each part of a key, in the layer that won.
    places: BTreeMap<String, Place>,
    /// Keys that are not checked further, because a value for them could not be read.
    unread: BTreeSet<String>,
    problems: Vec<Problem>,
    /// True if the file could not be parsed, so that settings which seem to be missing may be there.
    pub(crate) garbled: bool,
}

impl Layers {
    /// Reads all sources, in the order of increasing priority.
    pub(crate) fn read(table: &'static Table, sources: &Sources) -> Layers {
        let mut layers = Layers {
            table,
            given: BTreeMap::new(),
            places: BTreeMap::new(),
            unread: BTreeSet::new(),
            problems: Vec::new(),
            garbled: false,
        };
        if let Some(file) = &sources.file {
            file.read_into(&mut layers);
        }
        environment::read_into(&sources.env, &mut layers);
        layers.read_flags(&sources.flags);
        layers
    }

    pub(crate) fn set(&mut self, key: &Key, value: Value, origin: Origin, place: Place) {
        let path = key.path();
        let part = format!("{path}[");
        self.places.retain(|placed, _| !placed.starts_with(&part));
        self.places.insert(path.clone(), place);
        self.given.insert(path, (value, origin));
    }

    /// Records the source position of a part of the key that was set last.
    pub(crate) fn place_part(&mut self, part: String, place: Place) {
        self.places.insert(part, place);
    }

    /// Records a problem that leaves a key unread.
    pub(crate) fn refuse(&mut self, key: &Key, problem: Problem) {
        self.unread.insert(key.path());
        self.problems.push(problem);
    }

    /// Records a problem that leaves no key unread.
    pub(crate) fn complain(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Reads the text of a variable or a flag.
    pub(crate) fn read_text(&mut self, key: &Key, text: &str, origin: Origin, place: Place) {
        let read = match key.kind {
            Kind::Members => parse_members(&key.path(), text),
            kind => kind.parse_text(text).map_err(|wrong| vec![(key.path(), wrong)]),
        };
        match read {
            Ok(value) => self.set(key, value, origin, place),
            Err(wrongs) => {
                for (path, wrong) in wrongs {
                    self.refuse(key, Problem::new(place.clone(), path, wrong));
                }
            }
        }
    }

    /// Reads the flags. If a flag is given twice, the later one wins, as is usual.
    fn read_flags(&mut self, flags: &[(String, String)]) {
        for (path, text) in flags {
            if let Some(key) = self.table.find(path) {
                let place = Place::Flag { name: key.flag(), value: text.clone() };
                self.read_text(key, text, Origin::Flag { name: key.flag() }, place);
                continue;
            }
            let known: Vec<String> = self.table.keys.iter().map(Key::path).collect();
            let advice = match nearest(path, known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean {near}?"),
                None => "`config show` lists all keys".to_owned(),
            };
            let place = Place::Flag { name: path.clone(), value: text.clone() };
            self.complain(Problem::new(place, path, Wrong::new("is no key", advice)));
        }
    }

    /// Builds and checks the configuration; the error lists every problem found in any layer.
    pub(crate) fn finish<C>(
        mut self,
        build: impl FnOnce(&Settings) -> C,
        validate: impl FnOnce(&C) -> Result<(), Vec<BrokenRule>>,
    ) -> Result<(C, Settings), Problems> {
        if !self.garbled {
            self.find_missing();
        }
        let settings = self.settings();
        let config = build(&settings);
        if !self.garbled {
            for broken in validate(&config).err().unwrap_or_default() {
                self.judge(&broken, &settings);
            }
        }
        if self.problems.is_empty() { Ok((config, settings)) } else { Err(Problems::new(self.problems)) }
    }

    fn find_missing(&mut self) {
        for key in self.table.keys.iter().filter(|key| key.preset == Preset::Required) {
            let path = key.path();
            if self.given.contains_key(&path) || self.unread.contains(&path) {
                continue;
            }
            let (section, name, env, flag) = (key.section, key.name, key.env(), key.flag());
            let advice = format!("set `{name}` in [{section}] of the file, {env} or {flag}");
            let mut problem = Problem::new(Place::Nowhere, path, Wrong::new("is missing", advice));
            problem.notes.push(key.help.to_owned());
            self.refuse(key, problem);
        }
    }

    /// Returns all settings. A key that was not read has its default, or a placeholder of the right kind, so that the
    /// rules for the other keys can still be checked.
    fn settings(&self) -> Settings {
        let setting = |key: &'static Key| match self.given.get(&key.path()) {
            Some((value, origin)) => Setting { key, value: value.clone(), origin: origin.clone() },
            None => Setting { key, value: self.preset(key), origin: Origin::Default },
        };
        Settings(self.table.keys.iter().map(setting).collect())
    }

    fn preset(&self, key: &Key) -> Value {
        match key.preset {
            Preset::Bool(value) => Value::Bool(value),
            Preset::Number(value) => Value::Number(value),
            Preset::Text(value) => Value::Text(value.to_owned()),
            Preset::Empty if key.kind == Kind::Members => Value::Members(Vec::new()),
            Preset::Empty => Value::Endpoints(Vec::new()),
            Preset::Required => stand_in(key.kind),
            Preset::Derived(_) => self.derived(key),
        }
    }

    /// Returns the value of a key that is derived from other keys, given or by default.
    fn derived(&self, key: &Key) -> Value {
        match key.path().as_str() {
            "cluster.id" => {
                let name = match self.given.get("cluster.name") {
                    Some((Value::Text(name), _)) => name,
                    _ => "",
                };
                Value::Text(cluster_id_of(name).to_string())
            }
            "server.operations_admitted_max" => {
                let path = "server.operations_in_flight_max";
                let known = self.table.find(path).expect("whoever derives from it has it");
                let in_flight = match self.given.get(path) {
                    Some((value, _)) => value.clone(),
                    None => self.preset(known),
                };
                let Value::Number(in_flight) = in_flight else { panic!("{path} is no number") };
                Value::Number(operations_admitted(in_flight))
            }
            other => panic!("nothing says how {other} is derived"),
        }
    }

    /// Reports a broken rule where the operator can mend it: at the first key that somebody set.
    fn judge(&mut self, broken: &BrokenRule, settings: &Settings) {
        let key_of = |path: &str| path.split('[').next().unwrap_or(path).to_owned();
        let keys: Vec<String> = broken.about.iter().map(|path| key_of(path)).collect();
        if keys.iter().any(|key| self.unread.contains(key)) {
            return;
        }
        let mut places = broken.about.iter().zip(&keys);
        let place = places.find_map(|(path, key)| self.places.get(path).or_else(|| self.places.get(key)));
        let place = place.cloned().unwrap_or(Place::Nowhere);
        let subject = broken.about.first().cloned().unwrap_or_default();
        let mut problem =
            Problem::new(place, subject, Wrong::new(broken.rule.clone(), broken.advice.clone()));
        if keys.len() > 1 {
            // A rule text that begins with "is" has shown the value of the first key already.
            let told = keys.iter().skip(usize::from(broken.rule.starts_with("is ")));
            let told = told.filter_map(|key| settings.get(key)).filter(|s| s.key.preset != Preset::Empty);
            problem.notes.extend(told.map(|s| format!("{} is {} ({})", s.key.path(), s.value, s.origin)));
        }
        self.problems.push(problem);
    }
}

/// Returns a placeholder for a required key that was not set.
fn stand_in(kind: Kind) -> Value {
    match kind {
        Kind::Number { min, .. } => Value::Number(min),
        Kind::Name | Kind::Path => Value::Text("missing".to_owned()),
        other => unreachable!("no key of the kind {other:?} is required"),
    }
}

/// Parses the members in a variable or flag, which have the same syntax as in the file.
fn parse_members(path: &str, text: &str) -> Result<Value, Vec<(String, Wrong)>> {
    let document = format!("members = {text}\n");
    let syntax = |what: &str| {
        vec![(path.to_owned(), Wrong::new(format!("can't be read: {what}"), super::member::FORM))]
    };
    let table = DeTable::parse(&document).map_err(|error| syntax(error.message()))?;
    let [(_, value)] = table.get_ref().iter().collect::<Vec<_>>()[..] else {
        return Err(syntax("something follows the list"));
    };
    let mut reading = Reading::default();
    let members = read_members(path, value, &mut reading);
    let wrongs =
        reading.wrongs.into_iter().map(|(path, _, wrong): (_, Range<usize>, _)| (path, wrong)).collect();
    members.map(Value::Members).ok_or(wrongs)
}
