"""What documents hold to offer a launch: the badge with its link, in their markup. Pure."""

from dataclasses import dataclass
from html import escape
from typing import Final

ALT: Final = "Launch on GPU Platform"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchBadge:
    """A launch link, and the addresses of the badge's two pictures."""

    link: str
    light: str
    dark: str

    @property
    def markdown(self) -> str:
        """The badge in Markdown."""
        return f"[![{ALT}]({self.light})]({self.link})"

    @property
    def html(self) -> str:
        """The badge in HTML, dark where the page's reader has a dark theme."""
        dark = f'<source media="(prefers-color-scheme: dark)" srcset="{escape(self.dark)}">'
        picture = f'<picture>{dark}<img src="{escape(self.light)}" alt="{ALT}" height="24"></picture>'
        return f'<a href="{escape(self.link)}">{picture}</a>'

    @property
    def rest(self) -> str:
        """The badge in reStructuredText."""
        return f".. image:: {self.light}\n   :target: {self.link}\n   :alt: {ALT}"
