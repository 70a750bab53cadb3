"""Workflows that have started and not ended or retired, with what was predicted for them and what came.

Live = its last workflow event is a start, or there is none in the past looked at and its last call was not final.
"""

from collector.views.query import IN_PAST, Query, code, named, names_of
from pbkv.events.schema import Namespace

#: Most workflows a screen is given, the most recently active first.
MAX_WORKFLOWS = 500

_START = code("workflow", "event", "start")

_CALLS = f"""
    SELECT workflow, count(*) AS calls, sum(prompt_tokens)::BIGINT AS prompt_tokens,
        sum(device_hit_tokens + host_hit_tokens) / nullif(sum(prompt_tokens), 0) AS hit_rate,
        max_by(step, (seq, idx)) AS step, max_by(agent, (seq, idx)) AS agent, max_by(final, (seq, idx)) AS final, max(t) AS t
    FROM raw.call WHERE {IN_PAST} AND workflow <> 0 GROUP BY workflow"""

_EVENTS = f"SELECT workflow, max_by(event, (seq, idx)) AS event, max(t) AS t FROM raw.workflow WHERE {IN_PAST} GROUP BY workflow"

_PREDICTIONS = f"""
    SELECT workflow, step, max_by(agent, (seq, idx)) AS agent, max_by(if(agent = 0, p_end, p), (seq, idx)) AS p
    FROM raw.prediction WHERE {IN_PAST} AND horizon = 1 AND position = 0 GROUP BY workflow, step"""

WORKFLOWS = Query(
    "workflows", "Live workflows with the agent predicted last, the agent that came, and the one predicted next",
    {
        "workflow": "workflow",
        "step": "step of its last call",
        "agent": "agent of its last call; NULL = no call has ended yet",
        "predicted_last": "agent that was predicted for that call; END = that no call would come; NULL = no prediction",
        "hit": "whether that prediction was right",
        "predicted_next": "agent predicted for the next call; END = that the workflow is over",
        "p_next": "probability of that prediction",
        "calls": "calls that ended",
        "prompt_tokens": "their prompt tokens",
        "hit_rate": "share of these found on device or host",
        "last": "time of its last event, UTC",
    },
    f"""WITH c AS ({_CALLS}), e AS ({_EVENTS}), p AS ({_PREDICTIONS}),
        live AS (
            SELECT coalesce(c.workflow, e.workflow) AS workflow, c.step, coalesce(c.agent, 0) AS agent, coalesce(c.calls, 0) AS calls,
                coalesce(c.prompt_tokens, 0) AS prompt_tokens, c.hit_rate, greatest(c.t, e.t) AS last
            FROM c FULL JOIN e ON c.workflow = e.workflow
            WHERE CASE WHEN e.event IS NULL THEN c.final = 0 ELSE e.event = {_START} END
            ORDER BY last DESC, workflow DESC LIMIT {MAX_WORKFLOWS})
        SELECT {named('l.workflow', 'w.text')} AS workflow, coalesce(l.step, 0) AS step, {named('l.agent')} AS agent,
            CASE WHEN b.agent = 0 THEN 'END' ELSE {named('b.agent')} END AS predicted_last, b.agent = l.agent AS hit,
            CASE WHEN n.agent = 0 THEN 'END' ELSE {named('n.agent')} END AS predicted_next, n.p::DOUBLE AS p_next,
            l.calls, l.prompt_tokens, l.hit_rate, l.last
        FROM live l CROSS JOIN ({names_of(Namespace.AGENT)})
        LEFT JOIN raw.name w ON w.src = $src AND w.id = l.workflow
        LEFT JOIN p n ON n.workflow = l.workflow AND n.step = l.step
        LEFT JOIN p b ON b.workflow = l.workflow AND b.step + 1 = l.step
        ORDER BY l.last DESC, l.workflow DESC""",
)
