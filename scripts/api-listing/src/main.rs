//! Prints the public API in the rustdoc JSON files that it is given, one item a line.

use std::process::ExitCode;

use public_api::Builder;

fn main() -> ExitCode {
    for path in std::env::args_os().skip(1) {
        let builder = Builder::from_rustdoc_json(&path)
            .include_function_parameter_names(true)
            .omit_blanket_impls(true)
            .omit_auto_trait_impls(true)
            .omit_auto_derived_impls(true);
        match builder.build() {
            Ok(api) => println!("{api}"),
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
