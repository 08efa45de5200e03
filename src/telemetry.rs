//! What operators read about us: log lines on standard error, and the text form of metrics.
//!
//! Each room that counts something has its own metrics struct and registers it in the registry it is given.
//! Must never: decide anything, or write to standard output, which belongs to the commands.

use std::fmt;

use prometheus_client::{encoding::text::encode, registry::Registry};
use tracing_subscriber::{
    EnvFilter,
    fmt::{format::Writer, time::FormatTime},
};

use crate::clock::Clock;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text for people.
    #[default]
    Text,
    /// One JSON object a line, for collectors.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is not in the syntax of `tracing`.
    #[error("log filter {filter:?} cannot be read, write for example info or tenon=debug,warn")]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Somebody else has set up logging already.
    #[error("logging is set up already")]
    Twice,
}

/// Sends log lines to standard error, stamped by the clock. `filter` is in the syntax of `tracing`'s `EnvFilter`, such as `info`.
pub fn logs(format: LogFormat, filter: &str, clock: Clock) -> Result<(), LogError> {
    let parsed = EnvFilter::try_new(filter).map_err(|source| LogError::Filter {
        filter: filter.to_owned(),
        source,
    })?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_timer(Stamp(clock))
        .with_writer(std::io::stderr);
    let set = match format {
        LogFormat::Text => lines.with_ansi(false).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    set.map_err(|_| LogError::Twice)
}

struct Stamp(Clock);

impl FormatTime for Stamp {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{:.3}", self.0.now())
    }
}

/// Content type of [`metrics_text`].
pub const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The registry in the OpenMetrics text form.
pub fn metrics_text(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_cannot_be_read_is_named() {
        let clock = Clock::system();
        let error = logs(LogFormat::Text, "tenon=loud", clock).unwrap_err();
        assert!(error.to_string().contains("\"tenon=loud\""), "{error}");
    }
}
