;; Polls pollables that are ready at once, without end.
(import "wasi:clocks/monotonic-clock@0.2.12" "subscribe-duration" (func $sleep (param i64) (result i32)))
(import "wasi:io/poll@0.2.12" "[method]pollable.block" (func $block (param i32)))
(import "wasi:io/poll@0.2.12" "[resource-drop]pollable" (func $drop (param i32)))
(func (export "tidegate:sink/writer@0.1.0#write") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (local $p i32)
  (loop $forever
    (local.set $p (call $sleep (i64.const 0)))
    (call $block (local.get $p))
    (call $drop (local.get $p))
    (br $forever))
  unreachable)
