;; Asks to be asked again, always.
(func (export "tidegate:sink/committer@0.1.0#commit")
  (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32 i32) (param $n i32) (result i32)
  (call $outcomes (local.get $n) (i32.const 4)))
