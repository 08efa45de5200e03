//! The `tenon` program: arguments in, exit code out; everything else is in the library.

fn main() -> std::process::ExitCode {
    tenon::cli::run(std::env::args_os())
}
