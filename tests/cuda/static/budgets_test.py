#!/usr/bin/env python3
"""What the CUDA compiler made of each kernel: registers, shared memory and stack within the budgets of budgets.txt, and
the instructions that it must have. Needs no card.

  budgets_test.py ARCHIVE [ARCH...]   ARCHIVE: the static library of the kernels; exit status 77 if nothing can be
                                      checked. ARCH: what it must have code for, as in 90a
  budgets_test.py ARCHIVE --write     adds a row for each kernel that budgets.txt lacks
"""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TABLE = HERE / "budgets.txt"
DISASSEMBLED = ("sm_90a", "sm_120a", "sm_80")  # the first one that is there: disassembly takes a dozen seconds each
RESERVING = 90  # from this architecture on the compiler keeps some of each block's shared memory for itself
RESERVED_SHARED = 1024  # bytes
SKIPPED = 77
INSTRUCTIONS = {  # by their names in machine code
    "mma": re.compile(r"\b[A-Z]MMA\."),
    "ldmatrix": re.compile(r"\bLDSM\."),
    "cp.async": re.compile(r"\bLDGSTS\."),
    "ld.nc": re.compile(r"\bLDG\.\S*CONSTANT"),
}
USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")

Budget = collections.namedtuple("Budget", "registers shared contains")


class Kernel:
    """The most that any type of a kernel uses on any architecture, and the instructions that any type has on one."""

    def __init__(self):
        self.registers = self.shared = self.stack = 0
        self.worst = ""  # the architecture of `registers`
        self.contains = set()


def name_of(symbol):
    """The function of a mangled name: _ZN6tactus..12RmsNormKernelIfEEv... is RmsNormKernel."""
    at = symbol.find("_ZN") + 3 if "_ZN" in symbol else symbol.find("_Z") + 2
    name = symbol
    while match := re.compile(r"\d+").match(symbol, at):
        at = match.end() + int(match[0])
        name = symbol[match.end() : at]
    return name


def file_of(member):
    """dense of libkernels.a:dense.cu.o"""
    return re.sub(r"\.cu(\.o)?$", "", member.strip(" :").rsplit(":", 1)[-1])


def number_of(architecture):
    """90 of sm_90a"""
    return int(re.sub(r"\D", "", architecture))


def read_usage(text, architecture, kernels):
    """Adds what `cuobjdump -res-usage` prints."""
    file = function = ""
    for line in text.splitlines():
        if line.startswith("member "):
            file = file_of(line)
        elif match := re.match(r"\s*Function (\S+):$", line):
            function = name_of(match[1])
        elif (match := USAGE.search(line)) and function:
            registers, stack, shared, local = map(int, match.groups())
            if shared >= RESERVED_SHARED and number_of(architecture) >= RESERVING:
                shared -= RESERVED_SHARED
            kernel = kernels[f"{file}/{function}"]
            if registers > kernel.registers:
                kernel.registers, kernel.worst = registers, architecture
            kernel.shared = max(kernel.shared, shared)
            kernel.stack = max(kernel.stack, stack, local)


def read_code(text, kernels):
    """Adds what `cuobjdump -sass` prints."""
    file, kernel = "", None
    for line in text.splitlines():
        if line.startswith("member "):
            file = file_of(line)
        elif match := re.match(r"\s*Function : (\S+)$", line):
            kernel = kernels[f"{file}/{name_of(match[1])}"]
        elif kernel is not None:
            for name in INSTRUCTIONS.keys() - kernel.contains:
                if INSTRUCTIONS[name].search(line):
                    kernel.contains.add(name)


def read_table(text):
    budgets = {}
    for line in text.splitlines():
        fields = line.split("#")[0].split()
        if fields:
            budgets[fields[0]] = Budget(int(fields[1]), int(fields[2]), set(fields[3:]))
    return budgets


def row(name, kernel):
    registers = min(255, -(-kernel.registers // 8) * 8)  # the hardware allots eight at a time
    contains = " ".join(word for word in INSTRUCTIONS if word in kernel.contains)
    return f"{name:<43} {registers:>9} {kernel.shared:>7}  {contains}".rstrip()


def faults(kernels, budgets):
    found = []
    for name, kernel in sorted(kernels.items()):
        if kernel.stack:
            found.append(f"{name} has a stack of {kernel.stack} bytes: registers spill, or an array has no register")
        if name not in budgets:
            found.append(f"{name} has no row in {TABLE.name}; add, or let --write add:\n    {row(name, kernel)}")
            continue
        budget = budgets[name]
        if kernel.registers > budget.registers:
            found.append(f"{name} has {kernel.registers} registers on {kernel.worst}, budget {budget.registers}")
        if kernel.shared > budget.shared:
            found.append(f"{name} has {kernel.shared} bytes of shared memory, budget {budget.shared}")
        for word in sorted(budget.contains - kernel.contains):
            found.append(f"{name} has no {word}")
    found += [f"{TABLE.name} has a row for {name}, which is no kernel" for name in sorted(set(budgets) - set(kernels))]
    return found


def tool_path():
    """The folders where cuobjdump and nvdisasm may be: PATH, the compiler's, and .venv-cuda."""
    folders = os.environ["PATH"].split(os.pathsep)
    if nvcc := shutil.which("nvcc"):
        folders.append(str(pathlib.Path(nvcc).resolve().parent))
    folders += map(str, ROOT.glob(".venv-cuda/lib/python3*/site-packages/nvidia/cu13/bin"))
    return os.pathsep.join(folders)


def read_archive(archive):
    """The kernels and the architectures that they were compiled for."""
    path = tool_path()
    tool = shutil.which("cuobjdump", path=path)
    if not tool or not shutil.which("nvdisasm", path=path):
        print("budgets_test: skipped: no cuobjdump and nvdisasm (scripts/setup.sh cuda installs them)")
        sys.exit(SKIPPED)

    def dump(*options):
        return subprocess.run(
            [tool, *options, archive], env={**os.environ, "PATH": path}, check=True, capture_output=True, text=True
        ).stdout

    built = sorted(set(re.findall(r"\.(sm_\w+)\.cubin", dump("-lelf"))), key=number_of)
    kernels = collections.defaultdict(Kernel)
    for architecture in built:
        read_usage(dump("-res-usage", "-arch", architecture), architecture, kernels)
    disassembled = next((a for a in DISASSEMBLED if a in built), built[0] if built else None)
    if not disassembled:
        print(f"budgets_test: skipped: {archive} has no machine code")
        sys.exit(SKIPPED)
    read_code(dump("-sass", "-arch", disassembled), kernels)
    return kernels, built


def main():
    if len(sys.argv) < 2 or not os.path.exists(sys.argv[1]):
        print("budgets_test: skipped: the CUDA backend is not built (no CUDA compiler, or TACTUS_CUDA is off)")
        return SKIPPED
    kernels, built = read_archive(sys.argv[1])
    budgets = read_table(TABLE.read_text())
    if sys.argv[2:] == ["--write"]:
        rows = [row(name, kernel) for name, kernel in sorted(kernels.items()) if name not in budgets]
        TABLE.write_text(TABLE.read_text() + "".join(line + "\n" for line in rows))
        print(f"budgets_test: {len(rows)} rows added")
        return 0
    found = faults(kernels, budgets)
    found += [f"there is no code for sm_{name}" for name in sys.argv[2:] if f"sm_{name}" not in built]
    for fault in found:
        print(f"budgets_test: {fault}")
    print(f"budgets_test: {len(kernels)} kernels on {', '.join(built)}, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
