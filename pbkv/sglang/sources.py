"""Which text signals a SGLang server can give, and which of them its predictor was trained on."""

from dataclasses import dataclass
from typing import Any

from pbkv.errors import UsageError
from pbkv.predictor.signal import hidden_kind, ids_kind, is_served


@dataclass(frozen=True)
class Source:
    """A kind of signal; `runner` is the model runner whose hidden states it is made of, None = made of token ids."""

    kind: str
    runner: Any = None


def sources_of(ctx: Any) -> list[Source]:
    """The kinds this server can give, the better one first. Hidden states are at hand where every forward pass keeps the last row of each
    request, and where one forward pass gives one token.
    """
    model, args = ctx.model_config, ctx.server_args
    ids = Source(ids_kind(int(model.vocab_size)))
    if args.return_hidden_states_mode != "last" or args.speculative_algorithm or ctx.params.pp_size > 1:
        return [ids]
    kind = hidden_kind(str(model.hf_config.model_type), int(model.num_hidden_layers), int(model.hidden_size))
    return [Source(kind, ctx.tp_worker.model_runner), ids]


def source_for(wanted: str, sources: list[Source]) -> Source | None:
    """The source of the signals that a predictor was trained on; None when it was trained on none, or on the texts of traces. Raises
    UsageError when it was trained on those of another server.
    """
    if not is_served(wanted):
        return None
    found = next((source for source in sources if source.kind == wanted), None)
    if found is None:
        can = " or ".join(repr(source.kind) for source in sources)
        hint = "start it with --return-hidden-states-mode last, or " if wanted.startswith("hidden ") and len(sources) == 1 else ""
        raise UsageError(
            f"predictor: trained on the text signal {wanted!r}, this server gives {can}; {hint}name a predictor trained on its recordings"
        )
    return found
