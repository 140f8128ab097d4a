//! What a simulated run leaves behind for people to look at: a tape of the controller and a trace of the packets.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::rc::Rc;

use skyhaul_cc::tape::Tape;
use skyhaul_cc::units::Time;
use skyhaul_sim::trace::{JsonLines, Note, Observer};

use crate::failure::Failure;

/// Where to write it, if anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch<'a> {
    /// What the controller hears and answers.
    pub tape: Option<&'a Path>,
    /// What happens to each packet.
    pub trace: Option<&'a Path>,
}

/// The files, open.
pub struct Files<'a> {
    tape: Option<Output<'a>>,
    trace: Option<Trace<'a>>,
}

impl Watch<'_> {
    /// Whether anything is to be written.
    pub fn is_wanted(&self) -> bool {
        self.tape.is_some() || self.trace.is_some()
    }

    /// Opens the files for the only run of several that were asked for.
    pub fn open(&self, runs: usize) -> Result<Files<'_>, Failure> {
        if runs != 1 {
            let option = if self.tape.is_some() { "--tape" } else { "--trace" };
            return Err(Failure::request(format!(
                "{option} is for one run and this makes {runs}: give one controller, one cell and one seed"
            )));
        }
        if self.tape.is_some() && self.tape == self.trace {
            return Err(Failure::request("--tape and --trace name the same file; each wants its own"));
        }
        Ok(Files {
            tape: self.tape.map(Output::create).transpose()?,
            trace: self.trace.map(Output::create).transpose()?.map(Trace::new),
        })
    }
}

impl Files<'_> {
    /// Whether the controller has to be recorded.
    pub fn wants_tape(&self) -> bool {
        self.tape.is_some()
    }

    /// Who writes the trace.
    pub fn observer(&self) -> Option<Box<dyn Observer>> {
        let lines = self.trace.as_ref()?.lines.clone();
        Some(Box::new(Writer(lines)))
    }

    /// Writes the tape and ends the trace, whose observer has to be gone.
    pub fn finish(self, tape: Option<&Tape>) -> Result<(), Failure> {
        if let (Some(mut out), Some(tape)) = (self.tape, tape) {
            let written = write!(out.file, "{tape}").and_then(|()| out.file.flush());
            written.map_err(|error| out.failure(&error))?;
        }
        self.trace.map_or(Ok(()), Trace::finish)
    }
}

/// A file that is being written.
struct Output<'a> {
    path: &'a Path,
    file: BufWriter<File>,
}

impl<'a> Output<'a> {
    fn create(path: &'a Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
        Ok(Output { path, file: BufWriter::new(file) })
    }

    fn failure(&self, error: &io::Error) -> Failure {
        cannot_write(self.path, error)
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::request(format!("cannot write {}: {error}", path.display()))
}

/// A trace that the world writes and we end.
struct Trace<'a> {
    path: &'a Path,
    lines: Rc<RefCell<JsonLines<BufWriter<File>>>>,
}

/// The world's side of it.
struct Writer(Rc<RefCell<JsonLines<BufWriter<File>>>>);

impl<'a> Trace<'a> {
    fn new(out: Output<'a>) -> Self {
        Trace { path: out.path, lines: Rc::new(RefCell::new(JsonLines::new(out.file))) }
    }

    /// The world has to be gone.
    fn finish(self) -> Result<(), Failure> {
        let lines = Rc::into_inner(self.lines).map(RefCell::into_inner);
        let written = lines.map_or(Ok(()), |lines| lines.finish().map(drop));
        written.map_err(|error| cannot_write(self.path, &error))
    }
}

impl Observer for Writer {
    fn note(&mut self, at: Time, flow: usize, note: &Note) {
        self.0.borrow_mut().note(at, flow, note);
    }
}
