"""Messages known to be missing from the stream, whenever that was: a number on the screen that they touch may be older."""

from collector.views.query import Query

LOSS = Query(
    "loss", "Lost messages of the stream",
    {"gaps": "ranges of lost messages", "messages": "messages in them"},
    "SELECT count(*) AS gaps, coalesce(sum(messages), 0)::BIGINT AS messages FROM raw.loss WHERE src = $src",
)
