"""Puts the explorer into the site: explore.html is ``jopeq.explorer.page``."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from jopeq.explorer import page


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page to the files that MkDocs copies and checks links against."""
    files.append(File.generated(config, "explore.html", content=page(home="index.html")))
    return files
