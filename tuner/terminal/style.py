"""Where the parts of the view stand; a low terminal shows the devices and one other pane."""

STYLE = """
Screen { layout: vertical; overflow: hidden; background: ansi_default; }
#headline { height: 1; text-style: bold; text-overflow: ellipsis; text-wrap: nowrap; }
#warning { height: auto; max-height: 3; color: ansi_red; text-style: bold; display: none; }
#filter { dock: bottom; height: 1; margin-bottom: 1; display: none; border: none; }
.pane { border: round ansi_bright_black; border-title-style: bold; height: 1fr; min-height: 4; }
.pane:focus-within { border: round ansi_green; }
.pane .details { height: auto; max-height: 3; color: ansi_bright_black; }
RowTable { height: 1fr; background: ansi_default; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
#devices { height: auto; }
#trials { height: 2fr; }
#devices RowTable { height: auto; max-height: 13; }
RowTable:nocolor > .datatable--cursor { text-style: reverse; }
RowTable > .datatable--header { background: ansi_default; color: ansi_cyan; text-style: none; }
.-low .pane { display: none; }
.-low #devices RowTable { max-height: 5; }
.-low #devices .details { max-height: 2; }
.-low #devices, .-low .pane.-shown { display: block; }
Question, Help { align: center middle; background: transparent; }
.dialog { width: auto; max-width: 76; height: auto; border: round ansi_yellow; padding: 0 1; }
.dialog Static { width: auto; max-width: 72; }
"""
