;; strings: utf16
;; A UTF-16 message at an odd address.
(data (i32.const 6000) "\61\00\62\00\63\00")
(func (export "tidegate:sink/writer@0.1.0#write") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (i32.store (i32.const 4800) (i32.const 1))
  (i32.store8 (i32.const 4804) (i32.const 1))
  (i32.store (i32.const 4808) (i32.const 6000))
  (i32.store (i32.const 4812) (i32.const 0))
  (i32.store (i32.const 4816) (i32.const 6001))
  (i32.store (i32.const 4820) (i32.const 2))
  (i32.const 4800))
