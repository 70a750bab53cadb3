"""What all pages of one web server share."""

from dataclasses import dataclass
from functools import cached_property

from dashboards.feed import Feed
from dashboards.knobs.watch import Watch
from dashboards.whatif.runs import Runs
from pbkv.whatif.front import WhatIf


@dataclass(frozen=True)
class Site:
    """`page_token`: what a visitor has to type before an edit is passed on; None on loopback, where reaching the page is enough."""

    source: str
    feed: Feed
    watch: Watch
    readonly: bool
    desk: WhatIf
    page_token: str | None = None

    @cached_property
    def runs(self) -> Runs:
        """The grids of all pages."""
        return Runs(self.desk)

    def start(self) -> None:
        self.feed.start()
        self.watch.start()

    def stop(self) -> None:
        self.watch.stop()
        self.feed.stop()
        self.desk.close()
