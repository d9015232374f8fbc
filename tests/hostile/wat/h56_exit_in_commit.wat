;; Says goodbye with success instead of an answer.
(import "wasi:cli/exit@0.2.12" "exit" (func $exit (param i32)))
(func (export "tidegate:sink/committer@0.1.0#commit")
  (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32 i32) (param $n i32) (result i32)
  (call $exit (i32.const 0))
  (call $outcomes (local.get $n) (i32.const 0)))
