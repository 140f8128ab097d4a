//! `skyhaul paper`: repeats the papers behind the project in virtual time.

use std::process::ExitCode;

use clap::ValueEnum;
use skyhaul_lab::compare::Published;
use skyhaul_lab::experiment::Effort;
use skyhaul_lab::figure::Figure;
use skyhaul_lab::{Paper, PAPERS};

use crate::failure::Failure;
use crate::screen::progress::Jobs;
use crate::screen::{figures, rows};

/// Repeat a paper in virtual time: its figures made anew, and every value it prints beside ours.
///
/// The same seeds give the same result to the last digit, on any number of cores. Exit status: 0 when every value has
/// an answer, whatever it is; 1 when one has none; 2 when the request could not be carried out.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    skyhaul paper all --quick\n  \
    skyhaul paper hybic --figure table-1\n  \
    skyhaul paper boost --seeds 3 --format json\n\
    The papers are boost (000), proxy (001), enhanced (002), hswa (003) and hybic (004).")]
pub struct Args {
    /// Which paper.
    #[arg(value_parser = names())]
    paper: String,
    /// Only these figures or tables, by their numbers or names, separated by commas.
    #[arg(long, value_name = "LIST")]
    figure: Option<String>,
    #[command(flatten)]
    pub effort: EffortArgs,
    /// How to print the results.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// How much is run; shared with `report`.
#[derive(clap::Args)]
pub struct EffortArgs {
    /// Runs per cell, with seeds SEED, SEED+1 and so on [default: 5, with --quick 2].
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: Option<u32>,
    /// Number that decides the luck of the packets.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// A look instead of a measurement: fewer cells, shorter runs, two seeds.
    #[arg(long)]
    pub quick: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for people.
    Text,
    /// One document with everything.
    Json,
    /// One line for each number, with its table, row and column.
    Csv,
    /// Tables for a page of documentation.
    Markdown,
}

/// A paper and what was made of it.
pub struct Made {
    /// The paper.
    pub paper: &'static Paper,
    /// The values it prints.
    pub published: Vec<Published>,
    /// The figures made.
    pub figures: Vec<Figure>,
    /// Whether these are all its figures, so that every value should have an answer.
    pub whole: bool,
}

impl EffortArgs {
    /// What the lab is told.
    pub fn effort(&self) -> Effort<'static> {
        let effort = if self.quick { Effort::quick() } else { Effort::full() };
        Effort { seeds: self.seeds.unwrap_or(effort.seeds), first_seed: self.seed, ..effort }
    }
}

fn names() -> Vec<&'static str> {
    PAPERS.iter().map(|paper| paper.name).chain(["all"]).collect()
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let papers: Vec<&'static Paper> = match Paper::find(&args.paper) {
        Some(paper) => vec![paper],
        None if args.figure.is_some() => {
            return Err(Failure::request(
                "--figure wants one paper, such as `skyhaul paper hybic --figure 3`",
            ))
        }
        None => PAPERS.to_vec(),
    };
    let effort = args.effort.effort();
    let made = make(&papers, args.figure.as_deref(), &effort)?;
    rows::show(&match args.format {
        Format::Text => figures::text(&made),
        Format::Json => figures::json(&made)?,
        Format::Csv => figures::csv(&made)?,
        Format::Markdown => figures::markdown(&made),
    })?;
    Ok(ExitCode::from(u8::from(made.iter().any(|made| made.unanswered().next().is_some()))))
}

/// Makes the figures of some papers.
pub fn make(
    papers: &[&'static Paper],
    figure: Option<&str>,
    effort: &Effort<'_>,
) -> Result<Vec<Made>, Failure> {
    let makers = papers.iter().flat_map(|paper| paper.makers);
    let parts = makers.filter(|maker| figure.is_none_or(|id| maker.figures.contains(&id))).count();
    let line = Jobs::new(if papers.len() == 1 { papers[0].name } else { "papers" }, parts);
    let effort = Effort { progress: Some(&line), ..*effort };
    let made = papers
        .iter()
        .map(|&paper| {
            let published = paper.published().map_err(Failure::request)?;
            let figures = paper.make(figure, &effort).map_err(Failure::request)?;
            Ok(Made { paper, published, figures, whole: figure.is_none() })
        })
        .collect();
    line.finish();
    made
}

impl Made {
    /// Values that should have an answer and have none.
    pub fn unanswered(&self) -> impl Iterator<Item = &Published> {
        let answered = |id: &str| self.figures.iter().any(|f| f.answers.iter().any(|a| a.row == id));
        self.published.iter().filter(move |value| self.whole && !answered(&value.id))
    }
}
