//! `skyhaul report`: the papers and our own controller on one page that needs no network.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use skyhaul_lab::bench::traces::CHAPTER;
use skyhaul_lab::{Paper, PAPERS};

use super::paper::{make, EffortArgs, Made};
use crate::failure::Failure;
use crate::screen::figures;
use crate::screen::rows;

/// Write one HTML page with every table, chart, published value and note of the papers, and with our own controller's
/// rate, queue, window and estimates over time.
///
/// The page holds everything it needs: it opens from a disk, without network and scripts, and prints. The same seeds
/// give the same page to the last byte. Exit status: 0 when every published value has an answer, whatever it is; 1 when
/// one has none; 2 when the request could not be carried out.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    skyhaul report -o report.html --quick\n  \
    skyhaul report -o report.html --paper hybic,hswa --seeds 10\n  \
    skyhaul report -o report.html --paper skyhaul")]
pub struct Args {
    /// File to write; one that exists is replaced when the page is complete.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Only these papers, separated by commas; `skyhaul` is our own controller.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names())]
    paper: Vec<String>,
    #[command(flatten)]
    effort: EffortArgs,
}

fn chapters() -> impl Iterator<Item = &'static Paper> {
    PAPERS.iter().copied().chain([&CHAPTER])
}

fn names() -> Vec<&'static str> {
    chapters().map(|chapter| chapter.name).collect()
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let wanted =
        |paper: &&'static Paper| args.paper.is_empty() || args.paper.iter().any(|name| name == paper.name);
    let papers: Vec<&'static Paper> = chapters().filter(wanted).collect();
    // A full report takes minutes: a path that cannot be written is told before.
    let part = Part::new(&args.output).map_err(|error| cannot_write(&args.output, &error))?;
    part.try_out().map_err(|error| cannot_write(&args.output, &error))?;
    let made = make(&papers, None, &args.effort.effort())?;
    let page = figures::html(&made, &how(&args.effort, &args.paper));
    part.put(page.as_bytes()).map_err(|error| cannot_write(&args.output, &error))?;
    let charts: usize = made.iter().flat_map(|made| &made.figures).map(|figure| figure.charts.len()).sum();
    let tables: usize = made.iter().flat_map(|made| &made.figures).map(|figure| figure.tables.len()).sum();
    rows::show(&format!(
        "{}: {} chapters, {tables} tables, {charts} charts, {:.1} MB\n",
        args.output.display(),
        made.len(),
        page.len() as f64 / 1e6
    ))?;
    Ok(ExitCode::from(u8::from(made.iter().any(|made: &Made| made.unanswered().next().is_some()))))
}

/// The command that makes the page again.
fn how(effort: &EffortArgs, papers: &[String]) -> String {
    let mut command = "skyhaul report -o report.html".to_owned();
    if effort.quick {
        command.push_str(" --quick");
    }
    if let Some(seeds) = effort.seeds {
        command.push_str(&format!(" --seeds {seeds}"));
    }
    if effort.seed != 1 {
        command.push_str(&format!(" --seed {}", effort.seed));
    }
    if !papers.is_empty() {
        command.push_str(&format!(" --paper {}", papers.join(",")));
    }
    command
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::request(format!("cannot write {}: {error}", path.display()))
}

/// A file that appears complete or not at all: written beside its place and moved there.
struct Part<'a> {
    place: &'a Path,
    beside: PathBuf,
}

impl<'a> Part<'a> {
    fn new(place: &'a Path) -> io::Result<Self> {
        let name = place.file_name().ok_or_else(|| io::Error::other("it is not the name of a file"))?;
        if fs::metadata(place).is_ok_and(|known| !known.is_file()) {
            return Err(io::Error::other("there is something that is not a file"));
        }
        let beside = format!(".{}.{}.part", name.to_string_lossy(), std::process::id());
        Ok(Part { place, beside: place.with_file_name(beside) })
    }

    fn try_out(&self) -> io::Result<()> {
        File::create_new(&self.beside)?;
        fs::remove_file(&self.beside)
    }

    fn put(&self, content: &[u8]) -> io::Result<()> {
        let written = File::create_new(&self.beside)
            .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&self.beside, self.place));
        if written.is_err() {
            // Most of it may be there; the first error is the one to tell.
            let _ = fs::remove_file(&self.beside);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(output: PathBuf) -> Args {
        let effort = EffortArgs { seeds: None, seed: 1, quick: true };
        Args { output, paper: vec!["hybic".to_owned()], effort }
    }

    #[test]
    fn a_report_replaces_the_old_one_and_leaves_nothing_beside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        fs::write(&path, "old").unwrap();
        run(args(path.clone())).unwrap();
        let page = fs::read_to_string(&path).unwrap();
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"), "{page}");
        assert!(page.contains("report.html --quick --paper hybic"), "{page}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_told_at_once_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("no/such/report.html"), PathBuf::from("/")]
        {
            let told = run(args(path.clone())).unwrap_err().to_string();
            assert!(told.starts_with(&format!("cannot write {}: ", path.display())), "{told}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
