"""All stored questions by name, as `pbkv query SOURCE NAME` and the screens ask them."""

from collector.views.query import Query
from collector.views.sql.accuracy import ACCURACY
from collector.views.sql.evictions import EVICTIONS
from collector.views.sql.hit_rate import HIT_RATE, HIT_SERIES
from collector.views.sql.knobs import KNOB_CHANGES
from collector.views.sql.loss import LOSS
from collector.views.sql.occupancy import OCCUPANCY, OCCUPANCY_SERIES
from collector.views.sql.prefetches import PREFETCHES
from collector.views.sql.windows import WINDOWS
from collector.views.sql.workflows import WORKFLOWS

ALL: tuple[Query, ...] = (
    OCCUPANCY, OCCUPANCY_SERIES, HIT_RATE, HIT_SERIES, ACCURACY, EVICTIONS, PREFETCHES, WINDOWS, WORKFLOWS, KNOB_CHANGES, LOSS,
)
QUERIES: dict[str, Query] = {q.name: q for q in ALL}
