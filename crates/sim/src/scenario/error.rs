//! What is wrong with a scenario, and where.

use std::fmt;

use super::catalogue;

/// A scenario that cannot be used: file, line and key, what was found and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    origin: String,
    line: Option<usize>,
    key: String,
    problem: String,
}

impl ScenarioError {
    pub(super) fn new(
        origin: &str,
        line: Option<usize>,
        key: impl Into<String>,
        problem: impl Into<String>,
    ) -> Self {
        ScenarioError { origin: origin.to_owned(), line, key: key.into(), problem: problem.into() }
    }

    pub(super) fn unknown(id: &str) -> Self {
        let known: Vec<_> = catalogue().collect();
        let problem =
            format!("no such scenario; expected the path of a scenario file or one of {}", known.join(", "));
        ScenarioError::new(id, None, "", problem)
    }

    /// The line of the file it is about, counted from 1.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// The key it is about, such as `forward.rate`; empty if it is about the whole file.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ScenarioError {}
