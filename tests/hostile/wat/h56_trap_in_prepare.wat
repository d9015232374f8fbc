;; Traps when it should promise.
(func (export "tidegate:sink/writer@0.1.0#prepare") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32) (result i32) unreachable)
