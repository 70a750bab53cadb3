"""Styles. Two columns of short panels on a small terminal; three rows of framed panels with charts on a large one."""

CSS = """
Screen { layout: vertical; background: $background; }
HeaderLine { height: 1; background: $panel; padding: 0 1; }
Banner { height: 1; display: none; }
Footer { height: 1; }
#filter { display: none; height: 1; border: none; padding: 0 1; background: $panel; }
#filter.open { display: block; }

#grid { layout: grid; height: 1fr; grid-size: 2 4; grid-columns: 1fr 1fr; grid-rows: 5 5 5 1fr; grid-gutter: 0 1; }
.panel { border-top: solid $border; border-title-color: $foreground; border-title-style: bold; padding: 0; }
.panel { border-subtitle-color: $text-muted; }
.panel:focus, .panel:focus-within { border-top: solid $accent; border-title-color: $accent; }
#workflows { column-span: 2; }
#hits, #knobs, #workflows { layout: vertical; }
HitNumbers { height: 4; }
#hit-chart { display: none; height: 1fr; }
#knob-note { display: none; height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
Banner { text-wrap: nowrap; text-overflow: ellipsis; }
#workflow-empty { display: none; }

.-charts #grid { grid-size: 6 3; grid-columns: 1fr 1fr 1fr 1fr 1fr 1fr; grid-rows: 15 10 1fr; grid-gutter: 0 1; }
.-charts .panel { border: round $border; padding: 0 1; }
.-charts .panel:focus, .-charts .panel:focus-within { border: round $accent; }
.-charts #cache, .-charts #hits { column-span: 3; }
.-charts #accuracy, .-charts #evictions, .-charts #prefetch, .-charts #knobs { column-span: 2; }
.-charts #workflows { column-span: 4; }
.-charts #hit-chart { display: block; }

.-dim #grid { opacity: 45%; }

LiveTable { height: 1fr; background: transparent; scrollbar-size: 1 1; overflow-x: hidden; }
LiveTable > .datatable--header { background: transparent; color: $text-muted; text-style: none; }
LiveTable > .datatable--cursor { background: transparent; }
LiveTable:focus > .datatable--cursor { background: $accent 25%; }
LiveTable > .datatable--header-hover, LiveTable > .datatable--hover { background: $accent 10%; }
#knob-table { scrollbar-size: 0 0; }
#knob-log { display: none; height: 1fr; }
.-charts #knob-table { height: 8; }
.-charts #knob-log { display: block; }

PlotWidget > .plot--axis { color: $border; }
PlotWidget > .plot--tick { color: $text-muted; text-style: none; }

ModalScreen { align: center middle; background: $background 70%; }
#edit { width: 74; max-width: 100%; height: auto; border: round $accent; background: $panel; padding: 0 1; }
#edit Input { margin: 1 0 0 0; background: $background; width: 100%; }
#edit-error { height: auto; min-height: 2; }
Tune { align: left top; background: $background; layout: vertical; }
#tune-basis { height: 1; background: $panel; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
#tune-knobs { height: auto; padding: 0 1; margin: 0 0 1 0; }
#tune-value { display: none; height: 1; border: none; padding: 0 1; margin: 0 1; background: $panel; }
#tune-value.open { display: block; }
#tune-staged { height: auto; max-height: 2; padding: 0 1; }
#tune-figures { height: 1fr; padding: 0 1; margin: 1 0 0 0; }
#tune-state { height: auto; max-height: 3; padding: 0 1; }
WhatIfScreen { align: left top; background: $background; layout: vertical; }
#grid-basis { height: 1; background: $panel; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
#grid-form { grid-size: 2; grid-rows: 1; height: auto; grid-gutter: 0 1; padding: 0 1; }
.-charts #grid-form { grid-size: 3; }
.field { height: 1; width: 1fr; }
.field Label { width: 14; height: 1; }
.field Input { width: 1fr; height: 1; border: none; padding: 0 1; background: $panel; }
.field Input:focus { background: $accent 25%; }
#grid-progress { height: auto; max-height: 3; min-height: 1; padding: 0 1; }
#grid-pane { height: 1fr; padding: 0 1; border-top: solid $border; }
#grid-pane:focus, #grid-pane:focus-within { border-top: solid $accent; }
#grid-caption { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
#grid-curve, #grid-map { height: 1fr; }
#help { width: 76; max-width: 100%; height: auto; max-height: 100%; border: round $accent; background: $panel; padding: 0 1; }
"""
