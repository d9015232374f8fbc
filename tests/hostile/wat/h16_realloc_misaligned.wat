;; Memory for arguments is not aligned.
(func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32)
  (i32.add (call $alloc (i32.add (local.get $size) (i32.const 16))) (i32.const 1)))
