"""Configuration of static files."""

from django.contrib.staticfiles.apps import StaticFilesConfig


class StaticFiles(StaticFilesConfig):
    """Excludes sources, and Tabler's style sheets that refer to images that are not installed."""

    ignore_patterns = [
        *StaticFilesConfig.ignore_patterns,
        "tabler-*.css",
        "tabler-*.css.map",
        "*.rtl.*",
        "*.esm.js*",
        "*.esm.min.js*",
        "*.umd.*",
        "browser-test-bundle.js",
        "*.ts",
        "*.ts.map",
        "src",
        "typings",
        "package.json",
        "*.md",
        "*.gz",
    ]
