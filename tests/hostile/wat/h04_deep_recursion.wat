;; Calls itself without end.
(func $deeper (param i64 i64 i64) (result i64)
  (i64.add (call $deeper (local.get 1) (local.get 2) (local.get 0)) (local.get 0)))
(func (export "tidegate:sink/writer@0.1.0#write") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (drop (call $deeper (i64.const 1) (i64.const 2) (i64.const 3)))
  (global.get $ok))
