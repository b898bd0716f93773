"""The hand type `android`: a phone, by `adb`, with the members of the computer tools."""
