;; Asks what time it is, without end.
(import "wasi:clocks/monotonic-clock@0.2.12" "now" (func $now (result i64)))
(func (export "tidegate:sink/writer@0.1.0#write") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (loop $forever (drop (call $now)) (br $forever))
  unreachable)
