;; Makes pollables and drops none.
(import "wasi:clocks/monotonic-clock@0.2.12" "subscribe-duration" (func $sleep (param i64) (result i32)))
(import "wasi:io/poll@0.2.12" "[method]pollable.block" (func $block (param i32)))
(import "wasi:io/poll@0.2.12" "[resource-drop]pollable" (func $drop (param i32)))
(func (export "tidegate:sink/writer@0.1.0#write") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (loop $forever (drop (call $sleep (i64.const 1000000000))) (br $forever))
  unreachable)
