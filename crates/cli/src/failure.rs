//! Why a command ended without a result, and the exit status that says so.

use std::fmt;
use std::process::ExitCode;

/// A message for the user and the exit status that goes with it.
#[derive(Debug)]
pub struct Failure {
    message: String,
    code: u8,
}

#[allow(dead_code, reason = "each command uses the part of it that it needs")]
impl Failure {
    /// The request could not be carried out: bad input, missing rights, a missing program. Exit status 2.
    pub fn request(message: impl fmt::Display) -> Failure {
        Failure { message: message.to_string(), code: 2 }
    }

    /// The request was carried out and a check failed: a wrong checksum, an invalid run. Exit status 1.
    pub fn check(message: impl fmt::Display) -> Failure {
        Failure { message: message.to_string(), code: 1 }
    }

    /// The exit status for the shell.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<skyhaul_live::netns::NetnsError> for Failure {
    fn from(error: skyhaul_live::netns::NetnsError) -> Failure {
        Failure::request(error)
    }
}
