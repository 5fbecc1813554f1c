"""Split functions as twins of live ones: what ``aotcompile.compile`` returns, without a generated module."""
