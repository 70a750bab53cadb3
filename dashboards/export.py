"""Plain HTTP beside the page: CSV of every panel, and a health check."""

from fastapi import FastAPI, Response

from dashboards.panels import board
from dashboards.site import Site
from dashboards.windows import seconds


def register(server: FastAPI, site: Site) -> None:
    """Add GET /csv/NAME.csv?window=5m and GET /healthz."""

    @server.get("/csv/{name}.csv", include_in_schema=False)
    def table(name: str, window: str = "") -> Response:
        rows = board.TABLES.get(name)
        if rows is None:
            return Response(f"{name!r}: no such table; expected one of {', '.join(board.TABLES)}\n", 404, media_type="text/plain")
        snapshot = site.feed.read_now(seconds(window))
        if snapshot is None or snapshot.overview is None:
            return Response(f"{site.source} could not be read yet; try again in a moment\n", 503, media_type="text/plain")
        return Response(board.to_csv(rows(snapshot.overview)), media_type="text/csv; charset=utf-8")

    @server.get("/healthz", include_in_schema=False)
    def health() -> Response:
        return Response("ok\n", media_type="text/plain")
