//! The configuration file: TOML, walked by hand, so that every value keeps its line number.
//!
//! All mistakes in a file are reported at once. A line that is not TOML gets a syntax error and no other complaint. Not
//! here: the values (`kind`, `member`).

use super::keys::{Key, Table};
use super::kind::{Kind, Value};
use super::layers::Layers;
use super::member::{Reading, read_members};
use super::origin::Origin;
use super::problem::{Place, Problem, Problems, Wrong};
use super::spelling::nearest;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A configuration file that was read from disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// Path as the operator named it; messages and origins repeat it.
    pub path: PathBuf,
    /// Content of the file.
    pub text: String,
}

/// Maximum size of a configuration file: more than any needs, and a limit for a device or a log named by mistake, which
/// may never end.
const FILE_BYTES_MAX: u64 = 1 << 20;

impl ConfigFile {
    /// Reads the file; refuses one that is too long or not UTF-8.
    pub fn read(path: &Path) -> Result<ConfigFile, Problems> {
        let shown = path.display();
        let problem = |what: String, advice: &str| {
            Problems::new(vec![Problem::new(Place::Nowhere, "", Wrong::new(what, advice))])
        };
        let unreadable =
            |error| problem(format!("can't read {shown}: {error}"), "check the path given with --config");
        let mut bytes = Vec::new();
        let opened = File::open(path).map_err(unreadable)?;
        opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let what = format!("{shown} has more than {FILE_BYTES_MAX} bytes, which no configuration needs");
            return Err(problem(what, "check the path given with --config"));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            problem(format!("{shown} is not UTF-8 from byte {at} on"), "save it as UTF-8 text")
        })?;
        Ok(ConfigFile { path: path.to_path_buf(), text })
    }

    pub(crate) fn read_into(&self, layers: &mut Layers) {
        let (root, errors) = DeTable::parse_recoverable(&self.text);
        let mut reader = Reader { file: self, layers, garbled_lines: BTreeSet::new() };
        for error in &errors {
            reader.syntax(error);
        }
        reader.root(root.get_ref());
    }
}

struct Reader<'a> {
    file: &'a ConfigFile,
    layers: &'a mut Layers,
    /// Lines with a syntax error: the values parsed from them are guesses, and not worth a complaint.
    garbled_lines: BTreeSet<usize>,
}

impl Reader<'_> {
    fn table(&self) -> &'static Table {
        self.layers.table
    }

    fn place(&self, span: &Range<usize>) -> Place {
        Place::in_file(&self.file.path, &self.file.text, span)
    }

    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.file.text.bytes().take(span.start);
        before.filter(|byte| *byte == b'\n').count() + 1
    }

    fn syntax(&mut self, error: &toml::de::Error) {
        let span = error.span().unwrap_or_default();
        self.layers.garbled = true;
        self.garbled_lines.insert(self.line(&span));
        let what = match error.message() {
            "duplicate key" => "this key or table was given before".to_owned(),
            other => format!("this is not TOML: {other}"),
        };
        self.layers.complain(Problem::new(self.place(&span), "", Wrong::new(what, "")));
    }

    fn complain(&mut self, span: &Range<usize>, path: &str, wrong: Wrong) {
        if !self.garbled_lines.contains(&self.line(span)) {
            self.layers.complain(Problem::new(self.place(span), path, wrong));
        }
    }

    fn refuse(&mut self, key: &Key, span: &Range<usize>, path: &str, wrong: Wrong) {
        if !self.garbled_lines.contains(&self.line(span)) {
            self.layers.refuse(key, Problem::new(self.place(span), path, wrong));
        }
    }

    fn root(&mut self, root: &DeTable<'_>) {
        for (name, value) in root {
            let sections = self.table().sections.iter().map(|(section, _)| *section);
            let section = sections.into_iter().find(|section| section == name.get_ref());
            match (section, value.get_ref()) {
                (Some(section), DeValue::Table(table)) => self.section(section, table),
                (Some(section), _) => {
                    let advice = format!("begin it with a line [{section}]");
                    self.complain(&name.span(), section, Wrong::new("must be a section", advice));
                }
                (None, found) => self.unknown_section(name.get_ref(), &name.span(), found),
            }
        }
    }

    fn unknown_section(&mut self, name: &str, span: &Range<usize>, found: &DeValue<'_>) {
        let sections = self.table().sections.iter().map(|(section, _)| *section);
        let wrong = if found.is_table() || found.is_array() {
            let all = sections.clone().collect::<Vec<_>>().join(", ");
            let near = nearest(name, sections).map(|near| format!("did you mean [{near}]?"));
            Wrong::new("is no section", near.unwrap_or_else(|| format!("the sections are {all}")))
        } else {
            let home = home(name, self.table()).map_or("a section".to_owned(), |home| format!("[{home}]"));
            Wrong::new("stands outside any section", format!("move it below {home}"))
        };
        self.complain(span, name, wrong);
    }

    fn section(&mut self, section: &'static str, table: &DeTable<'_>) {
        for (name, value) in table {
            let path = format!("{section}.{}", name.get_ref());
            match self.table().find(&path) {
                Some(key) => self.key(key, value),
                None => self.unknown_key(section, name.get_ref(), &name.span()),
            }
        }
    }

    fn unknown_key(&mut self, section: &str, name: &str, span: &Range<usize>) {
        let path = format!("{section}.{name}");
        let known = self.table().keys.iter().filter(|key| key.section == section).map(|key| key.name);
        let all = known.clone().collect::<Vec<_>>().join(", ");
        let near = nearest(name, known);
        let advice = match (near, home(name, self.table())) {
            (_, Some(home)) => format!("`{name}` belongs in [{home}]"),
            (Some(near), None) => format!("did you mean `{near}`?"),
            (None, None) => format!("[{section}] has {all}"),
        };
        let wrong = Wrong::new("is no key", advice);
        match near.and_then(|near| self.table().find(&format!("{section}.{near}"))) {
            // The key that was probably meant is refused, so that it is not reported as missing as well.
            Some(meant) => self.refuse(meant, span, &path, wrong),
            None => self.complain(span, &path, wrong),
        }
    }

    fn key(&mut self, key: &'static Key, value: &Spanned<DeValue<'_>>) {
        let path = key.path();
        let mut reading = Reading::default();
        let read = match key.kind {
            Kind::Members => read_members(&path, value, &mut reading).map(Value::Members),
            kind => {
                let read = kind.read_toml(value.get_ref());
                read.map_err(|wrong| reading.wrongs.push((path.clone(), value.span(), wrong))).ok()
            }
        };
        for (path, span, wrong) in reading.wrongs {
            self.refuse(key, &span, &path, wrong);
        }
        let Some(read) = read else { return };
        let origin = Origin::File { path: self.file.path.clone(), line: self.line(&value.span()) };
        self.layers.set(key, read, origin, self.place(&value.span()));
        for (part, span) in reading.spans {
            self.layers.place_part(part, self.place(&span));
        }
    }
}

/// Returns the section that has a key of this name, if there is exactly one.
fn home(name: &str, table: &'static Table) -> Option<&'static str> {
    let mut homes = table.keys.iter().filter(|key| key.name == name).map(|key| key.section);
    homes.next().filter(|_| homes.next().is_none())
}
