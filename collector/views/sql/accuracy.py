"""Was the agent predicted `horizon` steps ahead the one that was called?

The outcome of a prediction made at step s for horizon h is the call at step s + h, or END when the workflow ended at step
s + h - 1. Horizons beyond an END have no outcome and are not scored: counting them would reward a predictor for long
workflows' tails. An outcome counts in the range in which it became known; its prediction may be older.
"""

from collector.views.query import IN_PAST, IN_ROLLED, Query, code

_END = code("workflow", "event", "end")

#: (workflow, step) -> what happened there: an agent, or 0 for END. `place` orders events; END comes after a call of the same message.
_OUTCOMES = f"""
    SELECT workflow, step, agent, seq * 2 AS place, t FROM raw.call WHERE {IN_PAST} AND workflow <> 0
    UNION ALL
    SELECT workflow, step + 1, 0, seq * 2 + 1, t FROM raw.call WHERE {IN_PAST} AND workflow <> 0 AND final = 1
    UNION ALL
    SELECT workflow, steps, 0, seq * 2 + 1, t FROM raw.workflow WHERE {IN_PAST} AND event = {_END}"""

ACCURACY = Query(
    "accuracy", "Top-1 accuracy of the predicted next agents by horizon, of outcomes that became known in the range",
    {
        "horizon": "steps ahead, from 1",
        "scored": "predictions whose outcome is known",
        "correct": "of these, predictions that named it",
        "end_share": "share of outcomes that were END",
    },
    f"""SELECT p.horizon, count(*) AS scored, count(*) FILTER (p.agent = o.agent) AS correct,
        count(*) FILTER (o.agent = 0) / count(*) AS end_share
        FROM (SELECT workflow, step + horizon AS target, horizon, agent, seq * 2 AS place FROM raw.prediction
              WHERE {IN_PAST} AND position = 0) p
        ASOF JOIN ({_OUTCOMES}) o ON p.workflow = o.workflow AND p.target = o.step AND p.place <= o.place
        WHERE o.t > make_timestamp($t0) GROUP BY p.horizon ORDER BY p.horizon""",
    f"""SELECT horizon, sum(scored)::BIGINT AS scored, sum(correct)::BIGINT AS correct, sum(ends) / sum(scored) AS end_share
        FROM raw.roll_accuracy_{{w}} WHERE {IN_ROLLED} GROUP BY horizon ORDER BY horizon""",
)
