"""Which of the installed front-end files are served."""

from django.contrib.staticfiles.apps import StaticFilesConfig


class StaticFiles(StaticFilesConfig):
    """Leaves out sources, and those style sheets of Tabler that need pictures which nothing here shows."""

    ignore_patterns = [
        *StaticFilesConfig.ignore_patterns,
        "tabler-*.css",
        "tabler-*.css.map",
        "*.rtl.*",
        "*.esm.*",
        "*.ts",
        "*.ts.map",
        "src",
        "typings",
        "package.json",
        "*.md",
        "*.gz",
    ]
