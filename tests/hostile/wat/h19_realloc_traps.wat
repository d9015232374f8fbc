;; Traps while the host lowers arguments.
(func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32) unreachable)
