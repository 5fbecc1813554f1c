"""The meaning of a `Program`, executed plainly: what generated code is compared with in tests, never what runs in production."""
