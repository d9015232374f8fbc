;; The answer begins four bytes before the end of memory.
(func (export "tidegate:sink/writer@0.1.0#write") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32) (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 4)))
