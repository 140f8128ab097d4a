//! Reads a TOML file section by section, strictly: what is wrong is reported with file, line, key, found, expected.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};
use toml::Spanned;

/// Something in a config file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file as it was named.
    pub file: PathBuf,
    /// Line counted from one, where there is one.
    pub line: Option<usize>,
    /// The key with its section, such as `link.send_rate`; empty for a file that cannot be read as TOML.
    pub key: String,
    /// What stands there.
    pub found: String,
    /// What would do.
    pub expected: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "found {}, expected {}", self.found, self.expected)
    }
}
impl std::error::Error for ConfigError {}

/// Where a value stands, kept for errors that show only when several values are seen together.
#[derive(Clone, Debug)]
pub struct Place {
    line: usize,
    key: String,
}

/// A table of the file being read. Every key is taken once; [`Section::close`] complains about the rest.
pub struct Section<'f, 't> {
    file: &'f File<'t>,
    /// With a trailing dot, empty at the top.
    prefix: String,
    span: Range<usize>,
    entries: Vec<(Spanned<String>, Spanned<DeValue<'t>>)>,
    known: Vec<&'static str>,
}

/// A config file's name and text.
pub struct File<'t> {
    path: &'t Path,
    text: &'t str,
}

/// One value with its place.
pub struct Entry<'f, 't> {
    file: &'f File<'t>,
    key: String,
    value: Spanned<DeValue<'t>>,
}

impl<'t> File<'t> {
    /// A file's text; `path` is only for messages.
    pub fn new(path: &'t Path, text: &'t str) -> Self {
        File { path, text }
    }

    /// The file's top table.
    ///
    /// # Errors
    /// When the text is not TOML.
    pub fn top(&self) -> Result<Section<'_, 't>, ConfigError> {
        let table = DeTable::parse(self.text).map_err(|error| {
            let line = error.span().map(|span| self.line(span.start));
            ConfigError {
                file: self.path.to_owned(),
                line,
                key: String::new(),
                found: match line.and_then(|line| self.text.lines().nth(line - 1)) {
                    Some(text) => format!("`{}` ({})", short(text.trim()), short(error.message())),
                    None => short(error.message()),
                },
                expected: "TOML: [section] lines and key = value lines".to_owned(),
            }
        })?;
        let span = table.span();
        Ok(Section::new(self, String::new(), span, table.into_inner()))
    }

    fn line(&self, offset: usize) -> usize {
        let end = offset.min(self.text.len());
        self.text.as_bytes()[..end].iter().filter(|&&byte| byte == b'\n').count() + 1
    }

    fn error(&self, span: &Range<usize>, key: &str, found: String, expected: &str) -> ConfigError {
        ConfigError {
            file: self.path.to_owned(),
            line: Some(self.line(span.start)),
            key: key.to_owned(),
            found,
            expected: expected.to_owned(),
        }
    }

    /// An error at a place remembered earlier.
    pub fn error_at(&self, place: &Place, found: impl Into<String>, expected: &str) -> ConfigError {
        ConfigError {
            file: self.path.to_owned(),
            line: Some(place.line),
            key: place.key.clone(),
            found: found.into(),
            expected: expected.to_owned(),
        }
    }
}

impl<'f, 't> Section<'f, 't> {
    fn new(file: &'f File<'t>, prefix: String, span: Range<usize>, table: DeTable<'t>) -> Self {
        let entries = table
            .into_iter()
            .map(|(key, value)| {
                let span = key.span();
                (Spanned::new(span, key.into_inner().into_owned()), value)
            })
            .collect();
        Section { file, prefix, span, entries, known: Vec::new() }
    }

    /// The value of `key`, if the file has it.
    pub fn take(&mut self, key: &'static str) -> Option<Entry<'f, 't>> {
        self.known.push(key);
        let index = self.entries.iter().position(|(found, _)| found.get_ref() == key)?;
        let (_, value) = self.entries.swap_remove(index);
        Some(Entry { file: self.file, key: format!("{}{key}", self.prefix), value })
    }

    /// The value of `key` read by `read`, or `None` if the file does not have it.
    ///
    /// # Errors
    /// When `read` cannot use the value.
    pub fn optional<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(Entry<'f, 't>) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        self.take(key).map(read).transpose()
    }

    /// The value of `key` read by `read`.
    ///
    /// # Errors
    /// When the key is missing or `read` cannot use the value.
    pub fn required<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(Entry<'f, 't>) -> Result<T, ConfigError>,
    ) -> Result<T, ConfigError> {
        match self.take(key) {
            Some(entry) => read(entry),
            None => {
                let key = format!("{}{key}", self.prefix);
                Err(self.file.error(&self.span, &key, "nothing".to_owned(), expected))
            }
        }
    }

    /// The table `key`, empty if the file does not have it.
    ///
    /// # Errors
    /// When the value is not a table.
    pub fn section(&mut self, key: &'static str) -> Result<Section<'f, 't>, ConfigError> {
        match self.take(key) {
            Some(entry) => entry.section(),
            None => {
                let prefix = format!("{}{key}.", self.prefix);
                Ok(Section::new(self.file, prefix, self.span.clone(), DeTable::new()))
            }
        }
    }

    /// The tables `[[key]]`, none if the file does not have them.
    ///
    /// # Errors
    /// When the value is not a list of tables.
    pub fn sections(&mut self, key: &'static str) -> Result<Vec<Section<'f, 't>>, ConfigError> {
        let Some(entry) = self.take(key) else { return Ok(Vec::new()) };
        if !matches!(entry.value.get_ref(), DeValue::Array(_)) {
            return Err(entry.wants(&format!("tables, each opened by [[{key}]]")));
        }
        entry.list(Entry::section)
    }

    /// Where this section starts.
    pub fn place(&self) -> Place {
        Place { line: self.file.line(self.span.start), key: self.prefix.trim_end_matches('.').to_owned() }
    }

    /// Ends the section.
    ///
    /// # Errors
    /// When a key was never taken: names it and the keys that would do.
    pub fn close(self) -> Result<(), ConfigError> {
        let Some((key, _)) = self.entries.iter().min_by_key(|(key, _)| key.span().start) else {
            return Ok(());
        };
        let expected = format!("one of the keys {}", self.known.join(", "));
        let full = format!("{}{}", self.prefix, short(key.get_ref()));
        Err(self.file.error(&key.span(), &full, "an unknown key".to_owned(), &expected))
    }
}

impl<'f, 't> Entry<'f, 't> {
    /// Where the value stands.
    pub fn place(&self) -> Place {
        Place { line: self.file.line(self.value.span().start), key: self.key.clone() }
    }

    /// The error that this value is not what was expected.
    pub fn wants(&self, expected: &str) -> ConfigError {
        self.file.error(&self.value.span(), &self.key, shown(self.value.get_ref()), expected)
    }

    /// A string that `read` understands.
    ///
    /// # Errors
    /// When the value is not a string or `read` gives nothing.
    pub fn text<T>(self, expected: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, ConfigError> {
        match self.value.get_ref() {
            DeValue::String(text) => read(text).ok_or_else(|| self.wants(expected)),
            _ => Err(self.wants(expected)),
        }
    }

    /// A whole number within `range`.
    ///
    /// # Errors
    /// When the value is something else.
    pub fn integer(self, expected: &str, range: Range<u64>) -> Result<u64, ConfigError> {
        let number = match self.value.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        number.filter(|number| range.contains(number)).ok_or_else(|| self.wants(expected))
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// When the value is something else.
    pub fn boolean(self) -> Result<bool, ConfigError> {
        match self.value.get_ref() {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(self.wants("true or false")),
        }
    }

    /// A list, each item read by `read`.
    ///
    /// # Errors
    /// When the value is not a list, or `read` cannot use an item.
    pub fn list<T>(
        self,
        read: impl Fn(Entry<'f, 't>) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        let span = self.value.span();
        match self.value.into_inner() {
            DeValue::Array(items) => items
                .into_iter()
                .map(|value| read(Entry { file: self.file, key: self.key.clone(), value }))
                .collect(),
            other => {
                let expected = "a list in square brackets";
                Err(self.file.error(&span, &self.key, shown(&other), expected))
            }
        }
    }

    /// A string or a whole number, as text: for lists such as ports = [80, "5000-6000"].
    ///
    /// # Errors
    /// When the value is neither, or `read` gives nothing.
    pub fn text_or_number<T>(
        self,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ConfigError> {
        match self.value.get_ref() {
            DeValue::String(text) => read(text).ok_or_else(|| self.wants(expected)),
            DeValue::Integer(number) => read(number.as_str()).ok_or_else(|| self.wants(expected)),
            _ => Err(self.wants(expected)),
        }
    }

    /// A table.
    ///
    /// # Errors
    /// When the value is something else.
    pub fn section(self) -> Result<Section<'f, 't>, ConfigError> {
        let span = self.value.span();
        match self.value.into_inner() {
            DeValue::Table(table) => Ok(Section::new(self.file, format!("{}.", self.key), span, table)),
            other => {
                let expected = format!("a section opened by [{}]", self.key);
                Err(self.file.error(&span, &self.key, shown(&other), &expected))
            }
        }
    }
}

fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("\"{}\"", short(text)),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(value) => value.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a section".to_owned(),
    }
}

/// On one line and not too long, whatever the file holds.
fn short(text: &str) -> String {
    let mut chars = text.chars().flat_map(char::escape_debug);
    let start: String = chars.by_ref().take(LONGEST_QUOTE).collect();
    if chars.next().is_some() {
        start + "..."
    } else {
        start
    }
}

const LONGEST_QUOTE: usize = 80;
