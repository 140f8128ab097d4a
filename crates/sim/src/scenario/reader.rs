//! A TOML table read key by key: each value with its line, each mistake with what would do.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

use toml::de::{DeTable, DeValue};
use toml::Spanned;

use super::error::ScenarioError;

/// The file being read, for messages.
#[derive(Clone, Copy)]
pub(super) struct File<'t> {
    pub origin: &'t str,
    pub text: &'t str,
}

impl File<'_> {
    pub fn error(&self, at: Option<usize>, key: &str, problem: impl Into<String>) -> ScenarioError {
        ScenarioError::new(self.origin, at.map(|offset| self.line(offset)), key, problem)
    }

    fn line(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().get(..offset).unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }
}

/// A table of the file. It notes which keys were asked for, so the others can be refused.
pub(super) struct Table<'t> {
    file: File<'t>,
    table: &'t DeTable<'t>,
    span: Range<usize>,
    /// Name of the table with a trailing dot, empty for the file itself.
    path: String,
    asked: RefCell<Vec<&'static str>>,
}

/// A value with its place.
pub(super) struct Found<'t> {
    pub file: File<'t>,
    pub key: String,
    value: &'t Spanned<DeValue<'t>>,
}

impl<'t> Table<'t> {
    pub fn root(file: File<'t>, table: &'t Spanned<DeTable<'t>>) -> Self {
        Table {
            file,
            table: table.get_ref(),
            span: 0..0,
            path: String::new(),
            asked: RefCell::new(Vec::new()),
        }
    }

    /// The value of `key`, if it is there.
    pub fn get(&self, key: &'static str) -> Option<Found<'t>> {
        if !self.asked.borrow().contains(&key) {
            self.asked.borrow_mut().push(key);
        }
        let value = self.table.get(key)?;
        Some(Found { file: self.file, key: format!("{}{key}", self.path), value })
    }

    /// The value of `key`, which must be there; `example` shows what could stand there.
    pub fn need(&self, key: &'static str, example: &str) -> Result<Found<'t>, ScenarioError> {
        self.get(key)
            .ok_or_else(|| self.error(key, format!("missing; expected for example {key} = {example}")))
    }

    /// The table named `key`, which must be there.
    pub fn need_table(&self, key: &'static str) -> Result<Table<'t>, ScenarioError> {
        let found =
            self.get(key).ok_or_else(|| self.error(key, format!("missing; expected a table [{key}]")))?;
        found.table()
    }

    /// An error about a key of this table, or about the table if `key` is empty, at the table's own line.
    pub fn error(&self, key: &str, problem: impl Into<String>) -> ScenarioError {
        let line = (!self.path.is_empty()).then_some(self.span.start);
        self.file.error(line, format!("{}{key}", self.path).trim_end_matches('.'), problem)
    }

    /// Refuses keys nobody asked for. To be called when all known keys have been.
    pub fn no_others(&self) -> Result<(), ScenarioError> {
        let asked = self.asked.borrow();
        for (key, _) in self.table.iter() {
            if !asked.contains(&key.get_ref().as_ref()) {
                let name = format!("{}{}", self.path, shown(key.get_ref()));
                let problem = format!("unknown key; expected one of {}", asked.join(", "));
                return Err(self.file.error(Some(key.span().start), &name, problem));
            }
        }
        Ok(())
    }
}

impl<'t> Found<'t> {
    /// An error at this value.
    pub fn error(&self, problem: impl Into<String>) -> ScenarioError {
        self.file.error(Some(self.value.span().start), &self.key, problem)
    }

    /// `found X, expected Y` at this value.
    pub fn expected(&self, expected: impl Display) -> ScenarioError {
        self.error(format!("found {}, expected {expected}", self.show()))
    }

    pub fn text(&self) -> Result<&'t str, ScenarioError> {
        self.value.get_ref().as_str().ok_or_else(|| self.expected("a text in quotes"))
    }

    /// A quantity with its unit, such as "150 Mbit/s".
    pub fn quantity<Q: FromStr<Err: Display>>(&self, example: &str) -> Result<Q, ScenarioError> {
        self.parsed(example, |text| text.parse().map_err(|error: Q::Err| error.to_string()))
    }

    /// A quantity read by `parse`; plain numbers are given to it as they are written.
    pub fn parsed<Q>(
        &self,
        example: &str,
        parse: impl FnOnce(&str) -> Result<Q, String>,
    ) -> Result<Q, ScenarioError> {
        let text = match self.value.get_ref() {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => return Err(self.expected(example)),
        };
        if text.len() > LONGEST_QUANTITY {
            return Err(self.expected(example));
        }
        parse(text).map_err(|problem| self.error(problem))
    }

    pub fn number(&self, expected: &str) -> Result<f64, ScenarioError> {
        let number = match self.value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse::<f64>().ok(),
            DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
            _ => None,
        };
        number.filter(|number| number.is_finite()).ok_or_else(|| self.expected(expected))
    }

    pub fn yes_or_no(&self) -> Result<bool, ScenarioError> {
        self.value.get_ref().as_bool().ok_or_else(|| self.expected("true or false"))
    }

    /// One of several words.
    pub fn choice<C: Copy>(&self, choices: &[(&str, C)]) -> Result<C, ScenarioError> {
        let found = self.value.get_ref().as_str();
        let choice = choices.iter().find(|(name, _)| found == Some(name)).map(|(_, choice)| *choice);
        choice.ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
            self.expected(names.join(" or "))
        })
    }

    pub fn table(&self) -> Result<Table<'t>, ScenarioError> {
        self.as_table(format!("{}.", self.key))
    }

    /// Tables of a list, written `[[key]]`; they are numbered from 1 in messages.
    pub fn tables(&self) -> Result<Vec<Table<'t>>, ScenarioError> {
        let items = self.list(&format!("a list of tables, each begun with [[{}]]", self.key))?;
        items.iter().map(|item| item.as_table(format!("{}.", item.key))).collect()
    }

    /// Values of a list that has some; `what` says of what.
    pub fn some_items(&self, what: &str) -> Result<Vec<Found<'t>>, ScenarioError> {
        let items = self.list(&format!("a list of {what}"))?;
        if items.is_empty() {
            return Err(self.error(format!("an empty list, expected {what}, or no such key")));
        }
        Ok(items)
    }

    /// A whole number within bounds; `unit` says of what, if that needs saying.
    pub fn whole(&self, least: u32, most: u32, unit: &str) -> Result<u32, ScenarioError> {
        let expected = format!("a whole number from {least} to {most} {unit}");
        let number = self.number(expected.trim_end())?;
        if number.fract() != 0.0 || !(f64::from(least)..=f64::from(most)).contains(&number) {
            return Err(self.expected(expected.trim_end()));
        }
        Ok(number as u32)
    }

    /// The number of a text such as "1.5 bdp"; nothing if it is of another kind.
    pub fn products(&self) -> Result<Option<f64>, ScenarioError> {
        let Some(number) = self.value.get_ref().as_str().and_then(|text| text.trim().strip_suffix("bdp"))
        else {
            return Ok(None);
        };
        match number.trim().parse::<f64>() {
            Ok(times) if times > 0.0 && times <= MOST_PRODUCTS => Ok(Some(times)),
            _ => Err(self.expected("bandwidth-delay products such as \"1 bdp\", above 0 and at most 1000")),
        }
    }

    /// Whether it is a number without quotes.
    pub fn is_number(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::Integer(_) | DeValue::Float(_))
    }

    /// Texts of a list.
    pub fn texts(&self) -> Result<Vec<String>, ScenarioError> {
        self.list("a list of texts")?.iter().map(|item| item.text().map(str::to_owned)).collect()
    }

    fn list(&self, expected: &str) -> Result<Vec<Found<'t>>, ScenarioError> {
        let array = self.value.get_ref().as_array().ok_or_else(|| self.expected(expected))?;
        let item =
            |(index, value)| Found { file: self.file, key: format!("{}[{}]", self.key, index + 1), value };
        Ok(array.iter().enumerate().map(item).collect())
    }

    fn as_table(&self, path: String) -> Result<Table<'t>, ScenarioError> {
        let table = self.value.get_ref().as_table().ok_or_else(|| self.expected("a table"))?;
        let span = self.value.span();
        Ok(Table { file: self.file, table, span, path, asked: RefCell::new(Vec::new()) })
    }

    /// The value as a message shows it.
    fn show(&self) -> String {
        match self.value.get_ref() {
            DeValue::String(text) => format!("\"{}\"", shown(text)),
            DeValue::Integer(number) => shown(&number.to_string()),
            DeValue::Float(number) => shown(number.as_str()),
            DeValue::Boolean(yes) => yes.to_string(),
            DeValue::Datetime(moment) => moment.to_string(),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        }
    }
}

/// The beginning of a text, without line breaks.
fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        short.push_str("...");
    }
    short
}

/// A thousand bandwidth-delay products are a mistake.
const MOST_PRODUCTS: f64 = 1000.0;
/// No quantity takes more characters to write; longer texts are not worth reading.
const LONGEST_QUANTITY: usize = 64;
