//! `tenon crds`.

use std::path::PathBuf;

use super::{Failure, print::Printer};
use crate::api::crd;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folder to write one file for each kind to, instead of printing them.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let Some(folder) = &args.out else {
        let documents: Vec<String> = crd::all().iter().map(crd::yaml).collect();
        Printer::stdout().text(&documents.join("---\n"));
        return Ok(());
    };
    let complain = |at: &PathBuf| {
        let at = at.display().to_string();
        move |e: std::io::Error| Failure::Input(format!("{at}: {e}"))
    };
    std::fs::create_dir_all(folder).map_err(complain(folder))?;
    for crd in crd::all() {
        let file = folder.join(crd::file_name(&crd));
        std::fs::write(&file, crd::yaml(&crd)).map_err(complain(&file))?;
    }
    Ok(())
}
