"""One colour per state, the same hues as on the web page. Okabe-Ito: told apart with any colour vision, and never by colour alone."""

from textual.theme import Theme

TEXT = "#e6e9ee"
MUTED = "#8b95a5"
FAINT = "#39434f"
#: Behind the line under the cursor.
CURSOR = "#1b3444"

ACTIVE = "#56b4e9"
RETIRED = "#e69f00"
LOCKED = "#d55e00"
FREE = "#39434f"
DEVICE = "#2fb88c"
HOST = "#cc79a7"

GOOD = "#2fb88c"
WARN = "#f0e442"
BAD = "#e8743b"

THEME = Theme(
    "pbkv", primary=ACTIVE, secondary=MUTED, accent=ACTIVE, foreground=TEXT, background="#0f1318", surface="#0f1318", panel="#171c23",
    success=GOOD, warning=WARN, error=BAD, dark=True,
    variables={"footer-key-foreground": ACTIVE, "footer-background": "#171c23", "border": "#2a323d", "border-blurred": "#2a323d"},
)
