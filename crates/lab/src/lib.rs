//! The five papers behind the project, repeated in virtual time.
//!
//! One file per paper. Each makes the paper's figures anew ([`figure::Figure`]) and answers every value the
//! paper prints ([`compare`]): ours beside theirs, what the link could give at most, and a verdict. What
//! cannot be repeated says why.

pub mod bench;
pub mod boost;
pub mod compare;
pub mod enhanced;
pub mod experiment;
pub mod figure;
pub mod grid;
pub mod hswa;
pub mod hybic;
pub mod plot;
pub mod proxy;

use compare::Published;
use experiment::{Effort, LabError};
use figure::Figure;

/// A paper and what is repeated of it.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// What users type, such as `boost`.
    pub name: &'static str,
    /// What scenario ids begin with: `p0` to `p4`.
    pub prefix: &'static str,
    /// The paper's title.
    pub title: &'static str,
    /// Where it was published.
    pub published_in: &'static str,
    /// Every value it prints, as CSV; see [`compare::read`].
    pub values: &'static str,
    /// What makes its figures.
    pub makers: &'static [Maker],
}

/// Makes one or several figures that share their runs.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    /// Ids of the figures it makes, in order: a number as in the paper, or a word.
    pub figures: &'static [&'static str],
    /// Makes them.
    pub make: fn(&Effort<'_>) -> Result<Vec<Figure>, LabError>,
}

/// All papers, in the order of their numbers.
pub const PAPERS: &[&Paper] = &[
    &boost::PAPER,    // 000
    &proxy::PAPER,    // 001
    &enhanced::PAPER, // 002
    &hswa::PAPER,     // 003
    &hybic::PAPER,    // 004
];

impl Paper {
    /// The paper of that name.
    pub fn find(name: &str) -> Option<&'static Paper> {
        PAPERS.iter().copied().find(|paper| paper.name == name)
    }

    /// Ids of its figures.
    pub fn figures(&self) -> impl Iterator<Item = &'static str> {
        self.makers.iter().flat_map(|maker| maker.figures.iter().copied())
    }

    /// The values it prints.
    ///
    /// # Errors
    /// When our own table of them is wrong, with its line.
    pub fn published(&self) -> Result<Vec<Published>, LabError> {
        compare::read(self.name, self.values)
    }

    /// Makes its figures, or only those whose ids stand in `only`, separated by commas.
    ///
    /// # Errors
    /// When there is no such figure, a run fails, or a figure answers a value that was never published.
    pub fn make(&self, only: Option<&str>, effort: &Effort<'_>) -> Result<Vec<Figure>, LabError> {
        let asked: Vec<&str> = only.map_or(Vec::new(), |ids| ids.split(',').map(str::trim).collect());
        if let Some(id) = asked.iter().find(|id| !self.figures().any(|known| known == **id)) {
            return Err(LabError::NoFigure {
                paper: self.name,
                asked: (*id).to_owned(),
                known: self.figures().collect::<Vec<_>>().join(", "),
            });
        }
        let wanted = |id: &str| asked.is_empty() || asked.contains(&id);
        let known = self.published()?;
        let mut figures = Vec::new();
        for maker in self.makers.iter().filter(|maker| maker.figures.iter().any(|id| wanted(id))) {
            figures.extend((maker.make)(effort)?.into_iter().filter(|figure| wanted(figure.id)));
        }
        for answer in figures.iter().flat_map(|figure| &figure.answers) {
            if !known.iter().any(|published| published.id == answer.row) {
                return Err(LabError::NeverPublished { paper: self.name, row: answer.row.clone() });
            }
        }
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_published_value_has_an_id_of_its_own_and_ids_of_figures_do_not_repeat() {
        for paper in PAPERS {
            let published = paper.published().unwrap();
            let ids: BTreeSet<&str> = published.iter().map(|row| row.id.as_str()).collect();
            assert_eq!(ids.len(), published.len(), "{}", paper.name);
            assert!(published.iter().all(|row| row.scenario.starts_with(paper.prefix)), "{}", paper.name);
            let figures: BTreeSet<&str> = paper.figures().collect();
            assert_eq!(figures.len(), paper.figures().count(), "{}", paper.name);
        }
    }

    #[test]
    fn a_figure_that_does_not_exist_is_refused_with_those_that_do() {
        let error = hybic::PAPER.make(Some("99"), &Effort::quick()).unwrap_err().to_string();
        assert!(error.contains("\"99\"") && error.contains("table-1"), "{error}");
    }
}
