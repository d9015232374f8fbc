//! Components that are too much for a compiler.

const SHELL: &str = r#"(component
    (instance $empty)
    (export "tidegate:sink/plugin@0.1.0" (instance $empty))
    (export "tidegate:sink/writer@0.1.0" (instance $empty))
    (export "tidegate:sink/committer@0.1.0" (instance $empty))
    (export "tidegate:sink/janitor@0.1.0" (instance $empty)))"#;

fn leb(mut value: usize, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

fn section(id: u8, content: &[u8], into: &mut Vec<u8>) {
    into.push(id);
    leb(content.len(), into);
    into.extend_from_slice(content);
}

/// A component whose names are right, around a module of `functions` times the same body.
fn around(functions: usize, body: &[u8]) -> Vec<u8> {
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    // One type: from i32 to nothing.
    section(1, &[1, 0x60, 1, 0x7f, 0], &mut module);
    let (mut types, mut code) = (Vec::new(), Vec::new());
    leb(functions, &mut types);
    types.resize(types.len() + functions, 0);
    leb(functions, &mut code);
    for _ in 0..functions {
        leb(body.len(), &mut code);
        code.extend_from_slice(body);
    }
    section(3, &types, &mut module);
    section(10, &code, &mut module);

    let shell = wat::parse_str(SHELL).unwrap();
    let (head, rest) = shell.split_at(8);
    let mut component = head.to_vec();
    section(1, &module, &mut component);
    component.extend_from_slice(rest);
    component
}

/// H29: each of many functions has very many variables.
pub(crate) fn many_locals(functions: usize, locals: usize) -> Vec<u8> {
    let mut body = vec![1];
    leb(locals, &mut body);
    body.extend([0x7f, 0x0b]);
    around(functions, &body)
}

/// H29: one function of `bytes` bytes, all of them blocks that are left if its argument says so.
pub(crate) fn huge_function(bytes: usize) -> Vec<u8> {
    let mut body = vec![0];
    while body.len() + 7 < bytes {
        // block; local.get 0; br_if 0; end
        body.extend([0x02, 0x40, 0x20, 0, 0x0d, 0, 0x0b]);
    }
    body.push(0x0b);
    around(1, &body)
}

/// H29: one branch table with very many targets.
pub(crate) fn branch_table(targets: usize) -> Vec<u8> {
    // local.get 0; br_table
    let mut body = vec![0, 0x20, 0, 0x0e];
    leb(targets, &mut body);
    body.resize(body.len() + targets + 1, 0);
    body.push(0x0b);
    around(1, &body)
}
