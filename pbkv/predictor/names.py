"""Agent ids and names: predictors that were made before a cache started speak of names, a cache of ids in the order it met them."""

from collections.abc import Sequence


class Roster:
    """Ids of agent names. The list it looks names up in is the cache's own (`CacheState.agent_names`): it grows and never changes else."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names: Sequence[str] = names
        self._ids: dict[str, int] = {}

    def bind(self, names: Sequence[str]) -> None:
        """From now on, ids are places in `names`."""
        self._names, self._ids = names, {}

    @property
    def names(self) -> Sequence[str]:
        """Name of each id."""
        return self._names

    def id(self, name: str) -> int | None:
        """Place of `name` in the list, None while the cache has not met that agent."""
        for n in range(len(self._ids), len(self._names)):
            self._ids[self._names[n]] = n
        return self._ids.get(name)
