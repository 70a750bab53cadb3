"""What a front end has of what-if: quick forecasts, grids, and the results that are kept."""

from dataclasses import dataclass
from pathlib import Path

from pbkv.whatif.question import Load
from pbkv.whatif.results import Results
from pbkv.whatif.service import Forecaster


@dataclass(frozen=True)
class WhatIf:
    """`source` as the operator named it. Grids have a process of their own, so that a knob that is moved meanwhile is answered at once."""

    source: str
    quick: Forecaster
    grids: Forecaster
    results: Results

    def close(self) -> None:
        """End both processes."""
        self.quick.close()
        self.grids.close()


def what_if(source: str, load: Load, state: Path) -> WhatIf:
    """Over `source`, read by `load`; results and cells are kept below the folder `state`. Nothing is started or written yet."""
    folder = state / "whatif"
    return WhatIf(source, Forecaster(load), Forecaster(load, cache=str(folder / "cells")), Results(folder / "results"))
