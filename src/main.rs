//! The `tenon` program: arguments in, exit code out; everything else is in the library.

fn main() {}
