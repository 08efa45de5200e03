//! The one place that writes to standard output and standard error.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Writes lines. Once nobody reads any more (a closed pipe), it writes nothing.
pub(super) struct Printer {
    to: Box<dyn Write>,
    terminal: bool,
    closed: bool,
}

impl Printer {
    pub(super) fn stdout() -> Self {
        let terminal = io::stdout().is_terminal();
        Self {
            to: Box::new(io::stdout()),
            terminal,
            closed: false,
        }
    }

    pub(super) fn stderr() -> Self {
        let terminal = io::stderr().is_terminal();
        Self {
            to: Box::new(io::stderr()),
            terminal,
            closed: false,
        }
    }

    /// Whether a person looks at a screen.
    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
    }

    pub(super) fn line(&mut self, text: impl Display) {
        self.text(&format!("{text}\n"));
    }

    pub(super) fn text(&mut self, text: &str) {
        if self.closed {
            return;
        }
        let written = self
            .to
            .write_all(text.as_bytes())
            .and_then(|()| self.to.flush());
        self.closed = written.is_err();
    }
}
