//! The seam between the log and a disk: what the log asks of a directory, and nothing else.
