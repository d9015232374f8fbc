;; Calls the host while the host lowers arguments.
(import "tidegate:sink/metrics@0.1.0" "counter-add" (func $count (param i32 i32 i32 i32 i64)))
(func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32)
  (call $count (i32.const 6000) (i32.const 1) (i32.const 0) (i32.const 0) (i64.const 1))
  (call $alloc (local.get $size)))
(data (i32.const 6000) "a")
