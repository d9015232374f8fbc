;; strings: utf16
;; An error whose message is half a surrogate pair.
(data (i32.const 6000) "\61\00\00\d8\62\00")
(func (export "tidegate:sink/writer@0.1.0#write") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (i32.store (i32.const 4800) (i32.const 1))
  (i32.store8 (i32.const 4804) (i32.const 1))
  (i32.store (i32.const 4808) (i32.const 6000))
  (i32.store (i32.const 4812) (i32.const 0))
  (i32.store (i32.const 4816) (i32.const 6000))
  (i32.store (i32.const 4820) (i32.const 3))
  (i32.const 4800))
