"""Applied knob changes. People make them, so the table is short and is read from its start."""

from collector.views.query import Query, named, names_of, text
from pbkv.events.schema import Namespace

KNOB_CHANGES = Query(
    "knob_changes", "Applied knob changes, newest first",
    {
        "t": "time the change took effect, UTC",
        "version": "knob version after it",
        "step": "scheduler step it took effect at",
        "name": "knob",
        "old": "value before",
        "new": "value after",
        "actor": "who asked",
        "source": "what caused it: manual, revert, expiry, guard",
        "reason": "why",
    },
    f"""SELECT t, version, sched_step AS step, {named('k.name')} AS name, {named('k.old')} AS old, {named('k.new')} AS new,
        {named('k.actor')} AS actor, {text('knob', 'source', 'k.source')} AS source, {named('k.reason')} AS reason
        FROM (SELECT * FROM raw.knob WHERE src = $src AND t <= make_timestamp($t1) ORDER BY version DESC, seq DESC, idx LIMIT 100) k
        CROSS JOIN ({names_of(Namespace.KNOB)})
        ORDER BY version DESC, seq DESC, idx""",
)
