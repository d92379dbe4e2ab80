#!/usr/bin/env python3
"""Makes a Python extension loadable by programs without Python: weaken_python_symbols.py IN OUT

Marks the undefined symbols of CPython (Py*, _Py*) in the dynamic symbol table of a 64-bit little-endian ELF library as
weak: the loader then sets undefined ones to 0 instead of rejecting the library. Calling one would crash, so only
functions that do not need Python may be used. Only the bindings of those symbols change."""

import pathlib
import struct
import sys

SHT_DYNSYM = 11
SHN_UNDEF = 0
STB_GLOBAL, STB_WEAK = 1, 2


def weaken(elf):
    """Changes `elf` (a bytearray) in place; returns the number of weakened symbols."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (sections_at,) = struct.unpack_from("<Q", elf, 0x28)
    size, count = struct.unpack_from("<HH", elf, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, sections_at + i * size) for i in range(count)]
    weakened = 0
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != SHT_DYNSYM:
            continue
        names_at = sections[link][4]
        for at in range(offset, offset + length, entry):
            name_offset, info, _, section = struct.unpack_from("<IBBH", elf, at)
            name_at = names_at + name_offset
            name = bytes(elf[name_at : elf.index(0, name_at)])
            if section == SHN_UNDEF and info >> 4 == STB_GLOBAL and name.startswith((b"Py", b"_Py")):
                elf[at + 4] = STB_WEAK << 4 | info & 0xF
                weakened += 1
    return weakened


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.splitlines()[0])
    elf = bytearray(pathlib.Path(sys.argv[1]).read_bytes())
    if weaken(elf) == 0:
        sys.exit(f"{sys.argv[1]}: no undefined symbol of CPython")
    pathlib.Path(sys.argv[2]).write_bytes(elf)


if __name__ == "__main__":
    main()
