"""Deterministic prose for prompts, so that workflows differ and repeat exactly under the same seed."""

import random

_WORDS = (
    "account actor album archive bridge budget cache capital century chapter claim clause client coast column commit company compiler "
    "contract country course debt deploy district editor engine error evidence export field film filter founder function glacier harbor "
    "history import index island journal kernel lake league ledger library limit list market method minister module museum network node "
    "novel option orbit packet parser patch path player policy port premise prize proof query queue record region release report river "
    "route schema season segment series server signal singer source stack station storage stream style table test theory thread title "
    "token tower trade trial tunnel union valley value version village volume witness year"
).split()
_VERBS = "affects bounds calls cites contains crosses defines extends follows holds names needs precedes replaces supports".split()


def sentence(rng: random.Random) -> str:
    """One sentence of 30 to 60 bytes."""
    a, b, c = rng.sample(_WORDS, 3)
    return f"The {a} {b} {rng.choice(_VERBS)} the {c} of {rng.randint(1900, 2026)}."


def prose(rng: random.Random, length: int) -> str:
    """Sentences of about `length` bytes in all."""
    parts: list[str] = []
    total = 0
    while total < length:
        parts.append(sentence(rng))
        total += len(parts[-1]) + 1
    return " ".join(parts)
