"""From entries to split functions and captured variants: splitting in rounds, and the recording run that says what arrives at each region."""
