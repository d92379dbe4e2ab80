"""Copies a GGUF file with changed metadata, for tests of files with wrong metadata."""

import pathlib

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
ALIGNMENT = 32


def edit_gguf(source, target, changes=None, drop=()):
    """`changes`: key -> (type, bytes) of a scalar; new keys are added. Tensor data is unchanged."""
    changes = dict(changes or {})
    data = memoryview(pathlib.Path(source).read_bytes())
    integer = lambda at, size: int.from_bytes(data[at : at + size], "little")  # noqa: E731

    def end_of(kind, at):
        if kind == STRING:
            return at + 8 + integer(at, 8)
        if kind != ARRAY:
            return at + SIZES[kind]
        inner, count, at = integer(at, 4), integer(at + 4, 8), at + 12
        for _ in range(count):
            at = end_of(inner, at)
        return at

    def pair(key, kind, value):
        return len(key).to_bytes(8, "little") + key.encode() + kind.to_bytes(4, "little") + value

    tensors, pairs, at = integer(8, 8), integer(16, 8), 24
    kept = []
    for _ in range(pairs):
        begin, length = at, integer(at, 8)
        key = bytes(data[at + 8 : at + 8 + length]).decode()
        at = end_of(integer(at + 8 + length, 4), at + 12 + length)
        if key in changes:
            kept.append(pair(key, *changes.pop(key)))
        elif key not in drop:
            kept.append(bytes(data[begin:at]))
    kept += [pair(key, *value) for key, value in changes.items()]
    begin = at
    for _ in range(tensors):
        at += 8 + integer(at, 8)
        at += 4 + 8 * integer(at, 4) + 12
    aligned = lambda size: (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT  # noqa: E731
    head = bytes(data[:16]) + len(kept).to_bytes(8, "little") + b"".join(kept) + bytes(data[begin:at])
    with open(target, "wb") as out:
        out.write(head.ljust(aligned(len(head)), b"\0"))
        out.write(data[aligned(at) :])
