//! The commands: arguments in, exit code out. All printing goes through one writer.
//!
//! Exit codes: 0 all is well; 1 it ran and the result is not; 2 usage or bad input, told in one line.

mod crds;
mod lab;
mod live;
mod print;
mod table;

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand, error::ErrorKind};

use self::print::Printer;

#[derive(Debug, Parser)]
#[command(
    name = "tenon",
    version,
    about = "A Kubernetes node autoscaler that speaks Karpenter's API"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a whole cluster in memory through a scenario and watch nodes come and go.
    Lab(lab::Args),
    /// Print the CustomResourceDefinitions, or write them to a folder.
    Crds(crds::Args),
}

/// What went wrong with a command.
#[derive(Debug)]
enum Failure {
    /// It ran, and the result is not what it should be.
    Result(String),
    /// Bad input or usage.
    Input(String),
}

/// Runs the program on its arguments, the program's name first.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args: Vec<OsString> = args.into_iter().collect();
    // `cargo lab -- --seed 7` arrives with the separator.
    if args.get(1).is_some_and(|a| a == "lab") && args.get(2).is_some_and(|a| a == "--") {
        args.remove(2);
    }
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let done = match cli.command {
        Command::Lab(args) => lab::run(&args),
        Command::Crds(args) => crds::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Result(text)) => {
            Printer::stderr().line(format_args!("tenon: {text}"));
            ExitCode::from(1)
        }
        Err(Failure::Input(text)) => {
            Printer::stderr().line(format_args!("tenon: {text}"));
            ExitCode::from(2)
        }
    }
}

fn usage(error: &clap::Error) -> ExitCode {
    let asked = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    let mut printer = if asked {
        Printer::stdout()
    } else {
        Printer::stderr()
    };
    printer.text(&error.render().to_string());
    if asked {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(2)
    }
}
