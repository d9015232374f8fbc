#!/bin/sh
# Stands before rustc for the crates of this workspace alone (RUSTC_WORKSPACE_WRAPPER): has their branches and comparisons
# counted for libFuzzer. What they depend on stays as it was built for the tests. Build scripts and plugins are left alone:
# they are not linked with the fuzzer.
case " $* " in
*" build_script_"* | *" --crate-type proc-macro "* | *" --target wasm32"*) exec "$@" ;;
*" --crate-name tidegate_"*)
    exec "$@" -Cpasses=sancov-module -Ccodegen-units=1 \
        -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
        -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares
    ;;
*) exec "$@" ;;
esac
