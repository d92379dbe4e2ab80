// A target needs a source; this one exists only for pch.h.
