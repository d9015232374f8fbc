//! The protocol, enumerated: every state that a small pipeline can reach.
