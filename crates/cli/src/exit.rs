//! What the program's exit code tells.

use std::process::ExitCode;

/// How a command ended. The numbers are a promise: scripts branch on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is as it should be.
    Fine,
    /// Something went wrong that none of the others tells.
    Fault,
    /// The arguments, the configuration or the keys' variables are at fault: nothing was tried.
    Usage,
    /// Nothing can serve now: quota or budget spent, provider down. Time may help.
    NotNow,
    /// The ledger is not there, or not the one that was expected: its caps began anew.
    NewLedger,
    /// Somebody has to act: a key is dead.
    DeadKey,
}

impl Exit {
    /// The number that the shell sees.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Fault => 1,
            Self::Usage => 2,
            Self::NotNow => 3,
            Self::NewLedger => 4,
            Self::DeadKey => 5,
        }
    }
}

/// For `--help`.
pub(crate) const TABLE: &str = "\
Exit codes:
  0  all is as it should be
  1  something went wrong
  2  arguments, configuration or keys are at fault; nothing was tried
  3  nothing can serve now: quota or budget spent, provider down; time may help
  4  the ledger is not there, or not the expected one: its caps began anew
  5  somebody has to act: a key is dead

Data goes to standard output, talk to standard error. NO_COLOR and RUST_LOG are respected.";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_code_once() {
        let all =
            [Exit::Fine, Exit::Fault, Exit::Usage, Exit::NotNow, Exit::NewLedger, Exit::DeadKey];
        for (number, exit) in all.into_iter().enumerate() {
            assert_eq!(usize::from(exit.code()), number);
            assert_eq!(TABLE.matches(&format!("\n  {number}  ")).count(), 1, "{exit:?}");
        }
    }
}
