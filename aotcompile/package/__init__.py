"""The package stage: from what was built to ``generated/<package>/``.

    discover.package_source   the files of the user's package
    contents.package_contents everything to be written, as a mapping (rewrite.module makes the modules, manifest the manifest)
    writer.write_package      all of it to disk, or nothing
    freshness.check/diff/clean is it still what a build would write

Codes: AOT610 to AOT613 contents, AOT620 to AOT622 writing, AOT630 to AOT638 freshness.
"""
