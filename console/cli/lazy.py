"""A command group whose commands are imported when they run, so that `pbkv --help` costs no more than the argument parser."""

import importlib
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


@dataclass(frozen=True)
class Lazy:
    """Where a command lives: a function for one command, a typer.Typer for a group."""

    module: str
    attribute: str
    summary: str

    @property
    def present(self) -> bool:
        """Whether its module is installed (front ends can be installed without each other)."""
        try:
            return find_spec(self.module) is not None
        except ModuleNotFoundError:
            return False

    def load(self, name: str) -> Any:
        target = getattr(importlib.import_module(self.module), self.attribute)
        if not isinstance(target, typer.Typer):
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(name)(target)
            target = app
        command = get_command(target)
        command.name = name
        return command


class LazyGroup(TyperGroup):
    """Shows placeholders in help and completion; resolving a command for a run loads the real one."""

    table: ClassVar[dict[str, Lazy]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, lazy in self.table.items():
            if lazy.present:
                self.add_command(TyperCommand(name, help=lazy.summary, rich_markup_mode=None))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            command = self.table[name].load(name)
        return name, command, rest
