;; Gives the same memory for everything.
(func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32) (i32.const 5120))
