"""The hand type `emulator`: a hand-held game console, whose time passes inside calls alone."""
