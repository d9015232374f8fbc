;; Waits for a pollable that becomes ready in a hundred years.
(import "wasi:clocks/monotonic-clock@0.2.12" "subscribe-duration" (func $sleep (param i64) (result i32)))
(import "wasi:io/poll@0.2.12" "[method]pollable.block" (func $block (param i32)))
(import "wasi:io/poll@0.2.12" "[resource-drop]pollable" (func $drop (param i32)))
(func (export "tidegate:sink/writer@0.1.0#write") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (call $block (call $sleep (i64.const 3155760000000000000)))
  (global.get $ok))
