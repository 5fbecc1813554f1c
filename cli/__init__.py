"""The command line. Installs as ``aotcompile.cli`` (see ``[tool.setuptools]`` in pyproject.toml); modules here import one another relatively."""
