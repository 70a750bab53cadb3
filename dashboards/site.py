"""What all pages of one web server share."""

from dataclasses import dataclass

from dashboards.feed import Feed
from dashboards.knobs.watch import Watch


@dataclass(frozen=True)
class Site:
    """`page_token`: what a visitor has to type before an edit is passed on; None on loopback, where reaching the page is enough."""

    source: str
    feed: Feed
    watch: Watch
    readonly: bool
    page_token: str | None = None

    def start(self) -> None:
        self.feed.start()
        self.watch.start()

    def stop(self) -> None:
        self.watch.stop()
        self.feed.stop()
