// The shared library has no code of its own: it is the engine's modules under one name (cmake/TactusInstall.cmake).
