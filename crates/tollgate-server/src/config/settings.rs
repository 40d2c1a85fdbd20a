//! All settings with their values and origins, as `config show` prints them.
//!
//! The JSON form is for scripts: an array with one object for each key. Numbers stay numbers; none is above 2^53.

use super::keys::Key;
use super::kind::Value;
use super::member::Member;
use super::origin::Origin;
use std::fmt;

/// A setting with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Key of the setting.
    pub key: &'static Key,
    /// The value in force.
    pub value: Value,
    /// Source of the value.
    pub origin: Origin,
}

/// All settings, in the order of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings(pub(crate) Vec<Setting>);

impl Settings {
    /// Iterates over the settings.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.0.iter()
    }

    /// Returns the setting with this key path.
    pub fn get(&self, path: &str) -> Option<&Setting> {
        self.0.iter().find(|setting| setting.key.path() == path)
    }

    /// Formats a table for people: key, value and, if requested, origin.
    pub fn to_text(&self, with_origin: bool) -> String {
        let rows: Vec<[String; 3]> = self.iter().flat_map(Setting::rows).collect();
        let heading = ["KEY", "VALUE", "ORIGIN"].map(str::to_owned);
        let width = |column: usize| {
            rows.iter().chain([&heading]).map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let (key_width, value_width) = (width(0), width(1));
        let lines = [&heading].into_iter().chain(&rows).map(|[key, value, origin]| {
            let origin = if with_origin { origin } else { "" };
            let line = format!("{key:key_width$}  {value:value_width$}  {origin}");
            format!("{}\n", line.trim_end())
        });
        lines.collect()
    }

    /// Formats the settings as JSON: `[{"key", "value", "origin": {"kind", ...}}, ...]`.
    pub fn to_json(&self) -> String {
        let objects = self.iter().map(|setting| {
            let (key, value, origin) =
                (quoted(&setting.key.path()), json(&setting.value), json_origin(&setting.origin));
            format!("  {{\"key\": {key}, \"value\": {value}, \"origin\": {origin}}}")
        });
        format!("[\n{}\n]\n", objects.collect::<Vec<_>>().join(",\n"))
    }
}

impl Setting {
    /// Returns the lines of the table. A list has one line for each element: in one line it would push all origins off
    /// the screen.
    fn rows(&self) -> Vec<[String; 3]> {
        let (path, origin) = (self.key.path(), self.origin.to_string());
        match &self.value {
            Value::Members(members) if !members.is_empty() => {
                let row = |(index, member): (usize, &Member)| {
                    [format!("{path}[{index}]"), member.to_string(), origin.clone()]
                };
                members.iter().enumerate().map(row).collect()
            }
            value => vec![[path, value.to_string(), origin]],
        }
    }
}

/// Writes the value in the syntax of the file.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(value) => write!(f, "{value}"),
            Value::Number(value) => write!(f, "{value}"),
            // JSON escapes are valid in TOML.
            Value::Text(value) => write!(f, "{}", quoted(value)),
            Value::Members(members) => {
                let members: Vec<String> = members.iter().map(Member::to_string).collect();
                write!(f, "[{}]", members.join(", "))
            }
            Value::Endpoints(endpoints) => {
                let endpoints: Vec<String> = endpoints.iter().map(|each| quoted(&each.to_string())).collect();
                write!(f, "[{}]", endpoints.join(", "))
            }
        }
    }
}

fn json(value: &Value) -> String {
    let Value::Members(members) = value else { return value.to_string() };
    let objects = members.iter().map(|Member { id, peer, client, witness, zone }| {
        let (peer, client, zone) = (quoted(&peer.to_string()), quoted(&client.to_string()), quoted(zone));
        format!(
            "{{\"id\": {id}, \"peer\": {peer}, \"client\": {client}, \"witness\": {witness}, \"zone\": {zone}}}"
        )
    });
    format!("[{}]", objects.collect::<Vec<_>>().join(", "))
}

fn json_origin(origin: &Origin) -> String {
    match origin {
        Origin::Default => "{\"kind\": \"default\"}".to_owned(),
        Origin::File { path, line } => {
            let path = quoted(&path.to_string_lossy());
            format!("{{\"kind\": \"file\", \"path\": {path}, \"line\": {line}}}")
        }
        Origin::Env { name } => format!("{{\"kind\": \"env\", \"name\": {}}}", quoted(name)),
        Origin::Flag { name } => format!("{{\"kind\": \"flag\", \"name\": {}}}", quoted(name)),
    }
}

fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|letter| match letter {
        '"' | '\\' => format!("\\{letter}"),
        letter if letter.is_control() => format!("\\u{:04x}", u32::from(letter)),
        letter => letter.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_so_that_json_and_toml_can_read_them() {
        assert_eq!(quoted("a \"b\" \\ é\u{1}"), "\"a \\\"b\\\" \\\\ é\\u0001\"");
    }
}
