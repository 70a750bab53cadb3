"""Questions with arguments: table macros that every source brings, for `pbkv query` and other SQL clients."""

#: name -> (arguments, what it answers, body).
MACROS: dict[str, tuple[str, str, str]] = {
    "calls_of": (
        "workflow_name", "calls of a workflow in order, with where their prompt tokens were found",
        """SELECT server, step, agent, t, prompt_tokens, device_hit_tokens, host_hit_tokens, recomputed_tokens, output_tokens, ttft_ms,
        e2e_ms, status FROM call WHERE workflow = workflow_name ORDER BY server, epoch, rank, seq, idx""",
    ),
    "victims_of": (
        "workflow_name", "evictions of nodes that a workflow touched last",
        """SELECT server, t, node, tokens, from_tier, to_tier, decision, score, idle_ms, reuse FROM eviction
        WHERE workflow = workflow_name ORDER BY server, epoch, rank, seq, idx""",
    ),
    "agents_between": (
        "from_t, to_t", "calls, hit rate and mean time to first token of each agent in a time range",
        """SELECT server, agent, count(*) AS calls, sum(device_hit_tokens + host_hit_tokens) / nullif(sum(prompt_tokens), 0) AS hit_rate,
        avg(ttft_ms) FILTER (status = 'done') AS ttft_ms FROM call WHERE t > from_t::TIMESTAMP AND t <= to_t::TIMESTAMP
        GROUP BY server, agent ORDER BY server, calls DESC, agent""",
    ),
}


def macro_statements() -> list[str]:
    """Statements that (re)make the macros; the views for people must exist."""
    statements: list[str] = []
    for name, (arguments, meaning, body) in MACROS.items():
        statements.append(f"CREATE OR REPLACE MACRO {name}({arguments}) AS TABLE {body}")
        statements.append(f"COMMENT ON MACRO TABLE {name} IS '{meaning}'")
    return statements
