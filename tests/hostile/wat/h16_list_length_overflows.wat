;; A list of 2^32 - 1 rejects.
(func (export "tidegate:sink/writer@0.1.0#write") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (i32.store (i32.const 4800) (i32.const 0))
  (i32.store (i32.const 4804) (i32.const 8192))
  (i32.store (i32.const 4808) (i32.const -1))
  (i32.const 4800))
