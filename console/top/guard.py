"""A fault in one part of the screen is logged and shown, and every other part goes on."""

from asyncio import CancelledError
from typing import Protocol, cast

from textual.app import App
from textual.message import Message
from textual.message_pump import MessagePump


class TakesFaults(Protocol):
    """The app, as its parts see it."""

    def fault(self, error: Exception) -> None:
        """Log and show an error of the app's own."""
        ...


class Guarded(MessagePump):
    """Mixed into a widget, screen or app: an error in a message handler ends that handler only. Textual's default ends the app."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except CancelledError:
            raise
        except Exception as error:  # whatever it is, the operator keeps the screen
            report(self, error)


def app_of(part: MessagePump) -> App[None]:
    """The app that `part` belongs to."""
    return cast(App[None], part.app)  # pyright: ignore[reportUnknownMemberType]


def report(part: MessagePump, error: Exception) -> None:
    """Tell the app of `part` about a fault."""
    cast(TakesFaults, app_of(part)).fault(error)


def has_charts(part: MessagePump) -> bool:
    """Whether the terminal is large enough for frames and charts."""
    return app_of(part).has_class("-charts")
