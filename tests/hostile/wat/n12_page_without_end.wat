;; Every page of orphans has a next one.
(func (export "tidegate:sink/janitor@0.1.0#list-orphans")
  (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (i32.store (i32.const 4812) (i32.const 1))
  (i32.store (i32.const 4816) (i32.const 6000))
  (i32.store (i32.const 4820) (i32.const 1))
  (i32.const 4800))
(data (i32.const 6000) "n")
