"""A module of the user's package, rewritten to call its regions: edits of its text that leave every other line as the author wrote it."""
