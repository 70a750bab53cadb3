"""Runs cells, known ones from the cache, the others in worker processes."""

import multiprocessing
import os
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from pbkv.bench.cell import Cell, Result
from pbkv.bench.cellcache import CellCache
from pbkv.bench.progress import Progress

#: Cells given to the workers ahead of time, each.
_AHEAD = 4


def run_cells(cells: Iterable[Cell], cache: CellCache, jobs: int, progress: Progress | None = None) -> Mapping[Cell, Result]:
    """Results of all cells, by `cell.plain()`. Each is stored as soon as it is there; cells that are the same run once."""
    wanted = dict.fromkeys(cell.plain() for cell in cells)
    results: dict[Cell, Result] = {}
    for cell in wanted:
        known = cache.get(cell)
        if known is not None:
            results[cell] = known
    if progress:
        progress.known(len(results))
    missing = sorted((cell for cell in wanted if cell not in results), key=_neighbours)
    for cell, result in _work(missing, jobs):
        cache.put(cell, result)
        results[cell] = result
        if progress:
            progress.step()
    return results


def _neighbours(cell: Cell) -> tuple[object, ...]:
    """Cells that share workflows follow each other: a worker keeps what it made of them."""
    source = cell.source
    return (source.name, source.layout, source.options, cell.seed, cell.workflows, cell.page_size, cell.device_tokens)


def _work(cells: list[Cell], jobs: int) -> Iterable[tuple[Cell, Result]]:
    from pbkv.bench.run import run_cell

    if jobs <= 1:
        yield from ((cell, run_cell(cell)) for cell in cells)
        return
    # Spawned, not forked: a fork would copy threads of numeric libraries in whatever state they are.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        rest = iter(cells)
        running: dict[Future[Result], Cell] = {}
        while True:
            for cell in rest:
                running[pool.submit(run_cell, cell)] = cell
                if len(running) >= jobs * _AHEAD:
                    break
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            yield from ((running.pop(future), future.result()) for future in done)


def end_with_parent() -> None:
    """A worker waits for work for ever, also when whoever gives it was killed: it ends then."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()
