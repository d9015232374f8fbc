;; Takes random bytes in small pieces, without end.
(import "wasi:random/random@0.2.12" "get-random-bytes" (func $random (param i64 i32)))
(func (export "tidegate:sink/writer@0.1.0#write") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (loop $forever
    (global.set $heap (i32.const 8192))
    (call $random (i64.const 32768) (i32.const 4800))
    (br $forever))
  unreachable)
