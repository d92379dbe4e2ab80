// The source that a target must have: this one is only there for pch.h.
